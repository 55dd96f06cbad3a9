"""``check_attention`` for the layers of this library: how each is called, and is meant.

What each should compute is written here once more, in the open.
"""

from functools import singledispatch
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_check import (
    Reference,
    Rotary,
    adapter,
    allowed,
    assert_attention,
    assert_causal,
    check_attention,
)
from tested_transformer.attention import attention_with_weights, repeat_heads
from tested_transformer.attentions import (
    AdjustedCore,
    ChosenBlocks,
    CompressedAttention,
    DeltaAttention,
    DifferentialCore,
    IndexerCore,
    LatentAttention,
    LinearAttention,
    recurrent_delta_rule,
    recurrent_linear_attention,
)
from tested_transformer.attentions.states import StateLayer
from tested_transformer.masks import causal_mask
from tested_transformer.multihead import (
    MultiHeadAttention,
    attend_with_softmax,
    merge_heads,
    split_heads,
)
from tested_transformer.positions import rotary_table

__all__ = ["assert_attention", "assert_causal", "check_attention"]

_Layer = Any


def _pieces(layer: _Layer, parts: list[Tensor]) -> list[Tensor]:
    """Read with the layer's own cache."""
    length = sum(part.shape[1] for part in parts)
    cache = layer.new_cache(len(parts[0]), length)
    return [layer(part, causal=True, cache=cache) for part in parts]


def _masked(
    layer: _Layer,
    x: Tensor,
    *,
    causal: bool,
    context: Tensor,
    real: Tensor | None = None,
) -> Tensor:
    mask = None if real is None else real[:, None, None]
    cross_context = None if context is x else context
    return layer(x, context=cross_context, mask=mask, causal=causal)


@adapter.register
def _of_heads(layer: MultiHeadAttention) -> dict[str, Any]:
    # The core of ``ChosenBlocks`` is a method of it.
    core = getattr(layer.core, "__self__", layer.core)
    adapted = {"call": _masked, "like": _meant(core, layer), "pieces": _pieces}
    if isinstance(core, ChosenBlocks):
        adapted |= {"call": _causal, "causal": True}
    return adapted


@singledispatch
def _meant(core: object, layer: _Layer) -> Any:
    """Return what a layer with this core should compute; ``None`` if it is not known.

    Then the checker says that it cannot tell. A new core is registered below, by its
    type; if it is a method of its settings, by theirs.
    """
    return _tables(layer) if core is attend_with_softmax else None


def _tables(layer: _Layer, **settings: Any) -> Reference:
    """Return softmax attention with the layer's projections, norms and settings."""
    if layer.qk_norm:
        norm = nn.LayerNorm(layer.head_dim, elementwise_affine=False)
        settings |= {"norm_q": norm, "norm_k": norm}
    return Reference(
        q=layer.q_proj,
        k=layer.k_proj,
        v=layer.v_proj,
        o=layer.o_proj,
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        **settings,
    )


@_meant.register
def _(core: AdjustedCore, layer: _Layer) -> Reference:
    gate = {} if core.gate_proj is None else {"gate": _gate}
    settings = {"scale": core.scale, "soft_cap": core.soft_cap, "sink": core.sink}
    return _tables(layer, **settings, **gate)


@_meant.register
def _(core: DifferentialCore, layer: _Layer) -> Any:
    return _differential(_tables(layer))


@_meant.register
def _(core: IndexerCore, layer: _Layer) -> Any:
    return _choosing_keys


@_meant.register
def _(core: ChosenBlocks, layer: _Layer) -> Any:
    return _in_blocks


def _gate(layer: _Layer, x: Tensor) -> Tensor:
    gate = layer.core.gate_proj(x).sigmoid()
    return gate.unflatten(-1, (layer.num_heads, -1))


