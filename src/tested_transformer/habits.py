"""Answer calls in another library's manner with the line to write here.

Readers come from PyTorch, Hugging Face, Keras and torchtune. A call that Python refuses
is looked at again: if its names are those of another library, the error says ours. A
call that succeeds is not looked at.
"""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

__all__ = [
    "MODEL_SETTINGS",
    "TRAINING_SETTINGS",
    "WRITING_SETTINGS",
    "advise_on_layer_call",
    "advise_on_layer_settings",
    "advise_on_model_call",
    "advise_on_settings",
    "advised",
]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=type)
Values = tuple[object, ...]
Options = Mapping[str, object]

# What other libraries call the settings of a model, of training and of writing.
MODEL_SETTINGS = {
    "n_embd": "d_model",
    "hidden_size": "d_model",
    "dim": "d_model",
    "embed_dim": "d_model",
    "nhead": "num_heads",
    "heads": "num_heads",
    "n_head": "num_heads",
    "n_heads": "num_heads",
    "num_attention_heads": "num_heads",
    "n_kv_heads": "num_kv_heads",
    "num_key_value_heads": "num_kv_heads",
    "n_layer": "num_layers",
    "n_layers": "num_layers",
    "num_hidden_layers": "num_layers",
    "block_size": "max_seq_len",  # as nanoGPT calls it
    "n_positions": "max_seq_len",
    "context_length": "max_seq_len",
    "max_position_embeddings": "max_seq_len",
    "n_inner": "d_ff",
    "intermediate_size": "d_ff",
    "rope_theta": "rotary_base",
    "tie_word_embeddings": "tie_head",
}
TRAINING_SETTINGS = {
    "learning_rate": "lr",
    "max_iters": "steps",
    "max_steps": "steps",
    "warmup_iters": "warmup",
    "warmup_steps": "warmup",
    "gradient_accumulation_steps": "accumulate",
    "eval_interval": "evaluate_every",
    "eval_steps": "evaluate_every",
}
WRITING_SETTINGS = {
    "max_length": "max_new_tokens",
    "max_tokens": "max_new_tokens",
    "eos_token_id": "stop",
    "stop_strings": "stop",
    "inputs": "prompts",
    "input_ids": "prompts",
}
# What to write here for the settings and options of other libraries' layers.
_SETTINGS_OF_OTHERS = {
    **{name: f"{ours}={{}}" for name, ours in MODEL_SETTINGS.items()},
    "key_dim": "d_model=num_heads * {}",
    "kdim": "d_context={}",
    "vdim": "d_context={}",
    "batch_first": "",  # always so here
}
_OPTIONS_OF_OTHERS = {
    "query": "",
    "key": "context=key",
    "value": "",
    "attn_mask": "mask=~attn_mask",
    "key_padding_mask": "mask=token_mask(~key_padding_mask)",
    "attention_mask": "mask=token_mask(attention_mask)",
    "padding_mask": "mask=token_mask(padding_mask)",
    "is_causal": "causal={}",
    "need_weights": "return_weights={}",
    "average_attn_weights": "",
    "use_causal_mask": "causal={}",
    "return_attention_scores": "return_weights={}",
    "output_attentions": "return_weights={}",
    "past_key_value": "cache={}",
    "past_key_values": "cache={}",
    "hidden_states": "",
}


