"""The layouts of Llama and of its relatives, which change a part or two of it.

Llama has rotary positions, RMS norms, a gated feed-forward, shared keys and no biases.
SmolLM and many other models are Llamas; SmolLM 3 does not rotate in every fourth layer.
Mistral adds a window, Qwen 2 biases before attention, Qwen 3 and OLMo 2 norms of
queries and keys. OLMo 2 normalizes the outputs of its branches instead of their inputs.
Gemma does both, multiplies embeddings and caps. Mixtral and some Qwen 3 have experts.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tested_transformer.attentions import AdjustedSoftmax
from tested_transformer.checkpoints.configs import CheckpointError
from tested_transformer.checkpoints.layouts.family import (
    Family,
    Settings,
    Stored,
    gain_from_one,
    renamed,
)
from tested_transformer.checkpoints.layouts.rotary import read_rotary, write_rotary
from tested_transformer.config import GPTConfig
from tested_transformer.multihead import SOFTMAX

__all__ = [
    "GEMMA2",
    "GEMMA3",
    "LLAMA",
    "MISTRAL",
    "MIXTRAL",
    "OLMO2",
    "QWEN2",
    "QWEN3",
    "QWEN3_MOE",
    "SMOLLM3",
    "around",
    "block_names",
    "read_experts",
    "read_sizes",
    "read_windows",
    "write_experts",
    "write_sizes",
    "write_windows",
]

# Our settings and theirs.
_SIZES = {
    "vocab_size": "vocab_size",
    "max_seq_len": "max_position_embeddings",
    "d_model": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers",
    "d_ff": "intermediate_size",
}
_GATES = {"silu": "swiglu", "gelu_pytorch_tanh": "geglu_tanh"}
_TURNS = ("full_attention", "sliding_attention")


# --8<-- [start:sizes]
def read_sizes(
    settings: Settings, *, base: float = 10_000.0, eps: float = 1e-6, tied: bool = False
) -> dict[str, Any]:
    """Return what all these families describe alike: sizes, norms and positions.

    Args:
        settings: Theirs.
        base: The rotary base, if the settings do not say it.
        eps: That of the norms, if they do not say it.
        tied: Whether the head is tied, if they do not say it.
    """
    sizes = {ours: settings.size(name) for ours, name in _SIZES.items()}
    heads = sizes["num_heads"]
    head_dim = settings.size("head_dim", None) or sizes["d_model"] // heads
    return {
        **sizes,
        "num_kv_heads": settings.get("num_key_value_heads", None) or heads,
        "head_dim": head_dim,
        "norm": "rms",
        "norm_eps": settings.get("rms_norm_eps", eps),
        "bias": False,
        "activation": settings.choose("hidden_act", _GATES, "silu"),
        "tie_head": settings.get("tie_word_embeddings", tied),
        **read_rotary(settings, head_dim, base=base),
    }


def write_sizes(config: GPTConfig) -> dict[str, Any]:
    """Return the settings that say what ``read_sizes`` reads."""
    names = {ours: name for name, ours in _GATES.items()}
    return {
        **{name: getattr(config, ours) for ours, name in _SIZES.items()},
        "intermediate_size": config.d_ff or 4 * config.d_model,
        "num_key_value_heads": config.num_kv_heads or config.num_heads,
        "head_dim": config.d_k,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": names.get(config.activation, "silu"),
        "tie_word_embeddings": config.tie_head,
        **write_rotary(config),
    }


# --8<-- [end:sizes]


# --8<-- [start:names]
def around(config: GPTConfig) -> dict[str, str]:
    """Return the names, theirs and ours, of what stands before and after the blocks."""
    names = {
        "model.embed_tokens.weight": "token_embedding.weight",
        "model.norm.weight": "norm.weight",
    }
    return names if config.tie_head else {**names, "lm_head.weight": "head.weight"}


def block_names(
    layer: int, parts: Mapping[str, str], *, biased: bool = False
) -> dict[str, str]:
    """Return the names, theirs and ours, of parts of a block."""
    return {
        f"model.layers.{layer}.{name}.{kind}": f"blocks.{layer}.{ours}.{kind}"
        for name, ours in parts.items()
        for kind in (("weight", "bias") if biased else ("weight",))
    }


_QKV = {f"self_attn.{x}_proj": f"attention.{x}_proj" for x in "qkv"}
_OUT = {"self_attn.o_proj": "attention.o_proj"}
_QK_NORMS = {f"self_attn.{x}_norm": f"attention.{x}_norm" for x in "qk"}
_FEED_FORWARD = {f"mlp.{x}_proj": f"feed_forward.{x}" for x in ("gate", "up", "down")}
_NORMS_BEFORE = {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "feed_forward_norm",
}
_NORMS_AFTER = {
    "post_attention_layernorm": "attention_out_norm",
    "post_feedforward_layernorm": "feed_forward_out_norm",
}
_NORMS_BOTH = {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "attention_out_norm",
    "pre_feedforward_layernorm": "feed_forward_norm",
    "post_feedforward_layernorm": "feed_forward_out_norm",
}
_NORMS = {"before": _NORMS_BEFORE, "after": _NORMS_AFTER, "both": _NORMS_BOTH}


def _stored(config: GPTConfig) -> Iterator[Stored]:
    """Yield the tensors of every family but Gemma, Mixtral and Qwen 3 with experts."""
    yield from renamed(around(config))
    for layer in range(config.num_layers):
        yield from renamed(block_names(layer, _QKV, biased=bool(config.qkv_bias)))
        yield from renamed(block_names(layer, _OUT))
        if config.qk_norm:
            yield from renamed(block_names(layer, _QK_NORMS))
        yield from renamed(block_names(layer, _NORMS[config.norm_place]))
        if not config.num_experts:
            yield from renamed(block_names(layer, _FEED_FORWARD))


# --8<-- [end:names]


# --8<-- [start:llama]
def _read_llama(settings: Settings) -> dict[str, Any]:
    settings.require("attention_bias", False)
    settings.require("mlp_bias", False)
    return read_sizes(settings)


LLAMA = Family("llama", "LlamaForCausalLM", _read_llama, write_sizes, _stored)
# --8<-- [end:llama]


# --8<-- [start:mistral]
def _read_mistral(settings: Settings) -> dict[str, Any]:
    return read_sizes(settings) | {"windows": settings.get("sliding_window")}


def _write_mistral(config: GPTConfig) -> dict[str, Any]:
    return write_sizes(config) | {"sliding_window": config.window_of(0)}


MISTRAL = Family(
    "mistral", "MistralForCausalLM", _read_mistral, _write_mistral, _stored
)
# --8<-- [end:mistral]


# --8<-- [start:windows]
def read_windows(
    settings: Settings, slides: list[bool], *, used: bool = True
) -> dict[str, Any]:
    """Return the window of each layer.

    Args:
        settings: They may list ``layer_types``.
        slides: Which layers have a window if they do not.
        used: Whether the window is used at all.
    """
    window = settings.get("sliding_window") if used else None
    settings.get("sliding_window", None)
    kinds = settings.get("layer_types", None)
    if kinds is None:
        kinds = [_TURNS[slide and used and window is not None] for slide in slides]
    strange = {*kinds} - {*_TURNS}
    if strange:
        settings.require("layer_types", *_TURNS)
    windows = tuple(None if kind == _TURNS[0] else window for kind in kinds)
    return {"windows": windows if any(windows) else None}


def write_windows(config: GPTConfig) -> dict[str, Any]:
    """Return the settings that say which layers have which window."""
    windows = [*map(config.window_of, range(config.num_layers))]
    return {
        "layer_types": [_TURNS[window is not None] for window in windows],
        "sliding_window": next(filter(None, windows), None),
    }


# --8<-- [end:windows]


# --8<-- [start:qwen]
def _read_qwen2(settings: Settings) -> dict[str, Any]:
    sizes = read_sizes(settings)
    first = settings.get("max_window_layers", 28)
    slides = [layer >= first for layer in range(sizes["num_layers"])]
    used = bool(settings.get("use_sliding_window", False))
    return sizes | read_windows(settings, slides, used=used) | {"qkv_bias": True}


def _read_qwen3(settings: Settings) -> dict[str, Any]:
    settings.require("attention_bias", False)
    return _read_qwen2(settings) | {"qkv_bias": False, "qk_norm": "heads"}


def _write_qwen(config: GPTConfig) -> dict[str, Any]:
    windows = write_windows(config)
    used = windows["sliding_window"] is not None
    return write_sizes(config) | windows | {"use_sliding_window": used}


QWEN2 = Family("qwen2", "Qwen2ForCausalLM", _read_qwen2, _write_qwen, _stored)
QWEN3 = Family("qwen3", "Qwen3ForCausalLM", _read_qwen3, _write_qwen, _stored)
# --8<-- [end:qwen]


# --8<-- [start:smollm]
def _read_smollm3(settings: Settings) -> dict[str, Any]:
    settings.require("attention_bias", False)
    settings.require("mlp_bias", False)
    settings.require("use_sliding_window", False)
    settings.get("max_window_layers", None)
    sizes = read_sizes(settings, base=2_000_000.0, tied=True)
    every = settings.get("no_rope_layer_interval", 4)
    usual = [(layer + 1) % every != 0 for layer in range(sizes["num_layers"])]
    rotates = settings.get("no_rope_layers", None) or usual
    windows = read_windows(settings, [False] * sizes["num_layers"], used=False)
    return sizes | windows | {"rotary_layers": tuple(map(bool, rotates))}


def _write_smollm3(config: GPTConfig) -> dict[str, Any]:
    rotates = [int(config.rotates(layer)) for layer in range(config.num_layers)]
    return write_sizes(config) | {"no_rope_layers": rotates}


SMOLLM3 = Family(
    "smollm3", "SmolLM3ForCausalLM", _read_smollm3, _write_smollm3, _stored
)
# --8<-- [end:smollm]


# --8<-- [start:olmo]
def _read_olmo2(settings: Settings) -> dict[str, Any]:
    settings.require("attention_bias", False)
    sizes = read_sizes(settings, eps=1e-5)
    return sizes | {"norm_place": "after", "qk_norm": "projection"}


OLMO2 = Family("olmo2", "Olmo2ForCausalLM", _read_olmo2, write_sizes, _stored)
# --8<-- [end:olmo]


# --8<-- [start:gemma]
def _read_gemma(settings: Settings, *, base: float) -> dict[str, Any]:
    settings.require("attention_bias", False)
    settings.require("use_bidirectional_attention", None, False)
    # What other families call hidden_act.
    activation = settings.choose("hidden_activation", _GATES, "gelu_pytorch_tanh")
    settings.get("hidden_act", None)
    sizes = read_sizes(settings, base=base, tied=True)
    scale = settings.get("query_pre_attn_scalar", 256) ** -0.5
    cap = settings.get("attn_logit_softcapping", None)
    attention = SOFTMAX
    if cap is not None or scale != sizes["head_dim"] ** -0.5:
        attention = AdjustedSoftmax(scale=scale, soft_cap=cap)
    return sizes | {
        "activation": activation,
        "norm_place": "both",
        "embedding_scale": sizes["d_model"] ** 0.5,
        "attention": attention,
        "logit_cap": settings.get("final_logit_softcapping", None),
    }


def _write_gemma(config: GPTConfig) -> dict[str, Any]:
    written = write_sizes(config) | write_windows(config)
    attention = config.attention
    scale, cap = config.d_k**-0.5, None
    if isinstance(attention, AdjustedSoftmax):
        scale, cap = attention.scale or scale, attention.soft_cap
    return written | {
        "hidden_activation": written.pop("hidden_act"),
        "query_pre_attn_scalar": round(scale**-2),  # transformers wants an int
        "attn_logit_softcapping": cap,
        "final_logit_softcapping": config.logit_cap,
    }


def _stored_gemma(config: GPTConfig) -> Iterator[Stored]:
    for stored in _stored(config):
        if "norm" in stored.name:
            yield gain_from_one(stored.name, *stored.ours)
        else:
            yield stored


def _read_gemma2(settings: Settings) -> dict[str, Any]:
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        settings.get(cap)  # silence would mean a number
    fields = _read_gemma(settings, base=10_000.0)
    slides = [layer % 2 == 0 for layer in range(fields["num_layers"])]
    return fields | read_windows(settings, slides)


def _read_gemma3(settings: Settings) -> dict[str, Any]:
    local = settings.get("rope_local_base_freq", 10_000.0)
    by_kind = settings.get("rope_parameters", None)
    if by_kind is not None:
        both = Settings(by_kind, f"rope_parameters of {settings.origin}")
        rule = Settings(both.get(_TURNS[1]), f"{_TURNS[1]} of {both.origin}")
        local = rule.get("rope_theta", local)
        rule.require("rope_type", "default")
        rule.refuse_the_rest()
        settings.values["rope_parameters"] = both.get(_TURNS[0])
        both.refuse_the_rest()
    fields = _read_gemma(settings, base=1_000_000.0)
    turn = settings.get("sliding_window_pattern", 6)
    settings.get("_sliding_window_pattern", turn)
    slides = [(layer + 1) % turn != 0 for layer in range(fields["num_layers"])]
    return (
        fields
        | read_windows(settings, slides)
        | {"qk_norm": "heads", "local_rotary_base": local}
    )


def _write_gemma3(config: GPTConfig) -> dict[str, Any]:
    local = config.local_rotary_base or config.rotary_base
    return _write_gemma(config) | {"rope_local_base_freq": local}


GEMMA2 = Family(
    "gemma2", "Gemma2ForCausalLM", _read_gemma2, _write_gemma, _stored_gemma
)
GEMMA3 = Family(
    "gemma3_text", "Gemma3ForCausalLM", _read_gemma3, _write_gemma3, _stored_gemma
)
# --8<-- [end:gemma]


# --8<-- [start:experts]
def _experts(
    config: GPTConfig, router: str, expert: str, parts: Mapping[str, str]
) -> Iterator[Stored]:
    """Yield the tensors of a model whose feed-forwards are experts."""
    yield from _stored(config)
    for layer in range(config.num_layers):
        yield from renamed(block_names(layer, {router: "feed_forward.router"}))
        for n in range(config.num_experts):
            inside = {
                f"{expert}.{n}.{name}": f"feed_forward.experts.{n}.{ours}"
                for name, ours in parts.items()
            }
            yield from renamed(block_names(layer, inside))


def read_experts(settings: Settings, *names: str) -> dict[str, Any]:
    """Return how many experts there are, under the first name that is there, and used.

    Raises:
        CheckpointError: If there are none, or each token goes through one, whose share
            is 1 there and its probability here.
    """
    count = next(filter(None, [settings.get(name, None) for name in names]), 0)
    active = settings.get("num_experts_per_tok")
    for name, value, least in (names[0], count, 1), ("num_experts_per_tok", active, 2):
        if value < least:
            raise CheckpointError(
                f"{settings.origin} has {name}={value}; it must be at least {least}"
            )
    return {"num_experts": count, "experts_per_token": active}


def write_experts(config: GPTConfig) -> dict[str, Any]:
    """Return the settings that say what ``read_experts`` reads."""
    return {
        "num_local_experts": config.num_experts,
        "num_experts_per_tok": config.experts_per_token,
    }


def _read_mixtral(settings: Settings) -> dict[str, Any]:
    sizes = read_sizes(settings, eps=1e-5, base=1_000_000.0)
    window = {"windows": settings.get("sliding_window", None)}
    return sizes | window | read_experts(settings, "num_local_experts")


def _stored_mixtral(config: GPTConfig) -> Iterator[Stored]:
    parts = {"w1": "gate", "w2": "down", "w3": "up"}
    inside = "block_sparse_moe"
    return _experts(config, f"{inside}.gate", f"{inside}.experts", parts)


def _read_qwen3_moe(settings: Settings) -> dict[str, Any]:
    settings.get("norm_topk_prob")  # silence would mean False
    settings.require("norm_topk_prob", True)
    settings.require("decoder_sparse_step", 1)
    settings.require("mlp_only_layers", [], None)
    fields = _read_qwen3(settings)
    used = settings.get("use_sliding_window", False)  # by all layers or by none
    fields["windows"] = settings.get("sliding_window") if used else None
    fields["d_ff"] = settings.get("moe_intermediate_size")
    return fields | read_experts(settings, "num_experts", "num_local_experts")


def _write_qwen3_moe(config: GPTConfig) -> dict[str, Any]:
    written = _write_mistral(config) | write_experts(config)
    return written | {
        "moe_intermediate_size": written["intermediate_size"],
        "norm_topk_prob": True,
        "use_sliding_window": written["sliding_window"] is not None,
    }


def _stored_qwen3_moe(config: GPTConfig) -> Iterator[Stored]:
    parts = {f"{x}_proj": x for x in ("gate", "up", "down")}
    return _experts(config, "mlp.gate", "mlp.experts", parts)


MIXTRAL = Family(
    "mixtral",
    "MixtralForCausalLM",
    _read_mixtral,
    lambda config: _write_mistral(config) | write_experts(config),
    _stored_mixtral,
)
QWEN3_MOE = Family(
    "qwen3_moe",
    "Qwen3MoeForCausalLM",
    _read_qwen3_moe,
    _write_qwen3_moe,
    _stored_qwen3_moe,
)
# --8<-- [end:experts]
