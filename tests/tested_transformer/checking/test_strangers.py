"""More attentions that the museum has never seen, as they are found in public code.

Each is written in the manner of a project that many have copied from, right and with
a slip: a list of projections, a module for each head, bare matrices, other names, masks
of three axes, norms of queries and keys.
"""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking import Report, check_attention
from tested_transformer.multihead import MultiHeadAttention

D_MODEL, HEADS = 20, 5

pytestmark = pytest.mark.usefixtures("as_a_caller")


def heads_of(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class Annotated(nn.Module):
    """Four projections in a list, masks (B, T, T), and the weights kept to be shown."""

    def __init__(self, *, allowed: bool = True, fill: float = -torch.inf) -> None:
        super().__init__()
        self.h, self.allowed, self.fill = HEADS, allowed, fill
        self.linears = nn.ModuleList([nn.Linear(D_MODEL, D_MODEL) for _ in range(4)])
        self.dropout = nn.Dropout(0.1)
        self.attn: Tensor | None = None

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        q, k, v = (
            heads_of(project(x))
            for project, x in zip(self.linears[:3], (query, key, value), strict=True)
        )
        scores = q @ k.mT / k.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) != self.allowed, self.fill)
        self.attn = scores.softmax(dim=-1)
        heads = self.dropout(self.attn) @ v
        return self.linears[3](heads.transpose(1, 2).flatten(2))


class Head(nn.Module):
    """One head of a lecture, with projections of its own."""

    def __init__(self, axis: int, scale: int) -> None:
        super().__init__()
        self.axis, self.scale = axis, scale
        self.key, self.query, self.value = (
            nn.Linear(D_MODEL, D_MODEL // HEADS, bias=False) for _ in range(3)
        )
        self.register_buffer("tril", torch.ones(16, 16).tril())

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        scores = self.query(x) @ self.key(x).mT * self.scale**-0.5
        scores = scores.masked_fill(self.tril[:length, :length] == 0, -torch.inf)
        return scores.softmax(dim=self.axis) @ self.value(x)


class Lecture(nn.Module):
    """A list of heads, and a projection after it."""

    def __init__(self, *, axis: int = -1, scale: int = D_MODEL // HEADS) -> None:
        super().__init__()
        self.heads = nn.ModuleList([Head(axis, scale) for _ in range(HEADS)])
        self.proj = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


class Vision(nn.Module):
    """As in models of images: both ways, unless it is given a mask."""

    def __init__(self, *, forget: bool = False) -> None:
        super().__init__()
        self.num_heads, self.forget = HEADS, forget
        self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()
        self.proj = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        q, k, v = map(heads_of, self.qkv(x).chunk(3, dim=-1))
        mask = None if self.forget else attn_mask
        y = F.scaled_dot_product_attention(
            self.q_norm(q), self.k_norm(k), v, attn_mask=mask
        )
        return self.proj(y.transpose(1, 2).flatten(2))


class Matrices(nn.Module):
    """Bare matrices for einsum, turned: a column, and not a row, makes a feature."""

    def __init__(self, *, values: str = "bhij,bhjd->bhid") -> None:
        super().__init__()
        self.num_heads, self.values = HEADS, values
        self.W_query, self.W_key, self.W_value = (
            nn.Parameter(torch.randn(D_MODEL, D_MODEL) / 4) for _ in range(3)
        )
        self.out_proj = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            heads_of(torch.einsum("bnd,do->bno", x, each))
            for each in (self.W_query, self.W_key, self.W_value)
        )
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
        upper = torch.ones(scores.shape[-2:]).triu(1).bool()
        weights = scores.masked_fill(upper, -torch.inf).softmax(dim=-1)
        y = torch.einsum(self.values, weights, v)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class Wide(nn.Module):
    """Keys and values in one projection, and heads wider together than the features."""

    def __init__(self, *, diagonal: int = 1) -> None:
        super().__init__()
        self.heads, self.diagonal = HEADS, diagonal
        self.to_q = nn.Linear(D_MODEL, HEADS * 6, bias=False)
        self.to_kv = nn.Linear(D_MODEL, 2 * HEADS * 6, bias=False)
        self.to_out = nn.Sequential(nn.Linear(HEADS * 6, D_MODEL), nn.Dropout(0.1))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        q, k, v = map(heads_of, (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1)))
        scores = q @ k.mT * 6**-0.5
        upper = torch.ones(scores.shape[-2:]).triu(self.diagonal).bool()
        weights = scores.masked_fill(upper, -torch.inf).softmax(dim=-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class Normed(nn.Module):
    """Queries and keys are normed, with a scale that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.n_head = HEADS
        self.c_attn = nn.Linear(D_MODEL, 3 * D_MODEL, bias=False)
        self.c_proj = nn.Linear(D_MODEL, D_MODEL, bias=False)
        self.norm = nn.RMSNorm(D_MODEL // HEADS)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = map(heads_of, self.c_attn(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(
            self.norm(q), self.norm(k), v, is_causal=True
        )
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Conv1D(nn.Module):
    """A matrix turned around, and features that have to lie side by side."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(D_MODEL, wide) / 4)
        self.bias = nn.Parameter(torch.randn(wide))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.view(-1, D_MODEL), self.weight)
        return flat.view(*x.shape[:-1], -1)


