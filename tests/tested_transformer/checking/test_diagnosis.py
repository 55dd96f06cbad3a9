"""The bug that is likely comes first, and the commonest is seen without an oracle."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking import check_attention
from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.diagnosis import alike, is_inverted, norms
from tested_transformer.checking.forms import Form
from tested_transformer.multihead import MultiHeadAttention

D_MODEL, HEADS = 20, 5

pytestmark = pytest.mark.usefixtures("as_a_caller")


class Masked(nn.Module):
    """A layer with a triangle of its own, and a gate that no oracle knows."""

    def __init__(
        self, *, forbidden: Tensor, fill: float = -torch.inf, gated: bool = False
    ) -> None:
        super().__init__()
        self.num_heads, self.fill, self.gated = HEADS, fill, gated
        self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.proj = nn.Linear(D_MODEL, D_MODEL)
        self.gate = nn.Linear(D_MODEL, D_MODEL) if gated else None
        self.register_buffer("forbidden", forbidden.bool())

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.mT / k.shape[-1] ** 0.5
        forbidden = self.forbidden[: x.shape[1], : x.shape[1]]
        weights = scores.masked_fill(forbidden, self.fill).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2).flatten(2)
        return self.proj(y if self.gate is None else y * self.gate(x).tanh())


ONES = torch.ones(64, 64)
INVERTED: dict[str, dict[str, Any]] = {
    "the triangle is hidden": {"forbidden": ONES.tril()},
    "and the diagonal is seen": {"forbidden": ONES.tril(-1)},
    "with a finite fill": {"forbidden": ONES.tril(), "fill": -1e9},
}
FIRST = next(iter(INVERTED))


@pytest.mark.parametrize(
    ("name", "gated"), [(FIRST, True), *((name, False) for name in INVERTED)]
)
def test_an_inverted_mask_is_said_in_the_first_line(name: str, gated: bool) -> None:
    report = check_attention(Masked(**INVERTED[name], gated=gated))
    first, second, *_ = str(report).splitlines()
    assert first == (
        "Masked is WRONG: the mask is inverted: a query attends to exactly what it "
        "should ignore."
    )
    assert second == "  as in chapters/the-bug-museum/#inverted-mask"


@pytest.mark.parametrize(
    "forbidden",
    [ONES.triu(1), ONES.triu(2), ONES.triu(0), ONES - ONES, 1 - torch.eye(64)],
    ids=["right", "one too far", "without itself", "no mask", "itself alone"],
)
def test_other_masks_are_not_inverted(forbidden: Tensor) -> None:
    layer = Masked(forbidden=forbidden, gated=True)
    assert not is_inverted(make_subject(layer).without_dropout())


def test_a_layer_that_keeps_a_tensor_is_compared_with_known_bugs() -> None:
    subject = make_subject(Masked(forbidden=ONES.triu(2), fill=-1e9))
    layer = subject.oracles()[0]
    layer.take(Form(fill=-1e9))
    layer.features = layer.q_proj(torch.ones(1, 1, subject.width, dtype=torch.float64))
    (found,) = alike(replace(subject, guessed=(layer,))).exhibits
    assert found.name == "one-too-far"


class Padded(MultiHeadAttention):
    """Causal by its flag, with a mask of padding that may be inverted."""

    def __init__(self, *, inverted: bool) -> None:
        super().__init__(d_model=D_MODEL, num_heads=HEADS)
        self.inverted = inverted

    def forward(
        self, x: Tensor, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        mask = mask if mask is None or not self.inverted else ~mask
        return super().forward(x, mask=mask, causal=causal)


@pytest.mark.parametrize("inverted", [False, True])
def test_a_mask_of_padding_may_be_inverted_alone(inverted: bool) -> None:
    layer = Padded(inverted=inverted)
    assert is_inverted(make_subject(layer)) == inverted
    report = check_attention(layer)
    assert report.passed != inverted
    assert ("the mask is inverted" in str(report).splitlines()[0]) == inverted


class AddsItsMask(Masked):
    """Adds a mask in single precision, so that half precision meets two dtypes."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        forbidden = self.forbidden[: x.shape[1], : x.shape[1]]
        mask = torch.zeros(forbidden.shape).masked_fill(forbidden, -torch.inf)
        scores = q @ k.mT / k.shape[-1] ** 0.5 + mask
        return self.proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))