def advised(
    advise: Callable[[Values, Options], str | None],
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator for functions whose refused calls are answered with advice.

    Args:
        advise: Takes the arguments of a call that raised a ``TypeError``, and returns
            what to write instead; ``None`` if it knows nothing better than the error.
    """

    def decorate(
        function: Callable[Parameters, Result],
    ) -> Callable[Parameters, Result]:
        @wraps(function)
        def called(*values: Parameters.args, **options: Parameters.kwargs) -> Result:
            try:
                return function(*values, **options)
            except TypeError:
                advice = advise(values, options)
                if advice is None:
                    raise
            raise TypeError(advice)

        return called

    return decorate


def advise_on_settings(ours: Mapping[str, str]) -> Callable[[Kind], Kind]:
    """Return a decorator for classes that are made with another library's settings.

    Args:
        ours: The name that each setting has here.
    """

    def decorate(kind: Kind) -> Kind:
        init: Callable[..., None] = kind.__init__
        kind.__init__ = advised(partial(_on_settings, kind.__name__, ours))(init)
        return kind

    return decorate


def _on_settings(
    kind: str, ours: Mapping[str, str], values: Values, settings: Options
) -> str | None:
    for name, value in settings.items():
        if name in ours:
            return f"{kind} has no setting {name!r}: write {ours[name]}={value!r}"
    return None


def advise_on_layer_settings(values: Values, settings: Options) -> str | None:
    """Return how to make a ``MultiHeadAttention`` made like another library's."""
    positional = values[1:]  # without the layer itself
    if positional and hasattr(positional[0], "d_model"):
        return (
            "MultiHeadAttention takes keyword arguments: write "
            "MultiHeadAttention(d_model=config.d_model, num_heads=config.num_heads)"
        )
    if not positional and not any(name in _SETTINGS_OF_OTHERS for name in settings):
        return None
    names = ("d_model", "num_heads", "dropout", "bias")
    named = dict(zip(names, positional, strict=False)) | {**settings}
    line = ", ".join(_translate(named, _SETTINGS_OF_OTHERS))
    return (
        f"MultiHeadAttention takes keyword arguments: write MultiHeadAttention({line})"
    )


def advise_on_layer_call(values: Values, options: Options) -> str | None:
    """Return how to call a layer that was called in another library's manner."""
    sequences = values[1:]  # without the layer itself
    if len(sequences) < 2 and not any(name in _OPTIONS_OF_OTHERS for name in options):
        return None
    masks = [sequence for sequence in sequences[1:] if _is_mask(sequence)]
    others = [sequence for sequence in sequences[1:] if not _is_mask(sequence)]
    context = ["context=keys"] if any(x is not sequences[0] for x in others) else []
    mask = ["mask=mask"] if masks else []
    ours = dict(_OPTIONS_OF_OTHERS)
    if _is_added(options.get("attention_mask")):
        ours["attention_mask"] = "mask=from_additive(attention_mask)"
    line = ", ".join(["x", *context, *mask, *_translate(options, ours)])
    convention = (
        "; in a mask True = may attend, and from_additive converts a mask of floats"
        if "attn_mask" in options
        else ""
    )
    return (
        "MultiHeadAttention takes one sequence x, and for cross-attention a context: "
        f"write layer({line}){convention}"
    )


def advise_on_model_call(values: Values, options: Options) -> str | None:
    """Return how to call a GPT that was called in another library's manner."""
    if len(values) > 2 or "targets" in options or "labels" in options:
        return (
            "a GPT returns logits, not a loss: write "
            "next_token_loss(model(tokens), targets), with targets one token further on"
        )
    if "idx" in options or "input_ids" in options:
        return "a GPT takes tokens by position: write model(input_ids)"
    if "attention_mask" in options:
        return "a GPT has no attention_mask: write mask=token_mask(attention_mask)"
    return None


def _is_mask(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.bool


def _is_added(mask: object) -> bool:
    """Whether it is a mask of numbers to add, as Hugging Face's models pass it."""
    return isinstance(mask, Tensor) and mask.is_floating_point() and mask.ndim > 2


def _translate(arguments: Mapping[str, object], ours: Mapping[str, str]) -> list[str]:
    """Write each argument once, under the name it has in this library."""
    lines: list[str] = []
    for name, value in arguments.items():
        short = isinstance(value, (bool, int, float, str))
        line = ours.get(name, f"{name}={{}}").format(value if short else name)
        if line and line not in lines:
            lines.append(line)
    return lines
