"""A report names the arguments that no check has tried."""

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from math import inf

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking import check_attention
from tested_transformer.checking.watching import Watch, checking

pytestmark = pytest.mark.usefixtures("as_a_caller")


class Packed(nn.Module):
    """A causal layer with one matrix for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 5
        self.qkv, self.out = nn.Linear(20, 60), nn.Linear(20, 20)

    def heads(self, x: Tensor) -> Sequence[Tensor]:
        return self.qkv(x).unflatten(-1, (3, 5, 4)).permute(2, 0, 3, 1, 4).unbind()

    def mixed(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).flatten(2))


class WithPadding(Packed):
    """It forgets all masks as soon as it is told what is padding."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        q, k, v = self.heads(x)
        return self.mixed(q, k, v, mask if real is None else mask | True)


class WithPast(Packed):
    """It exchanges the keys and the values of the past."""

    def forward(
        self,
        x: Tensor,
        layer_past: tuple[Tensor, Tensor] | None = None,
        use_cache: bool = False,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = self.heads(x)
        if layer_past is not None:
            k = torch.cat([layer_past[1], k], dim=2)
            v = torch.cat([layer_past[0], v], dim=2)
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        y = self.mixed(q, k, v, mask.tril(k.shape[2] - q.shape[2]))
        return (y, (k, v)) if use_cache else y


class FromAPosition(Packed):
    """It keeps its cache itself, and loses it after the first piece."""

    def forward(self, x: Tensor, start_pos: int) -> Tensor:
        q, k, v = self.heads(x)
        return self.mixed(q, k, v, torch.ones(len(q[0, 0]), len(k[0, 0])).tril() > 0)


def in_pieces(layer: WithPast, x: Tensor, sizes: Sequence[int]) -> Tensor:
    past, outputs = None, []
    for piece in x.split([*sizes], dim=1):
        output, past = layer(piece, layer_past=past, use_cache=True)
        outputs.append(output)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize(
    ("layer", "untried", "said"),
    [
        (WithPadding(), ("real",), "; its argument real was not tried."),
        (
            WithPast(),
            ("layer_past", "use_cache"),
            "; its arguments layer_past, use_cache were not tried.",
        ),
        (FromAPosition(), ("start_pos",), "; its argument start_pos was not tried."),
    ],
)
def test_what_was_not_tried_stands_in_the_first_line(
    layer: nn.Module, untried: tuple[str, ...], said: str
) -> None:
    report = check_attention(layer)
    assert report.state == "right"
    assert report.untried == untried
    assert report.as_dict()["untried"] == [*untried]
    first = str(report).partition("\n")[0]
    assert first == f"{type(layer).__name__} is right{said}"


def test_what_was_tried_does_not() -> None:
    report = check_attention(WithPast(), pieces=in_pieces)
    assert report.untried == ()
    assert report.failed == ["cache"]


def test_masks_flags_and_contexts_are_tried() -> None:
    report = check_attention(nn.MultiheadAttention(20, 5), skip=["empty rows"])
    assert report.passed
    assert report.untried == ("need_weights", "average_attn_weights", "is_causal")


def with_a_flag(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, fast: bool = False
) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Called:
    """A function of heads in an object, which no module is."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past: int = 0
    ) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def test_arguments_of_a_function_are_noted_too() -> None:
    assert check_attention(with_a_flag).untried == ("fast",)
    assert check_attention(partial(with_a_flag)).untried == ("fast",)
    assert check_attention(Called()).untried == ("past",)
    report = check_attention(F.scaled_dot_product_attention)
    assert report.untried == ("dropout_p", "scale", "enable_gqa")


def test_arguments_of_an_adapter_are_noted_unless_it_sets_them() -> None:
    layer = WithPast()

    def adapter(x: Tensor, real: Tensor | None = None) -> Tensor:
        return layer(x)

    assert check_attention(adapter).untried == ("real",)
    assert check_attention(layer.forward).untried == ("layer_past", "use_cache")
    assert check_attention(partial(layer)).untried == ("layer_past", "use_cache")
    report = check_attention(partial(layer, use_cache=False))
    assert (report.name, report.untried) == ("partial", ("layer_past",))

    def bound(x: Tensor, inner: nn.Module = layer) -> Tensor:
        return layer(x)

    assert check_attention(bound).untried == ()


class FromPlaces(Packed):
    """It is wrong if its positions do not start at 0."""

    def forward(self, x: Tensor, position_ids: Tensor) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        q, k, v = self.heads(x)
        return self.mixed(q, k, v, mask) + position_ids[..., :1].sum()


class InAWindow(FromPlaces):
    """It ignores its window, of which only "everything" and ``None`` are tried."""

    def forward(self, x: Tensor, window_size: tuple[int, int] | None) -> Tensor:
        return super().forward(x, torch.arange(x.shape[1]))


TWO, NAMES, SIZES = torch.ones(2), ["a"], {"a": [1]}


class WithMore(FromPlaces):
    """It has defaults that cannot be hashed or compared, and takes what comes."""

    def forward(
        self,
        x: Tensor,
        scale: Tensor = TWO,
        names: list[str] = NAMES,
        *others: Tensor,
        sizes: dict[str, list[int]] = SIZES,
        **options: Tensor,
    ) -> Tensor:
        y = super().forward(x, torch.arange(x.shape[1]))
        return y + 1 if others or options else y


class WithItsCache(Packed):
    """It has arguments like those of this library, and a cache of its own."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: dict[str, Tensor] | None = None,
    ) -> Tensor:
        may = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        may = may.tril() if causal else may
        q, k, v = self.heads(x)
        scores = (q @ k.mT / 2).masked_fill(
            ~(may if mask is None else may & mask), -inf
        )
        y = scores.softmax(dim=-1).nan_to_num() @ v
        return self.out(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    ("layer", "untried"),
    [
        (FromPlaces(), ("position_ids",)),
        (InAWindow(), ("window_size",)),
        (WithMore(), ("scale", "names", "*others", "sizes", "**options")),
        (WithItsCache(), ("cache",)),
    ],
)
def test_what_is_the_same_in_every_check_is_not_tried(
    layer: nn.Module, untried: tuple[str, ...]
) -> None:
    report = check_attention(layer)
    assert (report.state, report.untried) == ("right", untried)