def test_a_bug_is_named_only_if_it_raises_the_same_error() -> None:
    first = str(check_attention(AddsItsMask(forbidden=ONES.triu(1)))).splitlines()[0]
    assert first.startswith("AddsItsMask is WRONG: dtypes: torch.float16: "), first
    filled = Masked(forbidden=ONES.triu(1), fill=-1e9)
    first = str(check_attention(filled)).splitlines()[0]
    assert first.startswith("Masked is WRONG: forbidden scores are filled with -1e9")


def test_without_a_likely_bug_the_first_line_is_what_failed_first() -> None:
    def half_the_scale(q, k, v, mask=None):
        allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
        mask = allowed if mask is None else mask
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.7)

    report = check_attention(half_the_scale)
    assert str(report).startswith("half_the_scale is WRONG: output: causal: up to "), (
        str(report)
    )


def test_a_row_without_any_key_is_named_and_not_taken_for_a_leak() -> None:
    report = check_attention(Masked(forbidden=ONES.triu()))
    assert [each.name for each in report.likely] == ["without-itself"]
    failed = [each for each in report.verdicts if each.passed is False]
    assert {"leak", "modes"} <= {each.check for each in failed}
    assert {each.reason for each in failed} == {
        "NaN in row 0, as from a softmax over no key"
    }


def test_nan_everywhere_is_said_in_the_first_line() -> None:
    class Divides(Masked):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * (x - x) / (x - x)

    lines = str(check_attention(Divides(forbidden=ONES.triu(1)))).splitlines()
    assert lines[0] == "Divides is WRONG: its output is NaN"
    assert not any("Equal tokens" in each for each in lines)


class Normed(nn.Module):
    """Does something to queries and keys, and has no parameters for it."""

    def __init__(
        self, norm: Callable[[Tensor], Tensor], *, whole: bool = False, values: int = 2
    ) -> None:
        super().__init__()
        self.n_head, self.norm, self.whole, self.values = HEADS, norm, whole, values
        self.c_q, self.c_k, self.c_v, self.c_proj = (
            nn.Linear(D_MODEL, D_MODEL) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.c_q(x), self.c_k(x), self.c_v(x)]
        if self.whole:
            parts[:2] = map(self.norm, parts[:2])
        parts = [each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in parts]
        if not self.whole:
            parts[:2] = map(self.norm, parts[:2])
        q, k, v = parts[0], parts[1], parts[self.values]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "by the square": lambda x: F.rms_norm(x, x.shape[-1:]),
    "and a factor": lambda x: 1.2 * F.rms_norm(x, x.shape[-1:]),
    "with an epsilon": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6),
    "by the deviation": lambda x: F.layer_norm(x, x.shape[-1:]),
    "to length 1": lambda x: F.normalize(x, dim=-1),
    "and a factor of 10": lambda x: 10**0.5 * F.normalize(x, dim=-1),
}

# With these the scores are divided by the root of the width, as ever.
USUAL = ("by the square", "with an epsilon", "by the deviation")


@pytest.mark.parametrize("whole", [False, True], ids=["by head", "whole"])
@pytest.mark.parametrize("name", NORMS)
def test_norms_without_weights_are_not_called_wrong(name: str, whole: bool) -> None:
    report = check_attention(Normed(NORMS[name], whole=whole))
    if name in USUAL:
        assert report, str(report)
        assert report.form == "normalized queries and keys"
        return
    assert report.state == "not known", str(report)
    assert report.unknown == (
        "not compared with attention: its queries and keys seem normalized: if that is "
        "meant, give oracle=",
    )


@pytest.mark.parametrize(
    "layer",
    [
        Normed(lambda x: 1.3 * x),
        Normed(lambda x: 0 * x),
        Normed(lambda x: x.abs()),
        Normed(lambda x: x / x.abs().sum(dim=-1, keepdim=True)),
        Normed(NORMS["by the square"], values=1),
    ],
    ids=["longer", "all alike", "no signs", "another length", "keys for values"],
)
def test_norms_excuse_nothing_else(layer: nn.Module) -> None:
    assert not norms(make_subject(layer))
    assert check_attention(layer).state == "wrong"