class Published(nn.Module):
    """With the layout in which the weights of GPT-2 were published."""

    def __init__(self, *, values: int = 2) -> None:
        super().__init__()
        self.num_heads, self.values = HEADS, values
        self.c_attn, self.c_proj = Conv1D(3 * D_MODEL), Conv1D(D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        parts = [heads_of(each) for each in self.c_attn(x).chunk(3, dim=-1)]
        y = F.scaled_dot_product_attention(
            parts[0], parts[1], parts[self.values], is_causal=True
        )
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Masks(nn.Module):
    """In the style of PyTorch's layer, with one of its masks turned around."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = D_MODEL, HEADS
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(D_MODEL, D_MODEL) for _ in range(4)
        )

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        q, k, v = map(
            heads_of, (self.q_proj(query), self.k_proj(key), self.v_proj(value))
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf)  # True is ignore here
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None], -torch.inf)
        empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
        weights = scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), None


def asked(report: Report) -> set[str]:
    return {each.check for each in report.verdicts if each.passed is not None}


RIGHT: dict[str, tuple[Callable[[], Any], str]] = {
    "a list of heads": (Lecture, "causal"),
    "both ways": (Vision, "sdpa"),
    "bare matrices": (Matrices, "causal"),
    "wide heads": (Wide, "causal"),
    "GPT-2's layout": (Published, "causal"),
    "a norm for queries and keys": (Normed, "causal"),
    "ours, with norms": (
        lambda: MultiHeadAttention(d_model=D_MODEL, num_heads=HEADS, qk_norm=True),
        "ours",
    ),
    "ours, wide heads": (
        lambda: MultiHeadAttention(d_model=D_MODEL, num_heads=HEADS, head_dim=6),
        "ours",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes_and_has_an_oracle(name: str) -> None:
    make, style = RIGHT[name]
    report = check_attention(make())
    assert report.failed == [], str(report)
    assert report.style == style
    assert asked(report) >= {"leak", "padding", "output", "gradient", "modes", "dtypes"}


BROKEN: dict[str, tuple[Callable[[], Any], set[str], list[str]]] = {
    "scaled by the width": (
        lambda: Lecture(scale=D_MODEL),
        {"output", "gradient"},
        ["scaled-by-width"],
    ),
    "softmax over queries": (
        lambda: Lecture(axis=-2),
        {"leak", "row sums", "output"},
        ["softmax-over-queries"],
    ),
    "a letter of einsum": (
        lambda: Matrices(values="bhji,bhjd->bhid"),
        {"permutation", "row sums", "output"},
        [],
    ),
    "one diagonal too far": (lambda: Wide(diagonal=2), {"leak"}, ["one-too-far"]),
    "keys for values": (
        lambda: Published(values=1),
        {"output", "gradient"},
        ["keys-for-values"],
    ),
    "minus a lot": (
        lambda: Annotated(fill=-1e9),
        {"dtypes"},
        ["beyond-half"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_fails_by_name(name: str) -> None:
    make, failing, likely = BROKEN[name]
    report = check_attention(make())
    assert set(report.failed) >= failing, str(report)
    assert [each.name for each in report.likely] == likely, str(report)
    assert not report.whole_only


def test_masks_of_three_axes_and_weights_that_were_kept() -> None:
    layer = Annotated()
    layer(*[torch.randn(2, 3, D_MODEL)] * 3)
    assert layer.attn is not None
    kept = layer.attn
    report = check_attention(layer)
    assert report.failed == ["empty rows"]
    assert {"padding", "output", "permutation"} <= asked(report)
    assert [each.name for each in report.likely] == ["nan-in-empty-rows"]
    assert layer.attn is kept
    for means in ("attend", "ignore", None):
        report = check_attention(Annotated(allowed=False), mask_means=means)
        inverted = {"leak", "padding", "output"} <= set(report.failed)
        assert inverted == (means == "attend")
        # It may be meant so, and that is asked for.
        assert ("as in chapters/the-bug-museum/#inverted-mask" in str(report)) == (
            means != "ignore"
        )


def test_a_slip_that_padding_hides_is_named_for_what_it_does_without() -> None:
    report = check_attention(Masks())
    assert "leak" in report.failed
    assert [each.name for each in report.likely] == ["inverted-mask"]
    assert (
        "  without padding, as in chapters/the-bug-museum/#inverted-mask"
        in str(report).splitlines()
    )
    report = check_attention(Vision(forget=True))
    assert report.whole_only
    assert report.likely[0].name == "no-causal-mask"


def test_without_a_likely_mistake_there_is_a_place_to_read() -> None:
    report = check_attention(Matrices(values="bhji,bhjd->bhid"))
    assert str(report).splitlines()[-1] == (
        "What each check asks: chapters/is-your-attention-right/#the-questions"
    )


class Hidden(nn.Module):
    """As a library's layer, which is given what hides the future, and loses it."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, hidden_states: Tensor, attention_mask: Any = None) -> Tensor:
        return self.proj(hidden_states)


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (
            Hidden(),
            "Hidden takes attention_mask, and no mask that was tried makes it causal "
            "or hides a token: give its meaning, mask_means=attend.ignore.ones.add, or "
            "style=",
        ),
        (torch.softmax, r"cannot infer how to call softmax\(\): give style="),
        (
            functools.partial(F.scaled_dot_product_attention, is_causal=True),
            r"cannot infer how to call partial\(\): give style=",
        ),
    ],
)
def test_what_no_mask_makes_causal_is_asked_about(attention: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        check_attention(attention)


def test_a_layer_with_padding_of_its_own_and_a_future_that_it_hides() -> None:
    class Padded(Wide):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            q, k, v = map(heads_of, (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1)))
            allowed = torch.ones(x.shape[1], x.shape[1]).tril().bool()
            allowed = allowed if mask is None else allowed & mask
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
            return self.to_out(y.transpose(1, 2).flatten(2))

    report = check_attention(Padded())
    assert report.failed == [], str(report)
    assert {"padding", "permutation"} <= asked(report)
