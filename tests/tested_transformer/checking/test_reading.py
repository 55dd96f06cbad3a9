"""Who reads whom, of attentions that are known to the last weight."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.reading import (
    is_constant,
    reads,
    scores_of,
    takes_softmax,
)
from tested_transformer.multihead import MultiHeadAttention


def test_a_causal_layer_reads_the_past_and_itself() -> None:
    subject = make_subject(MultiHeadAttention(d_model=20, num_heads=5))
    triangle = torch.ones(7, 7, dtype=torch.bool).tril()
    assert torch.equal(reads(subject), triangle)
    assert reads(subject, causal=False).all()


def test_nan_that_stays_is_not_moved() -> None:
    def broken(x: Tensor) -> Tensor:
        later = x.roll(-1, dims=1)
        return torch.cat([later[:, :-1], torch.full_like(x[:, :1], torch.nan)], dim=1)

    found = reads(make_subject(broken, d_model=20))
    assert torch.equal(found, torch.ones(7, 7).triu(1).tril(1).bool())


def test_what_never_moves_is_constant_unless_it_is_nan() -> None:
    def of(function) -> bool:
        return is_constant(make_subject(function, d_model=20))

    assert of(lambda x: torch.ones_like(x))
    assert not of(lambda x: x)
    assert not of(lambda x: x * torch.nan)


BATCH, HEADS, LENGTH, HEAD_DIM = 3, 5, 7, 4


def heads_of(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)


def whole(x: Tensor) -> Tensor:
    return (x @ x.mT).softmax(dim=-1)


def in_one_axis(x: Tensor) -> Tensor:
    return whole(x.flatten(0, 1)).unflatten(0, (-1, HEADS))


def heads_last(x: Tensor) -> Tensor:
    scores = torch.einsum("bhtd,bhsd->tsbh", x, x)
    return F.softmax(scores, dim=1).permute(2, 3, 0, 1)


def one_by_one(x: Tensor) -> Tensor:
    return torch.stack([whole(each) for each in x.unbind(1)], dim=1)


def fused(x: Tensor) -> Tensor:
    ones = torch.eye(x.shape[-2]).expand(*x.shape[:2], -1, -1).to(x)
    return F.scaled_dot_product_attention(x, x, ones, scale=1.0)


@pytest.mark.parametrize("weigh", [whole, in_one_axis, heads_last, one_by_one, fused])
def test_scores_are_read_whatever_the_order_of_their_axes(
    weigh: Callable[[Tensor], Tensor],
) -> None:
    def layer(x: Tensor) -> Tensor:
        x = heads_of(x)
        return (weigh(x) @ x).transpose(1, 2).flatten(2)

    x = torch.randn(BATCH, LENGTH, HEADS * HEAD_DIM)
    found = scores_of(make_subject(layer, d_model=20), x, HEADS, causal=False)
    assert found is not None
    right = heads_of(x) @ heads_of(x).mT
    torch.testing.assert_close(found, right.double())


def test_without_a_softmax_there_are_no_scores() -> None:
    subject = make_subject(lambda x: x, d_model=20)
    assert scores_of(subject, torch.randn(3, 7, 20), HEADS, causal=False) is None


def in_python(scores: Tensor) -> Tensor:
    return scores.softmax(dim=-1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("made", [lambda each: each, torch.jit.script])
def test_a_softmax_is_seen_in_a_script_too(made: Callable[..., Any]) -> None:
    def seen(weigh: Callable[[Tensor], Tensor]) -> bool:
        return takes_softmax(make_subject(lambda x: weigh(x @ x.mT) @ x, d_model=20))

    assert seen(made(in_python))
    assert seen(lambda scores: scores.exp() / scores.exp().sum(dim=-1, keepdim=True))
    assert not seen(torch.sigmoid)