class Together(nn.Module):
    """Heads and batch are one axis, as ``bmm`` wants them."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.num_heads, self.axis = HEADS, axis
        self.qkv, self.proj = nn.Linear(D_MODEL, 3 * D_MODEL), nn.Linear(20, 20)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (HEADS, -1)).transpose(1, 2).flatten(0, 1)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        weights = (q @ k.mT / k.shape[-1] ** 0.5).softmax(dim=self.axis)
        y = torch.bmm(weights, v).unflatten(0, (-1, HEADS))
        return self.proj(y.transpose(1, 2).flatten(2))


def test_a_softmax_over_batch_and_heads_in_one_is_named() -> None:
    torch.manual_seed(0)
    assert check_attention(Together(axis=-1), style="both").passed
    wrong = check_attention(Together(axis=0), style="both")
    assert [each.name for each in wrong.likely] == ["softmax-over-batch-and-heads"]


class Lowered(Together):
    """The lowest number there is, added to a score, swallows it."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).to(x)
        scores = q @ k.mT / k.shape[-1] ** 0.5 + later * torch.finfo(x.dtype).min
        y = scores.softmax(dim=self.axis) @ v
        return self.proj(y.transpose(1, 2).flatten(2))


def test_a_softmax_over_heads_is_named_with_the_lowest_number_added() -> None:
    torch.manual_seed(0)
    assert check_attention(Lowered(axis=-1), style="causal").passed
    wrong = check_attention(Lowered(axis=1), style="causal")
    assert [each.name for each in wrong.likely] == ["softmax-over-heads"]


class Dropping(nn.Module):
    """Each head drops its own weights, or all their outputs, while evaluating, too."""

    def __init__(
        self, dropped: str, *, fill: float = -torch.inf, room: int = 99
    ) -> None:
        super().__init__()
        self.num_heads, self.dropped, self.fill = HEADS, dropped, fill
        self.room = room
        self.qkv, self.proj = nn.Linear(D_MODEL, 3 * D_MODEL), nn.Linear(20, 20)
        self.weights_dropout, self.output_dropout = nn.Dropout(0.1), nn.Dropout(0.2)

    def drop(self, x: Tensor, what: str) -> Tensor:
        module = getattr(self, f"{what}_dropout")
        return F.dropout(x, module.p) if self.dropped == what else module(x)

    def forward(self, x: Tensor) -> Tensor:
        assert len(x) <= self.room
        outputs: list[Tensor] = []
        heads = [each.chunk(HEADS, dim=-1) for each in self.qkv(x).chunk(3, dim=-1)]
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        for q, k, v in zip(*heads, strict=True):
            scores = (q @ k.mT / k.shape[-1] ** 0.5).masked_fill(later, self.fill)
            outputs.append(self.drop(scores.softmax(dim=-1), "weights") @ v)
        return self.drop(self.proj(torch.cat(outputs, dim=-1)), "output")


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("fill", [-torch.inf, -1e4])
def test_weights_that_are_dropped_head_by_head_are_named(
    fill: float, residual: bool
) -> None:
    class Layer(Dropping):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + x if residual else super().forward(x)

    torch.manual_seed(0)
    wrong = check_attention(Layer("weights", fill=fill), style="causal")
    assert [each.name for each in wrong.likely] == ["dropout-while-evaluating"]


def test_a_layer_with_room_for_few_sequences_is_not_refused() -> None:
    report = check_attention(Dropping("weights", room=8), style="causal")
    assert report.failed[-1] == "modes", str(report)


@pytest.mark.parametrize("fill", [-torch.inf, -1e4])
def test_a_dropped_output_is_not_named_after_weights_or_fills(fill: float) -> None:
    torch.manual_seed(0)
    wrong = check_attention(Dropping("output", fill=fill), style="causal")
    assert "modes" in wrong.failed
    assert not wrong.likely, str(wrong)


class SplitAfterCopies(nn.Module):
    """Copies shared keys and values first, and then puts heads before tokens."""

    num_heads, num_kv_heads = 4, 2

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(24, 24), nn.Linear(24, 24)
        self.k_proj, self.v_proj = nn.Linear(24, 12), nn.Linear(24, 12)
        self.wrong = wrong

    def forward(self, x: Tensor) -> Tensor:
        heads = {
            name: getattr(self, f"{name}_proj")(x).unflatten(-1, (-1, 6))
            for name in "qkv"
        }
        for name, each in heads.items():
            copies = each.repeat_interleave(1 if name == "q" else 2, dim=2)
            shape = copies.transpose(1, 2).shape
            wrong = name == self.wrong
            heads[name] = copies.reshape(shape) if wrong else copies.transpose(1, 2)
        y = F.scaled_dot_product_attention(*heads.values(), is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ("q", "queries-split-without-transpose"),
        ("k", "copied-keys-split-without-transpose"),
        ("v", "copied-values-split-without-transpose"),
    ],
)
def test_heads_that_are_split_wrongly_after_they_were_copied_are_named(
    wrong: str, name: str
) -> None:
    report = check_attention(SplitAfterCopies(wrong), style="causal")
    assert [each.name for each in report.likely] == [name], str(report)