def _differential(tables: Reference) -> Any:
    """Return the difference of what the tables of pairs of heads read."""

    def like(
        layer: _Layer,
        x: Tensor,
        *,
        causal: bool,
        context: Tensor,
        real: Tensor | None = None,
    ) -> Tensor:
        settings = {"q": layer.q_proj, "k": layer.k_proj, "v": layer.v_proj}
        heads = {"num_heads": tables.num_heads, "num_kv_heads": tables.num_kv_heads}
        reads = Reference(
            **settings, **heads, norm_q=tables.norm_q, norm_k=tables.norm_k
        )
        weights = reads.attend(x, context=context, causal=causal, real=real)[1]
        assert weights is not None
        first, second = weights.chunk(2, dim=1)
        v = split_heads(layer.v_proj(context), layer.num_kv_heads)
        v = torch.cat(v.chunk(2, dim=1), dim=-1)
        heads = (first - layer.core.share() * second) @ repeat_heads(v, first)
        size = (heads.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
        return layer.o_proj(merge_heads((1 - layer.core.first_share) * heads / size))

    return like


def _choosing_keys(
    layer: _Layer,
    x: Tensor,
    *,
    causal: bool,
    context: Tensor,
    real: Tensor | None = None,
) -> Tensor:
    """Rank the keys by the indexer's scores, and let each query read the best."""
    indexer, chosen = layer.core.indexer, layer.core.chosen
    score = torch.zeros(len(x), x.shape[1], context.shape[1]).to(x)
    k = indexer.k_norm(indexer.k_proj(context)).mT
    weights = indexer.weight_proj(x) / (indexer.num_heads * indexer.head_dim) ** 0.5
    for head, q in enumerate(indexer.q_proj(x).chunk(indexer.num_heads, dim=-1)):
        score = score + weights[..., head, None] * (q @ k).clamp(min=0.0)
    mask = allowed(x, causal=causal, real=real, context=context)[:, 0]
    order = score.masked_fill(~mask, float("-inf"))
    order = order.argsort(dim=-1, descending=True, stable=True)
    mask = mask & (order.argsort(dim=-1) < chosen.keys_per_query)
    q, k, v = (
        split_heads(project(source), heads)
        for project, source, heads in (
            (layer.q_proj, x, layer.num_heads),
            (layer.k_proj, context, layer.num_kv_heads),
            (layer.v_proj, context, layer.num_kv_heads),
        )
    )
    if layer.qk_norm:
        q, k = (F.layer_norm(tensor, tensor.shape[-1:]) for tensor in (q, k))
    heads, _ = attention_with_weights(q, k, v, mask=mask[:, None])
    return layer.o_proj(merge_heads(heads))


def _causal(layer: _Layer, x: Tensor) -> Tensor:
    return layer(x, causal=True)


def _in_blocks(layer: _Layer, x: Tensor) -> Tensor:
    """Let each query read its block, and the best of those before it."""
    q, k, v = (
        split_heads(project(x), heads)
        for project, heads in (
            (layer.q_proj, layer.num_heads),
            (layer.k_proj, layer.num_kv_heads),
            (layer.v_proj, layer.num_kv_heads),
        )
    )
    if layer.qk_norm:
        q, k = (F.layer_norm(x, x.shape[-1:]) for x in (q, k))
    size = layer.core.__self__.block_size
    most = layer.core.__self__.num_chosen - 1
    blocks = torch.arange(x.shape[1]) // size
    scores = [
        q @ repeat_heads(part.mean(dim=2)[:, :, None], q).mT
        for part in k.split(size, 2)
    ]
    score = torch.cat(scores, dim=-1)  # (B, H, T, blocks)
    past = torch.arange(score.shape[-1]) < blocks[:, None]
    order = score.masked_fill(~past, float("-inf")).argsort(dim=-1, descending=True)
    chosen = past & (order.argsort(dim=-1) < most)
    mask = (chosen[..., blocks] | (blocks[:, None] == blocks)) & causal_mask(x.shape[1])
    return layer.o_proj(merge_heads(attention_with_weights(q, k, v, mask=mask)[0]))


@adapter.register
def _of_latents(layer: LatentAttention) -> dict[str, Any]:
    def in_heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (layer.num_heads, -1))

    # The rotary part comes first, which changes no product of a query and a key.
    def q(layer: _Layer, x: Tensor) -> Tensor:
        return in_heads(layer.q_proj(x)).roll(layer.rotary_dim, -1).flatten(-2)

    def up(layer: _Layer, x: Tensor) -> list[Tensor]:
        latent, turning = layer.kv_down(x).split(
            [layer.latent_dim, layer.rotary_dim], -1
        )
        kv = in_heads(layer.kv_up(layer.kv_norm(latent)))
        k, v = kv.split([layer.head_dim, layer.value_dim], dim=-1)
        turning = turning[..., None, :].expand(*k.shape[:-1], -1)
        return [torch.cat([turning, k], dim=-1).flatten(-2), v.flatten(-2)]

    def call(
        layer: _Layer, x: Tensor, *, causal: bool, real: Tensor | None = None
    ) -> Tensor:
        table = rotary_table(torch.arange(x.shape[1]), layer.rotary_dim).to(x)
        mask = None if real is None else real[:, None, None]
        return layer(x, mask=mask, causal=causal, rotary=table)

    def pieces(layer: _Layer, parts: list[Tensor]) -> list[Tensor]:
        length = sum(part.shape[1] for part in parts)
        cache = layer.new_cache(len(parts[0]), length)
        table = rotary_table(torch.arange(length), layer.rotary_dim).to(parts[0])
        tables = table.split([part.shape[1] for part in parts], dim=1)
        return [
            layer(part, causal=True, cache=cache, rotary=turns)
            for part, turns in zip(parts, tables, strict=True)
        ]

    like = Reference(
        q=q,
        k=lambda layer, x: up(layer, x)[0],
        v=lambda layer, x: up(layer, x)[1],
        o=layer.o_proj,
        num_heads=layer.num_heads,
        rotary=Rotary(
            pairing="halves" if layer.pairing == "halves" else "neighbors",
            width=layer.rotary_dim,
        ),
    )
    return {"call": call, "like": like, "pieces": pieces}


