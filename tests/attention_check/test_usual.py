"""What is recognized without a word, and the adapter that is written for the rest."""

from typing import Any

import torch
import torch.nn.functional as F
from tests.attention_check.layers import Plain, fused, plain_reference
from torch import Tensor, nn

import attention_check
from attention_check import Rotary, check_attention


class Packed(nn.Module):
    def __init__(self, order: str = "thirds", diagonal: int = 0) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(24, 72), nn.Linear(24, 24)
        self.n_head, self.order, self.diagonal = 4, order, diagonal

    def forward(self, x: Tensor) -> Tensor:
        y = self.c_attn(x)
        if self.order == "thirds":
            q, k, v = (
                part.unflatten(-1, (4, 6)).transpose(1, 2) for part in y.chunk(3, -1)
            )
        else:
            q, k, v = y.unflatten(-1, (4, 3, 6)).permute(3, 0, 2, 1, 4)
        mask = torch.ones(x.shape[1], x.shape[1]).bool().tril(self.diagonal)
        y = F.scaled_dot_product_attention(q, k, v, mask)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(24, 6) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head() for _ in range(4))
        self.proj = nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


class Turned(Plain):
    def __init__(self, pairing: str) -> None:
        super().__init__()
        self.rotary = Rotary(pairing=pairing)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        at = torch.arange(q.shape[2])
        return super().score(self.rotary.turn(q, at), self.rotary.turn(k, at))


class Biased(Plain):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        slopes = 2.0 ** -torch.arange(2, 10, 2)[:, None, None]
        t = torch.arange(q.shape[2])
        return super().score(q, k) - (slopes * (t[:, None] - t).abs()).to(q)


class Split(Plain):
    """Split without the transpose; the mask that it takes is right."""

    def __init__(self, *, merged: bool) -> None:
        super().__init__()
        self.merged = merged

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (
            project(x).view(len(x), self.num_heads, x.shape[1], -1)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = self.score(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        heads = scores.softmax(dim=-1) @ v
        heads = heads if self.merged else heads.transpose(1, 2)
        return self.o_proj(heads.reshape(x.shape))


def test_the_usual_needs_no_word() -> None:
    torchs = nn.MultiheadAttention(24, 4, batch_first=True, dropout=0.1)
    for layer, words in (
        (Plain(), "Plain is right: causal; whole"),
        (Packed(), "Packed is right: causal; whole"),
        (Packed("heads"), "Packed is right: causal; whole"),
        (Heads(), "Heads is right: causal; whole"),
        (Turned("halves"), "causal, rotary positions (halves, base 10000); whole"),
        (Turned("neighbors"), "rotary positions (neighbors, base 10000); whole"),
        (Biased(), "causal, ALiBi; whole"),
        (F.scaled_dot_product_attention, "scaled_dot_product_attention is right: who"),
        (nn.MultiheadAttention(24, 4), "is right within limits: whole, gradients, pad"),
        (torchs, "is right within limits: whole, gradients, padded"),
    ):
        assert words in str(check_attention(layer)).splitlines()[0]


def test_a_bug_in_the_usual_is_named_without_a_word() -> None:
    for layer, name in (
        (Packed(diagonal=1), "one-too-far"),
        (Split(merged=False), "split-without-transpose"),
        (Split(merged=True), "split-without-transpose"),
    ):
        assert check_attention(layer).names == (name,)


def test_a_function_of_heads_is_checked() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
        return weights.tril() @ v

    assert check_attention(attend).names == ("mask-after-softmax",)

    def inverted(
        query: Tensor, key: Tensor, value: Tensor, *, mask: Any = None, causal: bool
    ) -> Tensor:
        if mask is not None:
            mask = ~mask
        if causal and mask is not None:
            mask = mask & torch.ones(query.shape[2], key.shape[2]).bool().tril()
        causal = causal and mask is None
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)

    assert check_attention(inverted).state == "wrong"

    def odd(f: Any, q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        return f(v, q, k, causal)

    def reordered(v: Tensor, q: Tensor, k: Tensor, causal: bool) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    assert check_attention(reordered, call=odd).state == "right"


class Both(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return fused(self, x, None)


def test_a_layer_that_attends_to_both_sides_is_asked_about() -> None:
    report = check_attention(Both())
    assert report.state == "cannot tell"
    assert "whether it should attend to both sides is not said" in str(report)
    assert check_attention(Both(), causal=False).state == "right"
    assert "no-causal-mask" in check_attention(Both(), causal=True).names


def test_what_has_no_effect_is_asked_about() -> None:
    layer = Plain()
    layer.register_buffer("table", torch.ones(3))
    layer.extra = nn.Parameter(torch.ones(2))
    report = check_attention(
        layer, call=lambda layer, x: layer(x), like=plain_reference(layer)
    )
    assert report.unused == ["extra"]
    del layer.extra
    report = check_attention(layer)
    assert (report.state, report.unused) == ("cannot tell", ["table"])


class Unusual(nn.Module):
    """A layer of which neither the call nor the projections are usual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third, self.last = (
            nn.Linear(24, 24) for _ in range(4)
        )

    def forward(self, x: Tensor, hidden: Tensor, extra: int = 1) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (4, -1)).transpose(1, 2)
            for project in (self.first, self.second, self.third)
        )
        mask = torch.ones(x.shape[1], x.shape[1]).bool().tril() & ~hidden[:, None, None]
        empty = ~mask.any(dim=-1, keepdim=True)
        y = F.scaled_dot_product_attention(q, k, v, mask | empty) * ~empty
        return extra * self.last(y.transpose(1, 2).flatten(2))


def test_what_is_unusual_gets_an_adapter_that_a_person_completes() -> None:
    layer = Unusual()
    report = check_attention(layer)
    assert report.state == "cannot tell"
    written = report.adapter
    for line in (" hidden=...,", " # extra=...,", "q=...,", "num_heads=...,"):
        assert f"{line}\n" in written, written
    assert "layer.first, layer.second, layer.third, layer.last" in written
    done = (
        written.replace("layer, x: layer", "layer, x, *, real: layer")
        .replace("hidden=...", "hidden=~real")
        .replace("# extra=...", "extra=1")
        .replace("num_heads=...", "num_heads=4")
        .replace("causal=...", "causal=True")
    )
    for word, name in zip("qkvo", ("first", "second", "third", "last"), strict=True):
        done = done.replace(f" {word}=...", f" {word}=layer.{name}")
    report = eval(done, {**vars(attention_check), "layer": layer})
    assert report.state == "right", str(report)
    assert report.covered[:-1] == ["whole", "gradients", "padded", "training"]