def checked(
    parameter: inspect.Parameter, *values: object, counts: bool = True
) -> tuple[str, ...]:
    """Return what was not tried of an argument that had these values."""
    watch = Watch({parameter.name: parameter}, {})
    with checking() if counts else nullcontext():
        for each in values:
            watch.note((each,), {})
    return watch.untried


def test_values_are_told_apart_by_what_they_are() -> None:
    given = inspect.Parameter("given", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    zeros, places = torch.zeros(2, 3), torch.arange(3)
    for one_value in (
        (zeros, torch.zeros(4)),
        (places, torch.arange(5), torch.arange(4)[None], torch.arange(1)),
        ([1, {"a": (2, None)}], [1, {"a": (2, None)}]),
        ([], []),
        ({"a": zeros}, {"a": zeros + 0}),
    ):
        assert checked(given, *one_value) == ("given",)
    for several in (
        (zeros, zeros + 1),
        (places, places + 1),
        ([1], [2]),
        ([], [zeros]),
        ({"a": zeros}, {"a": zeros + 1}),
        (torch.randn(3),),
        (0, False),
    ):
        assert checked(given, *several) == ()
        assert checked(given, *several, counts=False) == ("given",)


def test_a_decorator_may_take_more_than_it_says() -> None:
    watch = Watch(inspect.signature(with_a_flag).parameters, {})
    with checking():
        watch.note((), {"verbose": True})
    assert "fast" in watch.untried


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_arguments_of_a_compiled_layer_are_noted() -> None:
    compiled = torch.compile(WithPadding(), backend="eager")
    assert check_attention(compiled).untried == ("real",)


def test_the_layer_of_the_caller_keeps_no_hook() -> None:
    layer = WithPadding()
    check_attention(layer)
    assert not layer._forward_hooks


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(20, 20), nn.Linear(20, 20)
        self.v_proj, self.o_proj = nn.Linear(20, 20), nn.Linear(20, 20)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        heads = [each.unflatten(-1, (5, 4)).transpose(1, 2) for each in (q, k, v)]
        y = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_scripted_layer_takes_no_hooks_and_is_checked_all_the_same() -> None:
    report = check_attention(torch.jit.script(Scripted()), num_heads=5, d_model=20)
    assert (report.failed, report.untried) == ([], ())