@adapter.register
def _of_entries(layer: CompressedAttention) -> dict[str, Any]:
    adapted = {"call": _causal, "like": _compressing, "pieces": _pieces}
    return {**adapted, "causal": True}


def _compressing(layer: _Layer, x: Tensor) -> Tensor:
    """Pool each group of tokens alone; mask what lies beyond the window, or ahead."""
    settings, length = layer.compressed, x.shape[1]
    size = settings.compress

    def entries(compressor: _Layer, x: Tensor) -> Tensor:
        pooled = [x.new_zeros(len(x), 0, compressor.norm.weight.shape[0])]
        content, gates = compressor.kv_proj(x), compressor.gate_proj(x)
        for end in range(size, length + 1, size):
            own = slice(end - size, end)
            parts = [(content[:, own], gates[:, own] + compressor.position_bias)]
            if settings.overlap:
                half = content.shape[-1] // 2
                parts = [(c[..., half:], g[..., half:]) for c, g in parts]
                if end > size:
                    own = slice(end - 2 * size, end - size)
                    bias = compressor.position_bias
                    earlier = content[:, own], gates[:, own] + bias
                    parts += [tuple(tensor[..., :half] for tensor in earlier)]
            c, g = (torch.cat(tensors, dim=1) for tensors in zip(*parts, strict=True))
            pooled.append(compressor.norm((c * g.softmax(1)).sum(1))[:, None])
        return torch.cat(pooled, dim=1)

    place = torch.arange(length)[:, None]
    near = (place >= place.T) & (place - settings.window < place.T)
    far = place + 1 >= size * torch.arange(1, length // size + 1)
    if (indexer := layer.indexer) is not None:
        k = entries(indexer.compressor, x).mT
        weights = indexer.weight_proj(x) / indexer.num_heads**0.5
        asking = split_heads(indexer.q_proj(x), indexer.num_heads)
        scores = (asking @ k[:, None]).clamp(min=0.0) / asking.shape[-1] ** 0.5
        score = (weights.mT[..., None] * scores).sum(dim=1)
        score = score.masked_fill(~far, float("-inf"))
        order = score.argsort(dim=-1, descending=True, stable=True)
        far = far & (order.argsort(dim=-1) < settings.entries_per_query)
        far = far[:, None]
    mask = torch.cat([near.expand(*far.shape[:-1], -1), far], dim=-1)
    k = torch.cat([layer.kv_norm(layer.kv_proj(x)), entries(layer.compressor, x)], 1)
    q = split_heads(layer.q_proj(x), layer.num_heads)
    q = q / (q.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    scores = q @ k[:, None].mT / layer.head_dim**0.5
    sink = layer.sink[:, None, None].expand(*scores.shape[:-1], 1)
    scores = torch.cat([scores.masked_fill(~mask, float("-inf")), sink], dim=-1)
    heads = scores.softmax(dim=-1)[..., :-1] @ k[:, None]
    return layer.o_proj(merge_heads(heads))


@adapter.register
def _of_states(layer: StateLayer) -> dict[str, Any]:
    known = isinstance(layer, LinearAttention | DeltaAttention)
    like = _token_by_token if known else None
    return {"call": _padded, "like": like, "pieces": _pieces, "causal": True}


def _padded(layer: _Layer, x: Tensor, *, real: Tensor | None = None) -> Tensor:
    return layer(x, causal=True, mask=None if real is None else real[:, None, None])


def _token_by_token(
    layer: LinearAttention | DeltaAttention, x: Tensor, *, real: Tensor | None = None
) -> Tensor:
    """Write and read a state, one token after the other; padding writes zeros."""
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    q, k, v = (split_heads(project(x), layer.num_heads) for project in projections)
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    gate = layer.gate_proj
    decay = None
    if gate is not None:
        decay = split_heads(F.logsigmoid(gate(x)) / 16, layer.num_heads)
    if real is not None:
        k, v = (x * real[:, None, :, None] for x in (k, v))
    if isinstance(layer, DeltaAttention):
        beta = layer.beta_proj(x).sigmoid().mT
        heads, _ = recurrent_delta_rule(q, k, v, beta, log_decay=decay)
    else:
        heads, _ = recurrent_linear_attention(q, k, v, log_decay=decay)
    return layer.o_proj(merge_heads(layer.norm(heads)))
