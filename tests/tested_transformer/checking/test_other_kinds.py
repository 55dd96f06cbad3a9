"""Attention of other kinds is not called wrong, and what was not asked is not right.

Each layer here is right, or may be meant as it is, but does more or something else than
softmax attention between four projections.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking import check_attention

D_MODEL, HEADS = 24, 4

pytestmark = pytest.mark.usefixtures("as_a_caller")


def heads_of(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float = 0.0, *, causal: bool = True
) -> Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5 + bias
    if causal:
        later = torch.ones(scores.shape[-2:]).triu(1).bool()
        scores = scores.masked_fill(later, -torch.inf)
    return (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(D_MODEL, D_MODEL) for _ in range(4)
        )

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (
            heads_of(each(x)) for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(attend(*self.heads(x)))


class Distances(Plain):
    """A number for each distance and head is added to the scores, as in T5."""

    def __init__(self) -> None:
        super().__init__()
        self.distances = nn.Embedding(16, HEADS)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1])
        apart = (places[:, None] - places).clamp(0, 15)
        bias = self.distances(apart).permute(2, 0, 1)
        return self.o_proj(attend(*self.heads(x), bias=bias))


class Mixed(Plain):
    """Scores are mixed over the heads before the softmax, and weights after it."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(HEADS, HEADS)
        self.after = nn.Linear(HEADS, HEADS, bias=False)  # it would show later tokens

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = self.before(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        later = torch.ones(scores.shape[-2:]).triu(1).bool()
        weights = scores.masked_fill(later, -torch.inf).softmax(dim=-1)
        weights = self.after(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


class Matrix(nn.Module):
    """A bare matrix, which multiplies from the right."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(HEADS, HEADS))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix


class MixedByMatrices(Mixed):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = Matrix(), Matrix()


class Gated(Plain):
    """Each feature of the heads passes a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(attend(*self.heads(x)) * self.gate(x).sigmoid())


class GatedHeads(Plain):
    """Each head passes a gate; its projections have other names and shapes."""

    def __init__(self) -> None:
        super().__init__()
        del self.q_proj, self.k_proj, self.v_proj, self.o_proj
        self.linear_q, self.linear_kv, self.lout, self.opening = (
            nn.Linear(D_MODEL, size) for size in (D_MODEL, 2 * D_MODEL, D_MODEL, HEADS)
        )

    def forward(self, x: Tensor) -> Tensor:
        k, v = self.linear_kv(x).chunk(2, dim=-1)
        heads = attend(*map(heads_of, (self.linear_q(x), k, v)))
        opening = F.silu(self.opening(x)).repeat_interleave(D_MODEL // HEADS, dim=-1)
        return self.lout(heads * opening)


class Directed(Plain):
    """Queries and keys are directions; each head has learned how much they count."""

    def __init__(self) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.randn(HEADS, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        q, k = (F.normalize(each, dim=-1) * each.shape[-1] ** 0.25 for each in (q, k))
        return self.o_proj(attend(q * self.logarithm.exp(), k, v))


class Table(Plain):
    """Positions are added to the features inside."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(1, 32, D_MODEL))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.places[:, : x.shape[1]])


class Factors(Plain):
    """Each feature of the output is multiplied by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((D_MODEL,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return self.gamma * super().forward(x)


class WideValues(Plain):
    """A head's values are wider than its queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.v_proj, self.o_proj = nn.Linear(D_MODEL, 36), nn.Linear(36, D_MODEL)


class Dropping(Plain):
    """The probability to drop a weight is in a config, or a number in the code."""

    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.config = config

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        p = 0.1 if self.config is None else self.config["dropout"]
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
        weights = F.dropout(weights, p, self.training)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


class SplitForMachines(nn.Module):
    """One projection, of which each machine has queries, values and keys."""

    def __init__(self, machines: int) -> None:
        super().__init__()
        self.num_heads, self.machines = HEADS, machines
        self.qkv_proj = nn.Linear(D_MODEL, 3 * D_MODEL, bias=False)
        self.out_proj = nn.Linear(D_MODEL, D_MODEL, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv_proj(x).unflatten(-1, (self.machines, -1)).chunk(3, dim=-1)
        q, v, k = (heads_of(each.flatten(-2)) for each in parts)
        return self.out_proj(attend(q, k, v))


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (Distances, "relative positions"),
        (Mixed, "mixed heads"),
        (Gated, "a gate"),
        (GatedHeads, "a gate"),
        (Directed, "normalized queries and keys, a learned factor of the scores"),
        (Table, "positions added to its features"),
        (Factors, "factors of its output"),
        (WideValues, ""),
    ],
)
def test_learned_parts_are_recognized(make: Callable[[], nn.Module], form: str) -> None:
    torch.manual_seed(0)
    report = check_attention(make(), style="causal")
    assert report.state == "right", str(report)
    assert report.form == form


@pytest.mark.parametrize("make", [Mixed, MixedByMatrices, Gated, GatedHeads, Table])
def test_a_bug_beside_a_learned_part_is_named(
    make: Callable[[], Plain],
) -> None:
    torch.manual_seed(0)
    layer = make()
    last = layer.lout if isinstance(layer, GatedHeads) else layer.o_proj
    last.forward = lambda heads: heads
    report = check_attention(layer, style="causal")
    assert [each.name for each in report.likely] == ["no-output-projection"], report


@pytest.mark.parametrize("config", [None, {"dropout": 0.2}])
def test_dropout_is_switched_off_wherever_its_probability_is(config: Any) -> None:
    torch.manual_seed(0)
    report = check_attention(Dropping(config), style="both")
    assert report.passed, str(report)


@pytest.mark.parametrize("machines", [2, HEADS])
def test_a_split_for_machines_is_not_known(machines: int) -> None:
    torch.manual_seed(0)
    report = check_attention(SplitForMachines(machines), style="causal")
    assert report.state == "not known", str(report)
    assert report.unknown


class Norms(Plain):
    """Norms of queries and keys that it forgets to use."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm, self.k_norm = (nn.LayerNorm(D_MODEL // HEADS) for _ in range(2))


def test_a_parameter_that_does_nothing_is_named() -> None:
    torch.manual_seed(0)
    report = check_attention(Norms(), style="causal")
    assert report.state == "not known"
    assert report.unknown[0].startswith("q_norm.weight, q_norm.bias, k_norm.weight")


def test_a_parameter_has_the_name_that_it_has_in_the_users_code() -> None:
    torch.manual_seed(0)
    layer = Norms()
    named: dict[str, Callable[..., Any]] = {
        "q_norm.weight": layer.forward,
        "layer.q_norm.weight": lambda x: layer(x),
    }
    for name, attention in named.items():
        report = check_attention(attention, style="causal")
        assert report.unknown[0].startswith(f"{name}, "), report.unknown


def test_a_cut_gradient_is_told_from_no_effect() -> None:
    def cut(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -1e4)
        return scores.softmax(dim=-1).detach() @ v

    report = check_attention(cut)
    assert report.doubts == ("queries, keys: no gradient reaches them",)
    assert "without effect" not in str(report)


class Counting(Plain):
    """It keeps whole numbers among its parameters."""

    def __init__(self) -> None:
        super().__init__()
        counts = torch.zeros(3, dtype=torch.long)
        self.counts = nn.Parameter(counts, requires_grad=False)


def test_whole_numbers_among_the_parameters_are_let_be() -> None:
    assert check_attention(Counting(), style="causal").passed


class Laid(nn.Module):
    """One projection, whose rows are laid out in some order of kinds, heads, width."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.num_heads, self.order = HEADS, order
        self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.proj = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        sizes = {"k": 3, "h": HEADS, "d": D_MODEL // HEADS}
        rows = self.qkv(x).unflatten(-1, [sizes[axis] for axis in self.order])
        axes = [2 + self.order.index(axis) for axis in "khd"]
        moved = rows.permute(axes[0], 0, axes[1], 1, axes[2])
        return self.proj(attend(*moved))


@pytest.mark.parametrize("order", ["khd", "hkd", "hdk", "dkh", "kdh", "dhk"])
def test_rows_of_one_projection_may_have_any_order(order: str) -> None:
    torch.manual_seed(0)
    assert check_attention(Laid(order), style="causal").passed


class Shared(nn.Module):
    """All heads share three small projections."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.query, self.key, self.value = (
            nn.Linear(D_MODEL // HEADS, D_MODEL // HEADS) for _ in range(3)
        )
        self.fc = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        x = heads_of(x)
        return self.fc(attend(self.query(x), self.key(x), self.value(x)))


class Tensordot(nn.Module):
    """A projection of its own kind, to heads or from them."""

    def __init__(self, *shape: int, axes: int) -> None:
        super().__init__()
        self.axes = axes
        self.weight = nn.Parameter(torch.randn(shape) / 5)
        self.bias = nn.Parameter(torch.randn(shape[axes:]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensordot(x, self.weight, dims=self.axes) + self.bias


class Tensordots(nn.Module):
    """Four projections of their own kind."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        width = D_MODEL // HEADS
        self.query, self.key, self.value = (
            Tensordot(D_MODEL, HEADS, width, axes=1) for _ in range(3)
        )
        self.out = Tensordot(HEADS, width, D_MODEL, axes=2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each(x).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        return self.out(attend(q, k, v).unflatten(-1, (HEADS, -1)))


class Uncounted(Plain):
    """It keeps the number of its heads to itself, adds its input, and norms the sum."""

    def __init__(self) -> None:
        super().__init__()
        del self.num_heads
        self.layer_norm = nn.LayerNorm(D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer_norm(x + super().forward(x))


class OfPacked(nn.Module):
    """Attention without weights to queries, keys and values in one tensor."""

    def forward(self, qkv: Tensor) -> Tensor:
        _, _, width = qkv.shape
        return attend(*map(heads_of, qkv.split(width // 3, dim=-1)))


class WithAChild(nn.Module):
    """It leaves attending to a child that takes only (B, T, 3 * D)."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.qkv, self.proj = (
            nn.Linear(D_MODEL, 3 * D_MODEL),
            nn.Linear(D_MODEL, D_MODEL),
        )
        self.attention = OfPacked()

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.attention(self.qkv(x)))


class LowRank(nn.Linear):
    """A linear layer with its weight transposed, and a low-rank change of it."""

    def __init__(self, d_in: int, d_out: int, rank: int = 2) -> None:
        super().__init__(d_in, d_out)
        self.weight.data = self.weight.data.mT.contiguous()
        self.down = nn.Parameter(torch.randn(rank, d_in) * d_in**-0.5)
        self.up = nn.Parameter(torch.randn(d_out, rank) * rank**-0.5)
        self.dropout = nn.Dropout(0.1)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)  # returns nothing, as in loralib

    def forward(self, x: Tensor) -> Tensor:
        change = self.dropout(x) @ self.down.mT @ self.up.mT
        return x @ self.weight + self.bias + change


class Adapted(WithAChild):
    """A layer for fine-tuning: its first projection is a changed one."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = LowRank(D_MODEL, 3 * D_MODEL)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)


@pytest.mark.parametrize("make", [Shared, Tensordots, Uncounted, WithAChild, Adapted])
def test_projections_of_other_kinds_are_found(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    report = check_attention(make(), style="causal")
    assert report.passed, str(report)


class Padded(Plain):
    """Causal or not by itself, it takes a mask of padding, and has a slip."""

    def __init__(self, slip: str, *, causal: bool, axes: int) -> None:
        super().__init__()
        self.slip, self.axes = slip, axes
        self.register_buffer("triangle", torch.ones(9, 9).tril() if causal else None)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        bias: Tensor | float = 0.0
        if attention_mask is not None and self.slip != "dropped":
            forbidden = attention_mask.bool() == (self.slip == "inverted")
            if self.axes == 2:
                forbidden = forbidden[:, None, None]
            bias = x.new_zeros(forbidden.shape).masked_fill(forbidden, -1e4)
        causal = self.triangle is not None
        return self.o_proj(attend(*self.heads(x), bias=bias, causal=causal))


@pytest.mark.parametrize("axes", [2, 4])
@pytest.mark.parametrize("style", ["causal", "both"])
@pytest.mark.parametrize(
    ("slip", "reason"),
    [("dropped", "no form of attention_mask"), ("inverted", "True means ignore")],
)
def test_a_mask_of_padding_is_asked_even_if_none_is_needed(
    style: str, axes: int, slip: str, reason: str
) -> None:
    torch.manual_seed(0)
    sizes = {"causal": style == "causal", "axes": axes}
    right = check_attention(Padded("", **sizes), style=style)
    assert right.passed, str(right)
    assert right.style == style
    wrong = check_attention(Padded(slip, **sizes), style=style)
    assert wrong.state == "not known"
    assert any(reason in each for each in wrong.unknown)


class Slipped(Plain):
    """Its own triangle ends too late, or is the other one; it may be given a mask."""

    def __init__(self, *, inverted: bool) -> None:
        super().__init__()
        self.inverted = inverted

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        ones = torch.ones(x.shape[1], x.shape[1]).bool()
        allowed = ones.triu() if self.inverted else ones.tril(1)
        if attention_mask is not None:
            allowed = allowed & attention_mask.bool()[:, None, None]
        bias = x.new_zeros(allowed.shape).masked_fill(~allowed, -1e4)
        return self.o_proj(attend(*self.heads(x), bias=bias, causal=False))


@pytest.mark.parametrize(
    ("inverted", "name"), [(False, "one-too-far"), (True, "inverted-mask")]
)
def test_a_slip_of_its_own_mask_is_seen_beside_one_that_is_given(
    inverted: bool, name: str
) -> None:
    torch.manual_seed(0)
    report = check_attention(Slipped(inverted=inverted))
    assert "leak" in report.failed
    assert name in [each.name for each in report.likely]


class CausalSlipped(Slipped):
    """By its name it is causal, and it is not."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        bias: Tensor | float = 0.0
        if attention_mask is not None:
            forbidden = ~attention_mask.bool()[:, None, None]
            bias = x.new_zeros(forbidden.shape).masked_fill(forbidden, -1e4)
        return self.o_proj(attend(*self.heads(x), bias=bias, causal=False))


def test_what_should_be_causal_is_not_taken_for_attention_to_both_sides() -> None:
    torch.manual_seed(0)
    report = check_attention(CausalSlipped(inverted=False))
    assert "leak" in report.failed
    assert "no-causal-mask" in [each.name for each in report.likely]


class Rounded(Plain):
    """Its scale is a tensor in single precision, as many layers have it."""

    def __init__(self, kind: str, power: float = 0.5) -> None:
        super().__init__()
        self.kind, self.power = kind, power
        width = torch.tensor(D_MODEL / HEADS)
        self.scale = width**power
        self.register_buffer("factor", width**-power)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        if self.kind == "attribute":
            scores = q @ k.mT / self.scale
        elif self.kind == "buffer":
            scores = q @ k.mT * self.factor
        else:
            scores = q @ k.mT / torch.tensor(q.shape[-1]) ** self.power
        later = torch.ones(scores.shape[-2:]).triu(1).bool()
        weights = scores.masked_fill(later, -torch.inf).softmax(dim=-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("kind", ["attribute", "buffer", "made anew"])
def test_a_scale_in_single_precision_is_right(kind: str) -> None:
    torch.manual_seed(0)
    report = check_attention(Rounded(kind))
    assert report.passed, str(report)
    assert report.as_dict()["form"] == "a constant in single precision"
    wrong = check_attention(Rounded(kind, power=1.0))
    assert [each.name for each in wrong.likely] == ["scaled-twice"], str(wrong)


class OfPixels(nn.Module):
    """An image's pixels attend to each other, with a norm before and their sum after.

    The names of its weights are those of an early GPT.
    """

    class Matrix(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(D_MODEL, D_MODEL) / 5)
            self.b = nn.Parameter(torch.randn(D_MODEL))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.w + self.b

    def __init__(self, slip: str = "") -> None:
        super().__init__()
        self.slip, self.heads = slip, HEADS
        self.norm = nn.GroupNorm(4, D_MODEL)
        self.q, self.k, self.v, self.proj_out = (self.Matrix() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        inside = self.norm(x.mT).mT
        projections = self.q, self.k, self.k if self.slip == "values" else self.v
        q, k, v = (heads_of(each(inside)) for each in projections)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(
            dim=0 if self.slip == "axis" else -1
        )
        y = (weights @ v).transpose(1, 2).flatten(2)
        return x + (y if self.slip == "last" else self.proj_out(y))


@pytest.mark.parametrize(
    ("slip", "bug"),
    [
        ("last", "no-output-projection"),
        ("values", "keys-for-values"),
        ("axis", "softmax-over-batch"),
    ],
)
def test_a_bug_that_changes_single_tokens_is_named_within_norms(
    slip: str, bug: str
) -> None:
    torch.manual_seed(0)
    assert check_attention(OfPixels(), style="both").passed
    wrong = check_attention(OfPixels(slip), style="both")
    assert [each.name for each in wrong.likely] == [bug], str(wrong)


class Reading(Plain):
    """Cross-attention; ``sources`` says what keys and values come from."""

    def __init__(self, sources: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.sources = sources

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        keys, values = ((x, context)[each] for each in self.sources)
        parts = self.q_proj(x), self.k_proj(keys), self.v_proj(values)
        return self.o_proj(attend(*map(heads_of, parts), causal=False))


@pytest.mark.parametrize("sources", [(0, 1), (1, 0), (0, 0)])
def test_keys_and_values_have_to_come_from_the_context(sources: tuple[int, int]):
    assert check_attention(Reading()).passed
    found = check_attention(Reading(sources))
    assert found.state == "wrong"
    assert "cross: up to" in str(found)
    assert "smallest case, cross" in str(found)


class Filled(Plain):
    """Adds ``fill`` to the scores of padding, which is 0 in ``attention_mask``."""

    def __init__(self, fill: float, *, training: bool = True) -> None:
        super().__init__()
        self.fill, self.while_training = fill, training

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None:
            return self.o_proj(attend(*self.heads(x), causal=False))
        bias = (1 - attention_mask[:, None, None].to(x.dtype)) * self.fill
        if self.training and not self.while_training:
            bias = bias * 0
        return self.o_proj(attend(*self.heads(x), bias, causal=False))


@pytest.mark.parametrize("fill", [-2.0, -10.0])
def test_a_mask_that_is_multiplied_by_a_small_number_is_no_mask_to_add(fill: float):
    skipped = {"style": "both", "skip": ["dtypes", "empty rows", "huge scores"]}
    assert check_attention(Filled(-1e30), **skipped).passed
    assert not check_attention(Filled(fill), **skipped)


def test_padding_is_hidden_while_training_too():
    found = check_attention(Filled(-1e30, training=False), style="both")
    assert "modes" in found.failed
    assert "treat padding differently" in str(found)


def test_an_oracle_may_have_positions():
    layer = Distances()
    assert check_attention(layer, oracle=layer.double(), style="causal").passed


class Encoder(Plain):
    """Attention with what surrounds it, under names that contain a projection's."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_of_q_proj = nn.LayerNorm(D_MODEL)
        self.up = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_of_q_proj(x + super().forward(x))
        return x + self.up(x).relu()


def test_a_whole_layer_with_its_projections_is_not_called_wrong():
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    found = check_attention(Encoder(), projections=names, style="causal")
    assert found.state == "not known"
    named = "norm_of_q_proj.weight, norm_of_q_proj.bias, ... besides its projections"
    assert named in str(found)


class CountingFromTheLeft(Table):
    """It takes a mask of the tokens that are real."""

    def __init__(self, *, ignores: bool) -> None:
        super().__init__()
        self.ignores = ignores

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x + self.places[:, : x.shape[1]])
        bias: Tensor | float = 0.0
        if padding_mask is not None and not self.ignores:
            shown = torch.where(padding_mask, 0.0, -torch.inf).to(x)
            bias = shown[:, None, None]
        return self.o_proj(attend(q, k, v, bias, causal=False))


def test_padding_on_the_right_shifts_no_positions() -> None:
    torch.manual_seed(0)
    given = {"style": "both", "mask_means": "attend"}
    right = check_attention(CountingFromTheLeft(ignores=False), **given)
    assert "padding" not in right.failed, str(right)
    assert not {*right.failed} - {"empty rows"}, str(right)
    assert check_attention(CountingFromTheLeft(ignores=True), **given).state != "right"


class Opened(Plain):
    """The output has a factor that starts as zero, and the scores may have none."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.gamma, self.scale = nn.Parameter(torch.zeros(1)), scale

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        q = q * self.scale * q.shape[-1] ** 0.5
        return x + self.gamma * self.o_proj(attend(q, k, v))


def test_a_factor_of_the_output_is_not_taken_for_one_of_the_scores() -> None:
    torch.manual_seed(0)
    assert check_attention(Opened((D_MODEL // HEADS) ** -0.5), style="causal").passed
    assert check_attention(Opened(1.0), style="causal").state != "right"


class AroundIt(nn.Module):
    """Attention of one head with a norm before it and its features added."""

    def __init__(self, names: tuple[str, str, str], *, exchanged: bool) -> None:
        super().__init__()
        self.num_heads, self.exchanged, self.names = 1, exchanged, names
        self.norm = nn.LayerNorm(D_MODEL)
        for name in (*names, "out"):
            setattr(self, name, nn.Linear(D_MODEL, D_MODEL))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (getattr(self, name)(self.norm(x)) for name in self.names)
        k, v = (v, k) if self.exchanged else (k, v)
        return x + self.out((q @ k.mT * D_MODEL**-0.5).softmax(dim=-1) @ v)


@pytest.mark.parametrize("exchanged", [False, True])
@pytest.mark.parametrize("names", [("q", "k", "v"), ("query", "keys", "values")])
def test_what_names_say_is_not_guessed_again(
    names: tuple[str, str, str], exchanged: bool
) -> None:
    torch.manual_seed(0)
    report = check_attention(AroundIt(names, exchanged=exchanged), style="both")
    assert report.state == ("wrong" if exchanged else "right"), str(report)


class OfKeys(Plain):
    """A mask of keys is added to the scores, multiplied by a number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        shown = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        assert shown.shape == x.shape[:2]
        bias = (~shown[:, None, None]).to(x) * self.factor
        return self.o_proj(attend(*self.heads(x), bias, causal=False))


def test_a_mask_of_keys_that_hides_none_is_named() -> None:
    torch.manual_seed(0)
    report = check_attention(OfKeys(-1e9), style="ours")
    assert report.failed == [], str(report)
    scores = OfKeys(-5.0)
    with pytest.raises(TypeError, match="no mask that was tried"):  # it may be meant
        check_attention(scores, style="ours")
    scores.o_proj.forward = lambda heads: heads
    report = check_attention(scores, style="ours")
    assert [each.name for each in report.likely] == ["no-output-projection"], report


class Unused(Plain):
    """It takes a mask of keys, and does not use it."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        assert mask.shape == x.shape[:2]
        return self.o_proj(attend(*self.heads(x)))


def test_a_mask_that_is_not_used_is_not_called_a_bug() -> None:
    torch.manual_seed(0)
    with pytest.raises(TypeError, match="no mask that was tried"):
        check_attention(Unused(), style="ours")


class Cutting(Plain):
    """It cuts its mask of numbers to the tokens, on the first axes, and adds it."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + mask[: x.shape[1], : x.shape[1]]
        weights = scores.softmax(dim=-1).softmax(dim=-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


def test_a_bug_beside_a_mask_that_is_cut_is_named() -> None:
    torch.manual_seed(0)
    report = check_attention(Cutting())
    assert [each.name for each in report.likely] == ["unmasked-second-softmax"], report


class Rectified(Plain):
    """It adds its features and rectifies the sum, and need not scale its scores."""

    def __init__(self, *, scaled: bool = True, rectified: bool = True) -> None:
        super().__init__()
        self.scaled, self.rectified = scaled, rectified

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        y = self.o_proj(attend(q if self.scaled else 3.0 * q, k, v))
        return torch.relu(x + y) if self.rectified else y


def test_a_layer_that_does_more_with_one_token_is_not_called_wrong() -> None:
    torch.manual_seed(0)
    report = check_attention(Rectified(), style="causal")
    assert report.state == "not known", str(report)
    assert "what one token gets" in report.unknown[0]
    unscaled = Rectified(scaled=False, rectified=False)
    assert check_attention(unscaled, style="causal").failed == ["output", "gradient"]


class T5Attention(Plain):
    """It does not scale its scores, as T5 never does."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.o_proj(attend(q * q.shape[-1] ** 0.5, k, v))


def test_the_scale_of_t5_is_known_by_its_name() -> None:
    torch.manual_seed(0)
    report = check_attention(T5Attention(), style="causal")
    assert report.passed, str(report)
    assert report.form == "scores times 1"


class Switched(Plain):
    """A switch with a name of its own makes it causal."""

    def __init__(self, diagonal: int = 1) -> None:
        super().__init__()
        self.diagonal = diagonal

    def forward(self, x: Tensor, context: Tensor, causality: bool = False) -> Tensor:
        (q, _, _), (_, k, v) = self.heads(x), self.heads(context)
        later = torch.ones(x.shape[1], context.shape[1]).triu(self.diagonal).bool()
        bias = torch.zeros_like(later, dtype=x.dtype).masked_fill(later, -torch.inf)
        y = attend(q, k, v, bias if causality else 0.0, causal=False)
        return self.o_proj(y)


@pytest.mark.parametrize("style", [None, "causal"])
def test_a_switch_is_turned_on_whatever_its_name(style: str | None) -> None:
    torch.manual_seed(0)
    report = check_attention(Switched(), style=style)
    assert report.passed, str(report)
    assert report.style == "causal"
    report = check_attention(Switched(diagonal=2))
    assert [each.name for each in report.likely] == ["one-too-far"], report


class Promising(Plain):
    """It keeps ``causal=True``, and uses only its mask."""

    def __init__(self) -> None:
        super().__init__()
        self.causal = True

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
        return self.o_proj(y.transpose(1, 2).flatten(2))


def test_a_promise_to_be_causal_is_not_kept_by_the_mask_that_is_given() -> None:
    torch.manual_seed(0)
    report = check_attention(Promising())
    assert report.state == "not known", str(report)
    assert report.unknown == (
        "it has an attribute causal=True, and uses only the mask it is given",
    )
