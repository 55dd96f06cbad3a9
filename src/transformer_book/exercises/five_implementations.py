"""Graders of *Five implementations, one answer?*."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["grade_softmax_backward", "grade_unpack", "grade_unpack_groups"]


def grade_unpack(answer: Callable[[Tensor, int], Sequence[Tensor]]) -> str:
    """Grade three matrices unpacked from one that is packed head by head.

    Args:
        answer: A function of the packed matrix, (3D, D), and the number of heads.
    """
    width, heads = 20, 4  # not three, the number of matrices
    matrices = torch.arange(3.0 * width * width).view(3, width, width)
    packed = torch.cat(
        [part for parts in zip(*_heads(matrices, heads), strict=True) for part in parts]
    )
    got = answer(packed.clone(), heads)
    assert len(got) == 3, f"three matrices are wanted, not {len(got)}"
    for matrix in got:
        shape = tuple(matrix.shape)
        assert shape == (width, width), f"a matrix of shape {shape}, wanted (20, 20)"
    flat = torch.stack(list(got))
    assert not torch.equal(flat, packed.view(3, width, width)), (
        "these are thirds of the rows: but the first third is head 0, whole"
    )
    assert not torch.equal(flat, matrices.transpose(1, 2)), "each matrix is transposed"
    assert not torch.equal(flat[[0, 2, 1]], matrices), "keys and values are exchanged"
    assert not torch.equal(flat, packed.view(width, 3, width).transpose(0, 1)), (
        "every third row: that would be q, k, v for each feature, not for each head"
    )
    assert torch.equal(flat, matrices), "a number is not where it belongs"
    return "right"


def _heads(matrices: Tensor, heads: int) -> list[tuple[Tensor, ...]]:
    """Cut each of the three matrices into its heads."""
    return [matrix.chunk(heads) for matrix in matrices]


def grade_softmax_backward(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Grade the gradient of scores, from weights and the gradient of the weights.

    Args:
        answer: A function of both, (T, S) each.
    """
    scores = torch.randn(3, 5, dtype=torch.double, requires_grad=True)
    weights = scores.softmax(dim=-1)
    d_weights = torch.randn(3, 5, dtype=torch.double)
    (right,) = torch.autograd.grad(weights, scores, d_weights)
    weights = weights.detach()
    got = answer(weights.clone(), d_weights.clone())
    assert got.shape == (3, 5), f"the gradient is {tuple(got.shape)}, not (3, 5)"
    across = (weights * d_weights).sum(dim=0)
    plain = d_weights.mean(dim=-1, keepdim=True)
    for hint, wrong in {
        "each weight alone: but its row shares the sum": weights * d_weights,
        "only the slope by a weight's own score": weights * (1 - weights) * d_weights,
        "the sum runs over the queries": weights * (d_weights - across),
        "a plain mean, and not one by the weights": weights * (d_weights - plain),
    }.items():
        assert not torch.allclose(got, wrong), hint
    assert torch.allclose(got.sum(dim=-1), torch.zeros(3, dtype=torch.double)), (
        "a row must sum to 0: adding the same to all scores moves nothing"
    )
    assert torch.allclose(got, right), "not the gradient of softmax"
    return "right"


def grade_unpack_groups(answer: Callable[[Tensor, int, int], Sequence[Tensor]]) -> str:
    """Grade three matrices unpacked from one that is packed group by group.

    Args:
        answer: A function of the packed matrix and the numbers of heads and KV heads.
    """
    heads, kv_heads, width = 6, 2, 5
    rows = torch.arange((heads + 2 * kv_heads) * width)[:, None] + torch.rand(7)
    q, k, v = rows.split([heads * width, kv_heads * width, kv_heads * width])
    groups = zip(q.chunk(kv_heads), k.chunk(kv_heads), v.chunk(kv_heads), strict=True)
    packed = torch.cat([part for group in groups for part in group])
    got = answer(packed.clone(), heads, kv_heads)
    assert len(got) == 3, f"three matrices are wanted, not {len(got)}"
    for name, matrix, right in zip("qkv", got, (q, k, v), strict=True):
        assert matrix.shape == right.shape, (
            f"{name} of shape {tuple(matrix.shape)}, wanted {tuple(right.shape)}"
        )
    assert not torch.equal(got[0], packed[: heads * width]), (
        "the first rows are not all queries: the first group has a key and a value, too"
    )
    assert torch.equal(got[0], q), "a query is not where it belongs"
    assert not torch.equal(got[1], v), "keys and values are exchanged"
    assert torch.equal(got[1], k), "a key is not where it belongs"
    assert torch.equal(got[2], v), "a value is not where it belongs"
    return "right"
