"""Graders of *Induction*."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tested_transformer.interpret import induction_target, same_token_target

__all__ = ["grade_after_copies", "grade_two_heads"]


def grade_after_copies(answer: Callable[[Tensor], Tensor]) -> str:
    """Grade the target of a head that looks at what followed an earlier copy.

    Args:
        answer: A function of ``tokens``.
    """
    tokens = torch.tensor([[4, 2, 4, 4, 9, 2, 4], [1, 2, 3, 1, 2, 3, 1]])
    got = answer(tokens)
    assert got.shape == (2, 7, 7), f"it is {tuple(got.shape)}, not (2, 7, 7)"
    assert got.dtype == torch.bool, "a target is boolean"
    assert not got.triu(1).any(), "it looks ahead: a row is a query, a column a key"
    assert not got.diagonal(dim1=1, dim2=2).any(), "a query is never its own target"
    assert not torch.equal(got, same_token_target(tokens)), (
        "it marks the copies, not what followed them"
    )
    expected = induction_target(tokens)
    assert not (got & ~expected).any(), "it marks a key that followed no earlier copy"
    assert torch.equal(got, expected), "it misses what followed some earlier copy"
    return "right"


def grade_two_heads(answer: Callable[[Tensor, float], Tensor]) -> str:
    """Grade an induction circuit of two heads without parameters.

    Args:
        answer: A function of one-hot tokens ``x`` and ``sharpness``.
    """
    tokens = torch.cat([torch.randperm(11)[:5].repeat(2), torch.tensor([0])])
    x = F.one_hot(tokens, 11).float()
    got = answer(x, 50.0)
    assert got.shape == x.shape, f"it is {tuple(got.shape)}, not {tuple(x.shape)}"
    again = got[5:9].argmax(dim=-1)
    assert not torch.equal(again, tokens[5:9]), "it finds the same token, not the next"
    assert not torch.equal(again, tokens[[4, 0, 1, 2]]), (
        "it finds the token before a copy: queries and keys are exchanged"
    )
    assert torch.equal(again, tokens[6:10]), "after A B ... A it does not expect B"
    alone = answer(x[:4], 2.0)
    assert torch.allclose(alone, answer(x, 2.0)[:4], atol=1e-6), (
        "it looks ahead: a query attends to no later key"
    )
    keys = F.pad(x[:-1], (0, 0, 1, 0))
    scores = (2.0 * x @ keys.T).masked_fill(torch.ones(11, 11).triu(1) > 0, -torch.inf)
    assert torch.allclose(answer(x, 2.0), scores.softmax(-1) @ x, atol=1e-5), (
        "with sharpness=2 the weights are not the softmax of 2 times the products"
    )
    return "right"
