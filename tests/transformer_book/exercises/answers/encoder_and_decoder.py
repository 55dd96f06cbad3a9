"""Answers to the exercises of *Encoder and decoder*: right ones, and wrong ones."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from transformer_book import grade_shift, grade_writing

Tables = tuple[Tensor, Tensor]


def shift(sentences: list[list[int]], bos: int, eos: int, pad: int) -> Tables:
    longest = max(len(sentence) for sentence in sentences) + 2
    whole = torch.full((len(sentences), longest), pad)
    for row, sentence in zip(whole, sentences, strict=True):
        row[: len(sentence) + 2] = torch.tensor([bos, *sentence, eos])
    return whole[:, :-1], whole[:, 1:]


def without_end(sentences: list[list[int]], bos: int, eos: int, pad: int) -> Tables:
    given, wanted = shift(sentences, bos, eos, pad)
    return given, wanted.masked_fill(wanted == eos, pad)


def filled_with_zeros(
    sentences: list[list[int]], bos: int, eos: int, pad: int
) -> Tables:
    return shift(sentences, bos, eos, 0)


def same(*given: Any, **tokens: int) -> Tables:
    _, wanted = shift(*given, **tokens)
    return wanted, wanted


def backward(*given: Any, **tokens: int) -> Tables:
    reads, wanted = shift(*given, **tokens)
    return wanted, reads


def one_longer(*given: Any, **tokens: int) -> Tables:
    reads, wanted = shift(*given, **tokens)
    return torch.cat([reads, reads[:, -1:]], dim=1), wanted


def no_start(sentences: list[list[int]], bos: int, eos: int, pad: int) -> Tables:
    return shift(sentences, eos, eos, pad)


def writing(
    *,
    across: bool = True,
    alone: bool = True,
    newest_only: bool = False,
    until: Callable[[Tensor], Tensor] = torch.all,
    row: int = -1,
    again: bool = False,
    bos_too: bool = False,
    more: int = 0,
) -> Callable[..., list[list[int]]]:
    def write(
        model: Any, source: Tensor, mask: Tensor, bos: int, eos: int, longest: int
    ) -> list[list[int]]:
        context = model.encode(source, mask=mask if alone else None)
        target = torch.full((len(source), 1), bos)
        for _ in range(longest + more):
            context = model.encode(source, mask=mask) if again else context
            given = target[:, -1:] if newest_only else target
            seen = mask if across else None
            logits = model.decode(given, context, context_mask=seen)
            target = torch.cat([target, logits[:, row, None].argmax(dim=-1)], dim=1)
            if until((target == eos).any(dim=1)):
                break
        rows = [row[0 if bos_too else 1 :] for row in target.tolist()]
        return [row[: row.index(eos)] if eos in row else row for row in rows]

    return write


def with_end(*given: Any) -> list[list[int]]:
    return [[*row, 2] for row in writing()(*given)]


RIGHT = {grade_shift: shift, grade_writing: writing()}
WRONG: dict[Any, dict[str, Any]] = {
    grade_shift: {
        "it will not stop": without_end,
        "then <eos>": filled_with_zeros,
        "not shifted": same,
        "never guessed": backward,
        "each row that reads": one_longer,
        "guessed from <bos>": no_start,
    },
    grade_writing: {
        "read 6 times": writing(again=True),
        "the mask is missing": writing(across=False),
        "is missing somewhere": writing(alone=False),
        "stopped at the first": writing(until=torch.any),
        "in its order": writing(newest_only=True),
        "the guess of the last row": writing(row=0),
        "<bos> is not part": writing(bos_too=True),
        "from <eos> on": with_end,
        "with longest=2": writing(more=1),
    },
}
