"""Projections without a name that is known are found by what they do."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking import check_attention

D_MODEL, HEADS = 20, 5

pytestmark = pytest.mark.usefixtures("as_a_caller")


def split(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    return y.transpose(1, 2).flatten(2)


class Named(nn.Module):
    """Four projections with names of nobody, in any order."""

    def __init__(
        self, order: str = "qkvo", *, called: str = "weights_of_{}", **options: Any
    ) -> None:
        super().__init__()
        plain = dict(zip("qkvo", ("first", "second", "third", "fourth"), strict=True))
        self.names = {
            each: plain[each] if called == "{}" else called.format(each)
            for each in order
        }
        for name in self.names.values():
            setattr(self, name, nn.Linear(D_MODEL, D_MODEL))
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split(getattr(self, self.names[each])(x)) for each in "qkv")
        y = attend(q, k, v, **self.options)
        return getattr(self, self.names["o"])(y) if "o" in self.names else y


class Stacked(nn.Module):
    """One projection for all, cut in an order, by kind or by head."""

    def __init__(self, order: tuple[int, ...], *, by_head: bool, last: bool = True):
        super().__init__()
        self.all_of_it = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.behind = nn.Linear(D_MODEL, D_MODEL) if last else nn.Identity()
        self.order, self.by_head = order, by_head

    def forward(self, x: Tensor) -> Tensor:
        if self.by_head:
            parts = (
                self.all_of_it(x).unflatten(-1, (HEADS, 3, -1)).permute(3, 0, 2, 1, 4)
            )
        else:
            parts = torch.stack([split(x) for x in self.all_of_it(x).chunk(3, dim=-1)])
        q, k, v = (parts[each] for each in self.order)
        return self.behind(attend(q, k, v))


class OfHeads(nn.Module):
    """A list of projections for each kind, one for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.asking, self.offering, self.giving = (
            nn.ModuleList(nn.Linear(D_MODEL, 4) for _ in range(HEADS)) for _ in range(3)
        )
        self.mixing = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            torch.stack([head(x) for head in kind], dim=1)
            for kind in (self.asking, self.offering, self.giving)
        )
        return self.mixing(attend(q, k, v))


class Einsum(nn.Module):
    """Parameters of three axes: heads are one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.ask, self.offer, self.give = (
            nn.Parameter(torch.randn(HEADS, D_MODEL, 4) / 4) for _ in range(3)
        )
        self.mix = nn.Parameter(torch.randn(HEADS, 4, D_MODEL) / 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            torch.einsum("btd,hdk->bhtk", x, each)
            for each in (self.ask, self.offer, self.give)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.einsum("bhtk,hkd->btd", y, self.mix)


class Shared(nn.Module):
    """Grouped heads, keys and values in one projection."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(D_MODEL, D_MODEL), nn.Linear(D_MODEL, 8)
        self.c = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        v, k = (
            each[:, None].expand(-1, HEADS, -1, -1) for each in self.b(x).chunk(2, -1)
        )
        return self.c(attend(split(self.a(x)), k, v))


FOUND: dict[str, Callable[[], nn.Module]] = {
    "in order": Named,
    "in another order": lambda: Named("ovkq"),
    "without a last one": lambda: Named("kqv"),
    "a list for each kind": OfHeads,
    "three axes": Einsum,
    "grouped": Shared,
    "stacked, no last one": lambda: Stacked((0, 1, 2), by_head=False, last=False),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_right_is_found_and_passes(name: str) -> None:
    report = check_attention(FOUND[name](), d_model=D_MODEL)
    assert report.passed, str(report)


# Two orders that are not their own inverse on every change, and the others at night.
USUAL = (1, 2, 0), (2, 0, 1)
ORDERS = [
    pytest.param(each, marks=[] if each in USUAL else pytest.mark.nightly)
    for each in permutations(range(3))
]


@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_one_projection_may_have_any_order(
    order: tuple[int, int, int], by_head: bool
) -> None:
    report = check_attention(Stacked(order, by_head=by_head), d_model=D_MODEL)
    assert report.passed, str(report)


def test_a_known_bug_is_found_with_them() -> None:
    report = check_attention(Named(scale=1.0), num_heads=HEADS)
    assert report.failed == ["output", "gradient"]
    assert [each.name for each in report.likely] == ["no-scale"]


def test_a_known_bug_is_found_with_them_between_a_norm_and_a_residual() -> None:
    class Block(Named):
        def __init__(self, **options: Any) -> None:
            super().__init__(called="{}", **options)
            self.norm = nn.LayerNorm(D_MODEL)

        def forward(self, x: Tensor) -> Tensor:
            return x + super().forward(self.norm(x))

    assert check_attention(Block(), num_heads=HEADS).passed
    report = check_attention(Block(scale=1.0), num_heads=HEADS)
    assert [each.name for each in report.likely] == ["no-scale"], str(report)


@pytest.mark.nightly
@pytest.mark.parametrize("by_head", [False, True])
def test_keys_that_serve_as_values_are_not_taken_for_another_order(
    by_head: bool,
) -> None:
    report = check_attention(Stacked((0, 1, 1), by_head=by_head))
    assert report.likely[0].name == "keys-for-values", str(report)


@pytest.mark.nightly
def test_a_guess_that_explains_nothing_accuses_nobody() -> None:
    report = check_attention(Named(scale=0.7, called="{}"), num_heads=HEADS)
    assert report.state == "not known"
    assert "give projections= or oracle=" in report.unknown[0]
    names = ["first", "second", "third", "fourth"]
    said = check_attention(
        Named(scale=0.7, called="{}"), num_heads=HEADS, projections=names
    )
    assert said.failed == ["output", "gradient"]
    assert said.likely == ()
    # With a letter in their names they are told without.
    told = check_attention(Named(scale=0.7), num_heads=HEADS)
    assert told.failed == ["output", "gradient"]
    assert check_attention(Named(), num_heads=HEADS).passed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"projections": ["all", "behind"]}, "projections='all' is not a projection"),
        ({"projections": ["behind"]}, r"do not fit together with 5 heads"),
        ({"projections": ["all_of_it"], "num_heads": None}, "give num_heads"),
    ],
)
def test_names_that_say_nothing_are_refused(options: dict, message: str) -> None:
    layer = Stacked((0, 1, 2), by_head=False)
    with pytest.raises(ValueError, match=message):
        check_attention(layer, **{"num_heads": HEADS} | options)


def test_a_stack_can_be_named_too() -> None:
    names = ["all_of_it", "behind"]
    for by_head in (False, True):
        layer = Stacked((0, 1, 2), by_head=by_head)
        assert check_attention(layer, num_heads=HEADS, projections=names).passed
        wrong = check_attention(
            Stacked((0, 2, 1), by_head=by_head), num_heads=HEADS, projections=names
        )
        assert wrong.failed == ["output", "gradient"]
