"""Learned relative positions of every kind are measured, and bugs beside them named."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.checking import Report, check_attention
from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.forms import Terms
from tested_transformer.checking.measuring import (
    asked_for_terms,
    measured,
    other_parameters,
)
from tested_transformer.checking.subject import Subject

D_MODEL, HEADS, HEAD_DIM, LONGEST = 20, 5, 4, 11

pytestmark = pytest.mark.usefixtures("as_a_caller")


class Relative(nn.Module):
    """Attention with something for each distance, and with switches for bugs."""

    order = "qkv"
    fill = -torch.inf

    def __init__(self, *, causal: bool = True, shift: int = 0) -> None:
        super().__init__()
        self.num_heads, self.causal, self.shift = HEADS, causal, shift
        self.scale = HEAD_DIM**-0.5
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(D_MODEL, D_MODEL) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            getattr(self, f"{each}_proj")(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for each in self.order
        )
        places = torch.arange(x.shape[1])
        apart = places[:, None] - places + self.shift * (places == 2) + LONGEST
        scores = q @ k.mT * self.scale + self.added(q, k, apart)
        if self.causal:
            later = torch.ones(scores.shape[-2:]).triu(1).bool()
            scores = scores.masked_fill(later, self.fill)
        heads = self.values(scores.softmax(dim=-1), v, apart)
        return self.o_proj(heads.transpose(1, 2).flatten(2))

    def values(self, weights: Tensor, v: Tensor, apart: Tensor) -> Tensor:
        return weights @ v

    def added(self, q: Tensor, k: Tensor, apart: Tensor) -> Tensor:
        raise NotImplementedError


class Numbers(Relative):
    """A number for each distance and head, as in T5."""

    factor = 1.0

    def __init__(self, **switches: bool | int) -> None:
        super().__init__(**switches)
        self.table = nn.Embedding(3 * LONGEST, HEADS)

    def added(self, q: Tensor, k: Tensor, apart: Tensor) -> Tensor:
        return self.table(apart).permute(2, 0, 1) * self.factor


class LikeT5s(Relative):
    """The numbers have T5's name, so scores have no scale."""

    def __init__(self, **switches: bool | int) -> None:
        super().__init__(**switches)
        self.relative_attention_bias = nn.Embedding(3 * LONGEST, HEADS)
        self.scale = 1.0

    def added(self, q: Tensor, k: Tensor, apart: Tensor) -> Tensor:
        return self.relative_attention_bias(apart).permute(2, 0, 1)


class Vectors(Relative):
    """A vector for each distance that queries are multiplied by, and one for values."""

    factor = HEAD_DIM**-0.5

    def __init__(self, **switches: bool | int) -> None:
        super().__init__(**switches)
        self.of_keys, self.of_values = (
            nn.Parameter(torch.randn(3 * LONGEST, HEAD_DIM)) for _ in range(2)
        )

    def added(self, q: Tensor, k: Tensor, apart: Tensor) -> Tensor:
        return torch.einsum("bhtd,tsd->bhts", q, self.of_keys[apart]) * self.factor

    def values(self, weights: Tensor, v: Tensor, apart: Tensor) -> Tensor:
        added = torch.einsum("bhts,tsd->bhtd", weights, self.of_values[apart])
        return weights @ v + added


class Sines(Relative):
    """Projected sines and cosines, and two biases of queries, as in Transformer-XL."""

    def __init__(self, **switches: bool | int) -> None:
        super().__init__(**switches)
        self.r_proj = nn.Linear(D_MODEL, D_MODEL)
        self.u, self.v = (nn.Parameter(torch.randn(HEADS, HEAD_DIM)) for _ in range(2))

    def added(self, q: Tensor, k: Tensor, apart: Tensor) -> Tensor:
        rates = 1e4 ** -(torch.arange(0, D_MODEL, 2).to(q) / D_MODEL)
        angles = apart[..., None] * rates
        sines = self.r_proj(torch.cat([angles.sin(), angles.cos()], dim=-1))
        of_sines = torch.einsum(
            "bhtd,tshd->bhts", q + self.v[:, None], sines.unflatten(-1, (HEADS, -1))
        )
        of_keys = torch.einsum("hd,bhsd->bhs", self.u, k)[:, :, None]
        return (of_sines + of_keys) * self.scale


