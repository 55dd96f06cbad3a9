"""Graders of *Encoder and decoder*."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["grade_shift", "grade_writing"]


def grade_shift(answer: Callable[..., tuple[Tensor, Tensor]]) -> str:
    """Grade the inputs of a decoder, and the target of each row.

    Args:
        answer: A function of lists of ids, ``bos``, ``eos`` and ``pad``.
    """
    read, targets = answer([[7, 8, 9], [5]], bos=1, eos=2, pad=3)
    assert read.shape == targets.shape, "each row that reads has one guess"
    assert not torch.equal(read, targets), "not shifted: it reads what it is to guess"
    guesses = [row[row != 3].tolist() for row in targets]
    assert not any(1 in row for row in guesses), "<bos> is given, and never guessed"
    assert all(2 in row for row in guesses), "<eos> is never guessed: it will not stop"
    assert bool((read[:, 0] == 1).all()), "the first word is guessed from <bos>"
    assert guesses == [[7, 8, 9, 2], [5, 2]], "the guesses are the sentence, then <eos>"
    reads = [row[: len(a)].tolist() for row, a in zip(read, guesses, strict=True)]
    assert reads == [[1, 7, 8, 9], [1, 5]], "a row reads the words before its guess"
    return "right"


class _Puppet:
    """A model that writes each source backward, then 2, if the target begins with 1."""

    def __init__(self) -> None:
        self.reads = 0

    def encode(self, source: Tensor, *, mask: Tensor | None = None) -> Tensor:
        self.reads += 1
        if mask is not None:
            source = source.masked_fill(~mask[:, 0, 0], 3)
        # Spoil each sentence whose padding may be read.
        spoiled = (source == 0).any(dim=-1, keepdim=True)
        return F.one_hot(source.masked_fill(spoiled, 3), 9).float()

    def decode(
        self, target: Tensor, context: Tensor, *, context_mask: Tensor | None = None
    ) -> Tensor:
        source = context.argmax(dim=-1)
        lengths = [source.shape[1]] * len(source)
        if context_mask is not None:
            lengths = context_mask[:, 0, 0].sum(dim=-1).tolist()
        logits = torch.zeros(*target.shape, 9)
        for tokens, length, rows, old in zip(
            source, lengths, logits, target, strict=True
        ):
            story = [1, *tokens[:length].flip(0).tolist(), *[2] * target.shape[1]]
            for t in range(len(old)):
                on_track = old[: t + 1].tolist() == story[: t + 1]
                rows[t, story[t + 1] if on_track else 8] = 1.0
        return logits


def grade_writing(answer: Callable[..., list[list[int]]]) -> str:
    """Grade greedy writing for a batch, with a model that writes its source backward.

    Args:
        answer: A function of the model, ``source``, ``mask``, ``bos``, ``eos`` and
            ``longest``.
    """
    source, puppet = torch.tensor([[4, 5, 6, 7], [5, 4, 0, 0]]), _Puppet()
    got = answer(puppet, source, (source != 0)[:, None, None], 1, 2, 6)
    assert puppet.reads == 1, f"the source was read {puppet.reads} times: once will do"
    assert all(len(row) <= 6 for row in got), "longer than it was allowed"
    assert not any(1 in row for row in got), "<bos> is not part of what is written"
    assert not any(2 in row for row in got), "nothing from <eos> on is to be returned"
    assert not any({0, 3} & set(row) for row in got), "the mask is missing somewhere"
    assert len(got[0]) >= 4, "stopped at the first <eos>; another was still writing"
    assert not any(8 in row for row in got), (
        "give the decoder all that was written, in its order"
    )
    assert got[0] != [7] * len(got[0]), "the next word is the guess of the last row"
    assert got == [[7, 6, 5, 4], [4, 5]], f"{got} is not what the model wants to write"
    every = torch.ones(1, 1, 1, 3, dtype=torch.bool)
    short = answer(_Puppet(), torch.tensor([[4, 5, 6]]), every, 1, 2, 2)
    assert short == [[6, 5]], f"with longest=2 it writes {short}"
    return "right"
