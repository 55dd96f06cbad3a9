"""Positions, norms and windows in a layer are recognized, and so are bugs in them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking import check_attention
from tested_transformer.checking.forms import Norm, alibi_slopes_of

D_MODEL, HEADS, KV_HEADS, HEAD_DIM = 24, 4, 2, 6

pytestmark = pytest.mark.usefixtures("as_a_caller")

_Change = Callable[[Tensor], Tensor]


def kept(x: Tensor) -> Tensor:
    return x


def turning(
    *,
    matrix: Callable[[Tensor], Tensor] | None = None,
    base: float = 1e4,
    **options: Any,
) -> _Change:
    """Return what turns heads by a matrix for each position, as no form does it."""

    def turn(x: Tensor) -> Tensor:
        width = options.get("width", x.shape[-1])
        places = torch.arange(x.shape[-2]) + options.get("shift", 0)
        angles = torch.outer(places, base ** -(torch.arange(0, width, 2) / width))
        angles = angles * options.get("way", 1)
        cos, sin = angles.cos(), options.get("factor", 1) * angles.sin()
        minus = -sin if options.get("minus", True) else sin
        blocks = torch.stack([cos, minus, sin, cos], dim=-1).unflatten(-1, (2, 2))
        pairs = torch.arange(width).view(-1, 2)
        if options.get("halves", True):
            pairs = torch.arange(width).view(2, -1).mT
        whole = torch.eye(x.shape[-1]).repeat(x.shape[-2], 1, 1)
        for at, pair in enumerate(pairs):
            whole[:, pair[:, None], pair] = blocks[:, at]
        return torch.einsum("tij,bhtj->bhti", whole.to(x), x)

    return turn


SLOPES = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256]).view(-1, 1, 1)


def leaning(x: Tensor) -> Tensor:
    """What ALiBi takes off, with the slopes of four heads."""
    places = torch.arange(x.shape[-2])
    return -SLOPES * (places[:, None] - places).abs()


class Placed(nn.Module):
    """Causal, with grouped heads and whatever is done to queries, keys and scores."""

    norms_last = False

    def __init__(
        self,
        queries: _Change = kept,
        keys: _Change = kept,
        values: _Change = kept,
        *,
        bias: Callable[[Tensor], Tensor] = torch.zeros_like,
        window: int = 99,
        norms: tuple[nn.Module, nn.Module] | None = None,
        diagonal: int = 0,
        **said: Any,
    ) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.q_proj, self.o_proj = (
            nn.Linear(D_MODEL, D_MODEL),
            nn.Linear(D_MODEL, D_MODEL),
        )
        self.k_proj, self.v_proj = (
            nn.Linear(D_MODEL, KV_HEADS * HEAD_DIM) for _ in range(2)
        )
        if norms is not None:
            self.q_norm, self.k_norm = norms
        self.changes, self.bias = (queries, keys, values), bias
        self.near, self.diagonal = window, diagonal
        for name, each in said.items():
            setattr(self, name, each)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if hasattr(self, "q_norm") and not self.norms_last:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (f(each) for f, each in zip(self.changes, (q, k, v), strict=True))
        if self.norms_last:
            q, k = self.q_norm(q), self.k_norm(k)
        k, v = (each.repeat_interleave(HEADS // KV_HEADS, dim=1) for each in (k, v))
        scores = q @ k.mT / HEAD_DIM**0.5
        scores = scores + self.bias(scores).to(scores)
        allowed = torch.ones_like(scores).tril(self.diagonal).triu(1 - self.near)
        weights = scores.masked_fill(allowed == 0, -torch.inf).softmax(dim=-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


class Renamed(Placed):
    """Its norms have short names, and that of the keys comes first."""

    def __init__(self) -> None:
        super().__init__(queries=lambda q: q / HEAD_DIM**0.5)
        self.kln, self.qln = nn.RMSNorm(HEAD_DIM), nn.RMSNorm(HEAD_DIM)
        nn.init.uniform_(self.kln.weight, 1, 2)

    @property
    def q_norm(self) -> nn.Module:
        return self.qln

    @property
    def k_norm(self) -> nn.Module:
        return self.kln


def normed(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:])


HALVES, NEIGHBORS = turning(), turning(halves=False)
RIGHT: dict[str, tuple[str, Callable[[], Placed]]] = {
    "halves": ("rotary positions (halves, base 10000)", lambda: Placed(HALVES, HALVES)),
    "neighbors": (
        "rotary positions (neighbors, base 10000)",
        lambda: Placed(NEIGHBORS, NEIGHBORS),
    ),
    "part of a head": (
        "rotary positions (halves, base 10000)",
        lambda: Placed(*[turning(width=2)] * 2, rotary_dim=2),
    ),
    "a scale that it says": (
        "rotary positions (halves, base 10000), scores times 0.4472",
        lambda: Placed(
            *(lambda q: HALVES(q) * (HEAD_DIM / 5) ** 0.5, HALVES),
            attention_scores_scalar=5,
        ),
    ),
    "a part that it lacks": (
        "rotary positions (halves, base 10000)",
        lambda: Placed(HALVES, HALVES, relative_attention_bias=None),
    ),
    "a base that it says": (
        "rotary positions (halves, base 777)",
        lambda: Placed(*[turning(base=777.0)] * 2, rope_theta=777.0),
    ),
    "ALiBi": ("ALiBi", lambda: Placed(bias=leaning)),
    "ALiBi that counts from one": (
        "ALiBi",
        lambda: Placed(bias=lambda scores: leaning(scores)[:, -1:] - SLOPES),
    ),
    "scores less their largest": (
        "rotary positions (halves, base 10000)",
        lambda: Placed(
            HALVES, HALVES, bias=lambda scores: -scores.amax(dim=-1, keepdim=True)
        ),
    ),
    "a window": (
        "rotary positions (halves, base 10000), a window of 3",
        lambda: Placed(HALVES, HALVES, window=3, sliding_window=3),
    ),
    "norms with weights": (
        "rotary positions (neighbors, base 10000), normalized queries and keys",
        lambda: Placed(
            NEIGHBORS, NEIGHBORS, norms=(nn.RMSNorm(HEAD_DIM), nn.LayerNorm(HEAD_DIM))
        ),
    ),
    "norms after positions": (
        "rotary positions (halves, base 10000), normalized queries and keys",
        lambda: Placed(
            *(HALVES, HALVES),
            norms=(nn.RMSNorm(HEAD_DIM), nn.RMSNorm(HEAD_DIM)),
            norms_last=True,
        ),
    ),
    "norms without": (
        "rotary positions (halves, base 10000), normalized queries and keys",
        lambda: Placed(lambda q: normed(HALVES(q)), lambda k: normed(HALVES(k))),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_form_is_recognized_and_right(name: str) -> None:
    form, make = RIGHT[name]
    report = check_attention(make())
    assert report, str(report)
    assert str(report).startswith(f"Placed is right: attention with {form}.\n")
    assert report.as_dict()["form"] == form


WRONG: dict[str, tuple[str, Callable[[], Placed]]] = {
    "queries alone": ("rotary-on-queries-alone", lambda: Placed(HALVES)),
    "keys alone": ("rotary-on-keys-alone", lambda: Placed(kept, NEIGHBORS)),
    "values too": ("rotary-on-values", lambda: Placed(HALVES, HALVES, HALVES)),
    "against each other": (
        "keys-turned-back",
        lambda: Placed(HALVES, turning(way=-1)),
    ),
    "no minus": (
        "sine-without-minus",
        lambda: Placed(*[turning(halves=False, minus=False)] * 2),
    ),
    "one place on": ("keys-turned-too-far", lambda: Placed(HALVES, turning(shift=1))),
    "ALiBi upside down": (
        "alibi-upside-down",
        lambda: Placed(bias=lambda scores: -leaning(scores)),
    ),
    "a norm missing": (
        "norm-of-queries-alone",
        lambda: Placed(HALVES, HALVES, norms=(nn.RMSNorm(HEAD_DIM), nn.Identity())),
    ),
    "queries alone, with a base that nothing says": (
        "rotary-on-queries-alone",
        lambda: Placed(turning(base=12345.0)),
    ),
    "the scale, with norms in another order": ("scaled-twice", Renamed),
    "the mask, with norms after positions": (
        "one-too-far",
        lambda: Placed(
            *(HALVES, HALVES),
            norms=(nn.RMSNorm(HEAD_DIM), nn.RMSNorm(HEAD_DIM)),
            norms_last=True,
            diagonal=1,
        ),
    ),
    "the mask, with positions": (
        "one-too-far",
        lambda: Placed(HALVES, HALVES, diagonal=1),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_bug_is_named_on_top_of_the_right_form(name: str) -> None:
    bug, make = WRONG[name]
    report = check_attention(make())
    assert [each.name for each in report.likely] == [bug], str(report)
    assert report.state == "wrong"


DOUBTED: dict[str, tuple[str, Callable[[], Placed]]] = {
    "backwards": (
        "it rotates queries and keys the other way than most",
        lambda: Placed(*[turning(way=-1)] * 2),
    ),
    "a window that nothing says": (
        "it reads only the last 3 tokens, and no attribute of it says so",
        lambda: Placed(window=3),
    ),
    "positions that it has, and does not use": (
        "it has inv_freq, but attends without positions",
        lambda: Placed(inv_freq=1e4 ** -(torch.arange(0, 6, 2) / 6)),
    ),
}


@pytest.mark.parametrize("name", DOUBTED)
def test_what_may_be_meant_or_not_is_not_known(name: str) -> None:
    doubt, make = DOUBTED[name]
    report = check_attention(make())
    assert report.failed == [], str(report)
    assert report.state == "not known"
    assert str(report).splitlines()[1].strip().startswith(doubt)


def test_norms_over_all_heads_know_that_keys_are_shared() -> None:
    q, k = torch.randn(2, 3, 4, 5, 6).double().unbind(0)
    k = k[:, :2].repeat_interleave(2, dim=1)
    weight = torch.randn(12).double()
    norm = Norm(kind="rms", eps=1e-6, weight=weight, by_head=False)
    flat = k[:, ::2].transpose(1, 2).flatten(2)
    right = F.rms_norm(flat, (12,), weight, 1e-6).unflatten(-1, (2, 6)).transpose(1, 2)
    torch.testing.assert_close(norm(k)[:, ::2], right)
    assert norm(q[:, :2]).shape == (3, 2, 5, 6)


def test_slopes_are_those_of_published_models() -> None:
    # Of the paper's code for six heads: those of four, and two of those of eight.
    own, paper = alibi_slopes_of(6)
    assert paper == (2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3)
    assert own[0] == pytest.approx(2 ** (-8 / 6))
    assert next(alibi_slopes_of(8)) == tuple(2**-h for h in range(1, 9))