KINDS = [Numbers, Vectors, Sines]


def report_on(layer: Relative) -> Report:
    torch.manual_seed(3)
    return check_attention(layer, style="causal" if layer.causal else "both")


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_relative_positions_are_recognized(
    kind: Callable[..., Relative], causal: bool
) -> None:
    torch.manual_seed(0)
    report = report_on(kind(causal=causal))
    assert report.state == "right", str(report)
    assert report.form == "relative positions"


def test_scores_without_a_scale_are_right_beside_t5s_positions() -> None:
    torch.manual_seed(0)
    report = report_on(LikeT5s())
    assert report.state == "right", str(report)
    assert report.form == "relative positions, scores times 1"
    layer = LikeT5s()
    layer.scale = HEAD_DIM**-0.5  # a name alone is no reason
    assert report_on(layer).form == "relative positions"


@pytest.mark.parametrize("kind", [Numbers, Sines])
def test_a_bug_beside_relative_positions_is_named(
    kind: Callable[..., Relative],
) -> None:
    torch.manual_seed(0)
    layer = kind()
    layer.scale = 1.0
    report = report_on(layer)
    assert [each.name for each in report.likely] == ["no-scale"], str(report)


@pytest.mark.parametrize("kind", [Numbers, Vectors])
def test_exchanged_projections_beside_relative_positions_are_named(
    kind: Callable[..., Relative],
) -> None:
    torch.manual_seed(0)
    layer = kind()
    layer.order = "qvk"
    report = report_on(layer)
    assert [each.name for each in report.likely] == ["keys-and-values-exchanged"]


@pytest.mark.parametrize("kind", KINDS)
def test_positions_that_depend_on_more_than_the_distance_are_not_right(
    kind: Callable[..., Relative],
) -> None:
    torch.manual_seed(0)
    report = report_on(kind(shift=1))
    assert report.state == "not known", str(report)


@pytest.mark.parametrize("kind", [Numbers, Vectors])
def test_positions_of_another_size_than_their_parameters_are_not_right(
    kind: Callable[..., Relative],
) -> None:
    torch.manual_seed(0)
    layer = kind()
    layer.factor = 0.7
    assert report_on(layer).state == "not known"


def test_a_lost_bias_of_queries_is_not_taken_for_a_term_of_keys() -> None:
    class Lost(Numbers):
        def forward(self, x: Tensor) -> Tensor:
            bias = self.q_proj.bias
            self.q_proj.bias = None
            output = super().forward(x)
            self.q_proj.bias = bias
            return output

    torch.manual_seed(0)
    assert report_on(Lost()).state != "right"


def measure(subject: Subject) -> tuple[Terms, bool] | None:
    oracle = subject.oracles(beside=True)[0]
    assert subject.module is not None
    learned = other_parameters([*subject.module.parameters()], oracle)
    asked = asked_for_terms(subject, oracle, learned)
    assert asked is not None
    return measured(subject, oracle, asked)


@pytest.mark.parametrize("fill", [-torch.inf, torch.nan])
def test_no_values_are_fitted_to_outputs_that_are_not_numbers(fill: float) -> None:
    torch.manual_seed(0)
    layer = Numbers()
    layer.fill = fill
    subject = make_subject(layer.double(), style="causal")
    found = measure(subject)
    assert found is not None
    terms, whole = found
    assert terms.of_values is None
    assert whole == (fill == -torch.inf)


def test_nothing_is_fitted_to_scores_that_are_not_numbers() -> None:
    torch.manual_seed(0)
    layer = Numbers()
    layer.factor = torch.nan
    subject = make_subject(layer.double(), style="causal")
    assert measure(subject) is None
