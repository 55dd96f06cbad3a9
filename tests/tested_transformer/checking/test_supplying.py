"""Layers that want more than features, or want them laid out in another way."""

from collections.abc import Callable
from types import SimpleNamespace
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


class Layer(nn.Module):
    """Causal attention with four projections, called in ways of its own."""

    is_causal = True

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.num_heads, self.scale = HEADS, scale
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(D_MODEL, D_MODEL) for _ in range(4)
        )

    def attend(self, x: Tensor, read: Tensor | None = None, **options: Any) -> Tensor:
        read = x if read is None else read
        q, k, v = self.q_proj(x), self.k_proj(read), self.v_proj(read)
        options = {"is_causal": True, "scale": self.scale} | options
        y = F.scaled_dot_product_attention(split(q), split(k), split(v), **options)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class NoBatch(Layer):
    def forward(self, x: Tensor) -> Tensor:
        assert x.ndim == 2
        return self.attend(x[None])[0]


class FeaturesFirst(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.attend(x.mT).mT, None


class Images(Layer):
    def forward(self, x: Tensor) -> Tensor:
        batch, width, height, columns = x.shape
        y = self.attend(x.flatten(2).mT).mT
        return y.reshape(batch, width, height, columns)


class Sizes(Layer):
    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        assert x.shape[1] == height * width
        return self.attend(x)


class More(Layer):
    """What it may be given is nothing that it needs to be given."""

    def forward(self, x: Tensor, lengths: Any, layer_past: Any, step: Any) -> Tensor:
        assert lengths is layer_past is step is None
        return self.attend(x)


class Places(Layer):
    """Places may be left out by their signature, and may not by the code."""

    def forward(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        assert position_ids is not None
        return self.attend(x)


class Reads(Layer):
    is_causal = False

    def forward(self, x: Tensor, encoder_states: Tensor | None = None) -> Tensor:
        assert encoder_states is not None
        return self.attend(x, encoder_states, is_causal=False)


class Leaning(Layer):
    """With ALiBi as Bloom hands it over, and what is added to the output."""

    def forward(self, x: Tensor, residual: Tensor, alibi: Tensor) -> Tensor:
        assert alibi.shape == (len(x) * HEADS, 1, x.shape[1])
        causal = torch.ones(x.shape[1], x.shape[1]).tril().bool()
        bias = alibi.view(len(x), HEADS, 1, -1).masked_fill(~causal, -torch.inf)
        y = self.attend(x, is_causal=False, attn_mask=bias)
        return y + residual


class OnlySingle(Layer):
    """Its constant is in float32, and so are all that meet it."""

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        x = torch.eye(D_MODEL).matmul(x[..., None])[..., 0]
        return self.attend(x, is_causal=False, attn_mask=src_mask)


class Named(Layer):
    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"weights": None, "output": [self.attend(x)]}


class Spaced(Layer):
    def forward(self, x: Tensor) -> Any:
        return {"of": (None, self.attend(x))}


LAYERS: dict[str, tuple[Callable[..., Layer], str]] = {
    "no batch": (NoBatch, "It takes no batch, (T, D)"),
    "features first": (FeaturesFirst, "It takes features before tokens, (B, D, T)"),
    "images": (Images, "It takes images, (B, D, H, W)"),
    "sizes": (Sizes, ""),
    "more": (More, ""),
    "places": (Places, ""),
    "reads": (Reads, ""),
    "ALiBi": (Leaning, ""),
    "a dictionary": (Named, ""),
    "nested": (Spaced, ""),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_given_what_it_wants(name: str) -> None:
    make, note = LAYERS[name]
    report = check_attention(make())
    assert report, str(report)
    assert "".join(report.notes).startswith(note)
    assert bool(report.notes) == bool(note)


@pytest.mark.parametrize("name", ["no batch", "images", "reads"])
def test_and_with_a_mistake_it_is_wrong(name: str) -> None:
    make, _ = LAYERS[name]
    report = check_attention(make(scale=1.0))
    assert [each.name for each in report.likely] == ["no-scale"]


def test_what_refuses_float64_is_asked_in_float32() -> None:
    report = check_attention(OnlySingle(), skip=["dtypes", "empty rows"])
    assert report, str(report)
    assert "It cannot compute in float64, so it was checked in float32." in report.notes


class Wrapped(nn.Module):
    """A projection and what comes before it."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.linear = nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.drop(x))


class Nested(nn.Module):
    """As in BERT: projections inside of modules, and a norm at the end."""

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_attention_heads=HEADS)
        self.is_causal, self.scale = False, scale
        self.inner = nn.ModuleDict(
            {name: nn.Linear(D_MODEL, D_MODEL) for name in ("query", "key", "value")}
        )
        self.outer = nn.ModuleDict(
            {"dense": nn.Linear(D_MODEL, D_MODEL), "norm": nn.LayerNorm(D_MODEL)}
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split(each(x)) for each in self.inner.values())
        y = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        y = self.outer["dense"](y.transpose(1, 2).flatten(2))
        return self.outer["norm"](x + y)


def wrapped(scale: float | None = None) -> nn.Module:
    layer = Spaced(scale)
    layer.q_proj, layer.k_proj, layer.v_proj = (Wrapped() for _ in range(3))
    return layer


@pytest.mark.parametrize("make", [Nested, wrapped])
def test_projections_are_found_inside_of_modules(make: Callable[..., Any]) -> None:
    report = check_attention(make())
    assert report, str(report)
    wrong = check_attention(make(scale=1.0))
    assert [each.name for each in wrong.likely] == ["no-scale"]


class OfImages(nn.Module):
    """As in models of diffusion: a norm of groups, places convolved, one head."""

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, D_MODEL)
        self.q, self.k, self.v, self.proj_out = (
            nn.Conv2d(D_MODEL, D_MODEL, 1) for _ in range(4)
        )
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        q, k, v = (each(h).flatten(2).mT for each in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        return x + self.proj_out(y.mT.reshape(x.shape))


def test_attention_of_images_is_recognized() -> None:
    report = check_attention(OfImages())
    assert report, str(report)
    assert report.form == "its features added to the output, a norm around it"
    assert not report.drawn  # convolutions of one place are as large as matrices
    wrong = check_attention(OfImages(scale=1.0))
    assert "no-scale" in [each.name for each in wrong.likely]


class CausalOfImages(OfImages):
    """Its name says what it does not do."""


def test_causal_attention_of_images_still_needs_a_mask() -> None:
    assert "leak" in check_attention(CausalOfImages()).failed


class Fast(Layer):
    """Both ways, with a mask for another implementation, which is switched off."""

    is_causal = False

    def forward(
        self,
        x: Tensor,
        context: Tensor,
        use_flash: bool = False,
        flash_mask: Tensor | None = None,
    ) -> Tensor:
        assert not use_flash
        return self.attend(x, context, is_causal=False)


def test_the_mask_of_an_option_that_is_off_is_let_be() -> None:
    report = check_attention(Fast())
    assert report.passed, str(report)


class Turned(Layer):
    """Turns pairs by complex numbers, in their precision, and adds its mask."""

    def forward(
        self, x: Tensor, freqs_cis: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        q, k = (
            torch.view_as_real(
                torch.view_as_complex(each.unflatten(-1, (HEADS, -1, 2)))
                * freqs_cis[:, None]
            )
            .flatten(3)
            .transpose(1, 2)
            for each in (self.q_proj(x), self.k_proj(x))
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        scores = scores if mask is None else scores + mask
        weights = scores.softmax(dim=-1)
        return self.o_proj((weights @ split(self.v_proj(x))).transpose(1, 2).flatten(2))


def test_complex_turns_have_the_precision_of_the_features() -> None:
    layer = Turned()
    report = check_attention(layer, mask_means="add", skip=["dtypes"])
    assert report.passed, str(report)
    # In half precision they fail, and not for a number that is too large.
    report = check_attention(layer, mask_means="add")
    assert report.failed == ["dtypes"]
    assert report.likely == (), str(report)
