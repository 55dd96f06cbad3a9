"""Graders of *Watch it think*."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["grade_grown", "grade_influence"]


@torch.no_grad()
def grade_grown(answer: Callable[[list[Tensor]], Tensor]) -> str:
    """Grade attention maps that are assembled from the rows of single steps.

    Args:
        answer: A function of ``rows``.
    """
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": 1}
    model = GPT(GPTConfig(vocab_size=11, max_seq_len=8, **sizes))
    attention = model.blocks[0].attention
    assert isinstance(attention, MultiHeadAttention)
    attention.q_proj.weight.mul_(50)
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    _, (weights,) = model(tokens, return_weights=True)
    cache, rows = model.new_cache(), []
    for token in tokens[0]:
        step = model(token[None, None], cache=cache, return_weights=True)
        rows.append(step[1][0][0, :, 0])
    got = answer([row.clone() for row in rows])
    assert got.shape == (2, 5, 5), f"the maps are {tuple(got.shape)}, not (2, 5, 5)"
    assert not torch.allclose(got, weights[0].mT, atol=1e-6), (
        "a row is a query: these are the columns"
    )
    assert not got.triu(diagonal=1).any(), "a weight stands in the future of its query"
    assert torch.allclose(got.sum(-1), torch.ones(2, 5)), "a row does not add up to 1"
    assert torch.allclose(got, weights[0], atol=1e-6), "the rows are in another order"
    return "right"


def grade_influence(
    answer: Callable[
        [Callable[[Sequence[str]], float], list[str], str], Sequence[float]
    ],
) -> str:
    """Grade how much a probability falls when each word is replaced in turn.

    Args:
        answer: A function of ``chance``, ``words`` and ``other``.
    """
    words = ["the", "dogs", "near", "trees"]

    def chance(guess: Sequence[str]) -> float:
        assert len(guess) == len(words), (
            f"{guess!r} has not as many words as {words!r}: replace the word"
        )
        same = [mine == theirs for mine, theirs in zip(guess, words, strict=True)]
        # Another third word makes it rise: by 6, less the 4 that are lost.
        return sum(2**at for at in range(4) if same[at]) + 6 * (not same[2])

    got = [float(score) for score in answer(chance, [*words], "cat")]
    assert len(got) == 4, f"{len(got)} numbers for {len(words)} words"
    assert got != [1, 3, 1, 9], "put each word back before the next is replaced"
    assert got != [-1, -2, 2, -8], "the sign: it is how far the chance falls"
    assert got != [14, 13, 17, 7], "that is what is left of the chance, not its fall"
    assert got != [1, 2, 2, 8], "a chance may rise, too: keep the sign"
    assert got == [1, 2, -2, 8], f"it is {got} where [1, 2, -2, 8] was wanted"
    return "right"
