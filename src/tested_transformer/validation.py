"""Check arguments, and help callers who are used to other libraries.

An error names the argument, what came, and what was wanted. A call in the manner of
PyTorch, Hugging Face, Keras or torchtune gets an error with the line to write instead.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = [
    "MODEL_SETTINGS",
    "TRAINING_SETTINGS",
    "WRITING_SETTINGS",
    "advise_on_settings",
    "is_known",
    "is_open",
    "is_plain",
    "is_readable",
    "refuse_foreign_call",
    "refuse_foreign_model_call",
    "refuse_foreign_settings",
    "validate_attention",
    "validate_between",
    "validate_choice",
    "validate_divisible",
    "validate_dtype",
    "validate_features",
    "validate_heads",
    "validate_kinds",
    "validate_mask",
    "validate_shape",
    "validate_sizes",
    "validate_switches",
    "validate_text",
    "validate_tokens",
]


Kind = TypeVar("Kind", bound=type)
Layer = TypeVar("Layer", bound=nn.Module)


def is_known(condition: bool) -> bool:
    """Return whether a condition on lengths holds, for certain.

    Asking it of a length that ``torch.compile`` or ``torch.export`` leaves open would
    fix its answer for all lengths. It is then false unless it holds for each of them,
    so only a shortcut may depend on it.
    """
    if not torch.compiler.is_compiling():
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


def is_open(length: int) -> bool:
    """Return whether ``torch.compile`` or ``torch.export`` leaves a length open.

    What loops over such a length, or counts parts of it, would fix it.
    """
    if not torch.compiler.is_compiling():
        return False
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return not has_static_value(length)


def is_plain(module: nn.Module, kind: type[Layer]) -> TypeGuard[Layer]:
    """Return whether a module is of this very class, and computes nothing more.

    Only then do its weights say all about it. Adapters, quantized layers and the like
    take the place of a layer as another class, a hook, a ``forward`` of the object, or
    a weight that is a tensor of another kind.
    """
    return (
        type(module) is kind
        and not (module._forward_hooks or module._forward_pre_hooks)
        and not (module._backward_hooks or module._backward_pre_hooks)
        and not nn.modules.module._has_any_global_hook()
        and "forward" not in module.__dict__
        and not any(map(_is_of_another_kind, module._parameters.values()))
    )


def _is_of_another_kind(weight: Tensor | None) -> bool:
    # The types of almost all weights come first, because every layer asks in each call.
    usual = weight is None or type(weight) in (nn.Parameter, Tensor)
    return not usual and is_traceable_wrapper_subclass(weight)


def is_readable(numbers: Tensor) -> bool:
    """Return whether the numbers of a tensor are there for Python to read.

    They are not on the meta device, in a fake tensor, while a graph is traced, and
    within ``torch.func.vmap``.
    """
    return (
        type(numbers) is Tensor
        and not numbers.is_meta
        and not torch.compiler.is_compiling()
        and not is_functorch_wrapped_tensor(numbers)
    )


def validate_sizes(**sizes: int) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if a size is not a positive ``int``."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, torch.SymInt)):
            raise TypeError(f"{name}={size!r} must be an int")
        if size < 1:
            raise ValueError(f"{name}={size} must be positive")


def validate_switches(**switches: bool) -> None:
    """Raise a ``TypeError`` if a switch is not a ``bool``."""
    for name, switch in switches.items():
        if not isinstance(switch, bool):
            raise TypeError(f"{name}={switch!r} must be True or False")


def validate_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise a ``ValueError`` if a setting is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(choices)}")


def validate_between(
    name: str, value: float, low: float, high: float, limit: str = ""
) -> None:
    """Raise a ``ValueError`` if a value is not between ``low`` and ``high``.

    If ``high`` is the value of another setting, ``limit`` is that setting's name.
    """
    if not low <= value <= high:
        highest = f"{limit}={high}" if limit else high
        raise ValueError(f"{name}={value} must lie between {low} and {highest}")


def validate_divisible(name: str, width: int, num_heads: int) -> None:
    """Raise a ``ValueError`` if a width is not divisible by the number of heads."""
    if num_heads < 1 or width % num_heads:
        raise ValueError(f"{name}={width} must be divisible by num_heads={num_heads}")


def validate_heads(
    d_model: int,
    num_heads: int,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
) -> None:
    """Raise a ``ValueError`` if the numbers of heads do not fit the model's width.

    ``num_heads`` must divide ``d_model`` unless ``head_dim`` sets the width of a head;
    ``num_kv_heads`` must divide ``num_heads``.
    """
    validate_sizes(d_model=d_model, num_heads=num_heads)
    if head_dim is None:
        validate_divisible("d_model", d_model, num_heads)
    else:
        validate_sizes(head_dim=head_dim)
    if num_kv_heads is not None:
        validate_sizes(num_kv_heads=num_kv_heads)
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads={num_kv_heads} must divide num_heads={num_heads}"
            )


def validate_tokens(
    name: str,
    tokens: Tensor,
    vocab_size: int,
    max_seq_len: int,
    start: int = 0,
    positions: Tensor | None = None,
) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if a model cannot read these token ids.

    Args:
        name: Their name in the error.
        tokens: Token ids, (B, T).
        vocab_size: How many ids the model knows.
        max_seq_len: How many positions it knows.
        start: How many tokens its cache already holds.
        positions: The position of each token, if they are given.
    """
    if not isinstance(tokens, Tensor):
        nested = isinstance(tokens, list) and [type(each) for each in tokens[:1]] == [
            list
        ]
        raise TypeError(
            f"{name} must be a tensor, (B, T); it is a {type(tokens).__name__}: "
            f"for a list of ids write torch.tensor({name if nested else '[ids]'})"
        )
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise ValueError(
            f"{name} must be (B, T) and not empty; their shape is {tuple(tokens.shape)}"
        )
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must be int64 or int32; their dtype is {tokens.dtype}")
    if start + tokens.shape[1] > max_seq_len:
        held = f" after {start} in the cache" if start else ""
        raise ValueError(
            f"{tokens.shape[1]} {name}{held} are more than max_seq_len={max_seq_len}"
        )
    _validate_range(f"{name} hold ids", tokens, vocab_size=vocab_size)
    if positions is not None:
        _validate_positions(positions, tokens, max_seq_len)


def validate_text(name: str, tokens: Tensor) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if this is no text of token ids, (N)."""
    if not isinstance(tokens, Tensor):
        encode = ": write torch.tensor(tokenizer.encode(text))"
        raise TypeError(
            f"{name} must be a tensor of token ids, (N); it is a "
            f"{type(tokens).__name__}{encode if isinstance(tokens, str) else ''}"
        )
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise TypeError(f"{name} must be token ids; their dtype is {tokens.dtype}")
    if tokens.ndim != 1:
        raise ValueError(
            f"{name} must be one text, (N); their shape is {tuple(tokens.shape)}: "
            f"write {name}.flatten()"
        )


def _validate_positions(positions: Tensor, tokens: Tensor, max_seq_len: int) -> None:
    validate_shape("positions", positions, tokens.shape)
    if positions.is_floating_point():
        raise TypeError(f"positions must be integers; their dtype is {positions.dtype}")
    _validate_range("positions go", positions, max_seq_len=max_seq_len)


def _validate_range(told: str, numbers: Tensor, **limit: int) -> None:
    # Reading numbers on another device would mean waiting for it.
    if numbers.device.type != "cpu" or not is_readable(numbers):
        return
    extremes = numbers.aminmax()
    if not is_readable(extremes.min):  # what is computed may be fake
        return
    ((name, most),) = limit.items()
    lowest, highest = map(int, extremes)
    if lowest < 0 or highest >= most:
        raise ValueError(
            f"{told} from {lowest} to {highest}; they must be at least 0 and less than "
            f"{name}={most}"
        )


def validate_features(name: str, x: Tensor, width: int) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if these are not features, (B, T, D)."""
    if not isinstance(x, Tensor):
        kind = type(x).__name__
        raise TypeError(
            f"{name} must be a tensor, (batch, length, {width}); it is a {kind}"
        )
    if x.ndim != 3 or x.shape[-1] != width:
        raise ValueError(
            f"{name} must be (batch, length, {width}); it is {tuple(x.shape)}"
        )


def validate_dtype(name: str, x: Tensor, projection: nn.Module) -> None:
    """Raise a ``TypeError`` if the dtypes of features and of a projection differ.

    Another module than an ``nn.Linear`` decides for itself what it takes.
    """
    if not is_plain(projection, nn.Linear):
        return
    weight = projection.weight
    # Under autocast the product converts both to one type.
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        floats = x.is_floating_point()
        layer = f", or layer.to(torch.{_name(x.dtype)})" if floats else ""
        raise TypeError(
            f"{name} is {_name(x.dtype)}, the layer's weights {_name(weight.dtype)}: "
            f"write {name}.to(torch.{_name(weight.dtype)}){layer}"
        )


def validate_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    window: int | None,
    score_bias: Tensor | None,
    dropout_p: float,
    causal: bool = False,
) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if attention cannot use these arguments.

    The arguments are those of ``attention_with_weights``.
    """
    validate_kinds(q=q, k=k, v=v)
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q and k must be equally wide: q is {_show(q)}, k is {_show(k)}"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"k and v must be equally long: k is {_show(k)}, v is {_show(v)}"
        )
    if not (k.shape[:-2] == v.shape[:-2] and _may_share(q.shape, k.shape)):
        raise ValueError(
            "q, k and v must agree in every axis but the last two (keys and values "
            "may have fewer heads, which divide those of q): "
            f"q is {_show(q)}, k is {_show(k)}, v is {_show(v)}"
        )
    validate_between("dropout_p", dropout_p, 0, 1)
    validate_switches(causal=causal)
    if window is not None:
        validate_sizes(window=window)
    scores = torch.Size([*q.shape[:-1], k.shape[-2]])
    if mask is not None:
        validate_mask(mask, scores, q.device)
    if score_bias is not None:
        if not isinstance(score_bias, Tensor):
            raise TypeError(
                f"score_bias must be a tensor; it is a {type(score_bias).__name__}: "
                "write score_bias=torch.as_tensor(score_bias)"
            )
        if not score_bias.is_floating_point():
            raise TypeError(
                f"score_bias must be floating-point; its dtype is {score_bias.dtype}"
            )
        _validate_axes("score_bias", score_bias, scores, q.device)


def validate_kinds(**tensors: Tensor) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if tensors cannot be multiplied."""
    for name, given in tensors.items():
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} must be a tensor; it is a {type(given).__name__}")
    (first, one), *rest = tensors.items()
    names = ", ".join([first, *(name for name, _ in rest[:-1])]) + f" and {rest[-1][0]}"
    if any(each.device != one.device for _, each in rest):
        others = "".join(f", {name} on {each.device}" for name, each in rest)
        raise ValueError(
            f"{names} must be on one device: {first} is on {one.device}{others}"
        )
    # Under autocast the products convert their factors to one type.
    alike = all(each.dtype == one.dtype for _, each in rest)
    if not (alike or torch.is_autocast_enabled(one.device.type)):
        kinds = ", ".join(f"{name} is {_name(x.dtype)}" for name, x in tensors.items())
        raise TypeError(f"{names} must have one dtype: {kinds}")


def validate_shape(name: str, given: Tensor, shape: Iterable[int]) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if this is not a tensor of that shape."""
    shape = tuple(shape)
    if not isinstance(given, Tensor):
        kind = type(given).__name__
        raise TypeError(f"{name} must be a tensor, {shape}; it is a {kind}")
    if given.shape != shape:
        raise ValueError(f"{name} must be {shape}; it is {tuple(given.shape)}")


def validate_mask(mask: Tensor, scores: torch.Size, device: torch.device) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if a mask does not fit its scores."""
    if not isinstance(mask, Tensor):
        raise TypeError(
            "mask must be a boolean tensor (True = may attend); it is "
            + (
                "'causal': write causal=True"
                if isinstance(mask, str) and mask == "causal"
                else f"a {type(mask).__name__}: write mask=torch.as_tensor(mask)"
            )
        )
    if mask.dtype != torch.bool:
        ones = mask == 1
        if mask.is_floating_point() and ones.any() and (ones | (mask == 0)).all():
            advice = "ones and zeros, write mask=mask.bool()"
        elif mask.is_floating_point():
            advice = (
                "a mask that is added to the scores, write mask=from_additive(mask); "
                "for numbers that shift them, score_bias=mask"
            )
        else:
            advice = (
                "a tokenizer's ones and zeros, (B, S), write mask=token_mask(mask); "
                "for ones and zeros of another shape, mask=mask.bool()"
            )
        raise TypeError(
            "mask must be boolean (True = may attend); "
            f"it is {_name(mask.dtype)}. For {advice}"
        )
    _validate_axes("mask", mask, scores, device)


def _validate_axes(
    name: str, mask: Tensor, scores: torch.Size, device: torch.device
) -> None:
    # With a number of axes in between, the mask would be ambiguous: is (3, T, S) one
    # mask for each sequence, or one for each head?
    full = mask.ndim in (2, len(scores))
    if not full or not _broadcasts(mask.shape, scores):
        wanted = "(T, S) or (B, H, T, S), each axis full or 1"
        raise ValueError(
            f"{name} is {_show(mask)} but must be {wanted}; "
            f"the scores are {tuple(scores)}{_advise_on_axes(name, mask, scores)}"
        )
    if mask.device != device:
        raise ValueError(
            f"{name} is on {mask.device} but must be where q is, on {device}"
        )


def _advise_on_axes(name: str, mask: Tensor, scores: torch.Size) -> str:
    if len(scores) != 4:
        return ""
    b, h, _, s = scores
    if name == "mask" and mask.shape == (b, s):
        return ". For a mask of tokens, (B, S), write mask=token_mask(mask)"
    if mask.ndim != 3 or not _broadcasts(mask.shape[1:], scores):
        return ""
    ways = {
        h: ("head, (H, T, S)", "[None]"),
        b: ("sequence, (B, T, S)", "[:, None]"),
        b * h: ("head of each sequence", f".unflatten(0, ({b}, {h}))"),
    }
    if len(mask) not in ways:
        return ""
    meant, way = ways[len(mask)]
    return f". For one for each {meant}, write {name}={name}{way}"


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    if len(shape) > len(to):
        return False
    pairs = zip(shape, to[len(to) - len(shape) :], strict=True)
    # A list, because PyTorch 2.8 cannot compile what all() makes of a generator.
    return not [have for have, want in pairs if have not in (1, want)]


def _may_share(queries: torch.Size, keys: torch.Size) -> bool:
    if queries[:-2] == keys[:-2]:
        return True
    shared = len(queries) == len(keys) >= 4 and queries[:-3] == keys[:-3]
    return shared and keys[-3] > 0 and queries[-3] % keys[-3] == 0


def _show(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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


def advise_on_settings(ours: Mapping[str, str]) -> Callable[[Kind], Kind]:
    """Return a decorator that lets a class refuse other libraries' names of settings.

    Args:
        ours: The name that each has here.
    """

    def wrap(kind: Kind) -> Kind:
        init: Callable[..., None] = kind.__init__

        @wraps(init)
        def checked(self: object, *values: Any, **settings: Any) -> None:
            for name in settings:
                if name in ours:
                    raise TypeError(
                        f"{kind.__name__} has no setting {name!r}: write "
                        f"{ours[name]}={settings[name]!r}"
                    )
            init(self, *values, **settings)

        kind.__init__ = checked
        return kind

    return wrap


def refuse_foreign_settings(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap a layer's ``__init__`` to refuse other libraries' settings by name."""

    @wraps(init)
    def checked(self: nn.Module, *values: Any, **settings: Any) -> None:
        if values and hasattr(values[0], "d_model"):
            raise TypeError(
                "MultiHeadAttention takes keyword arguments: write "
                "MultiHeadAttention(d_model=config.d_model, num_heads=config.num_heads)"
            )
        if values or any(name in _SETTINGS_OF_OTHERS for name in settings):
            names = ("d_model", "num_heads", "dropout", "bias")
            given = dict(zip(names, values, strict=False)) | settings
            line = ", ".join(_translate(given, _SETTINGS_OF_OTHERS))
            raise TypeError(
                "MultiHeadAttention takes keyword arguments: "
                f"write MultiHeadAttention({line})"
            )
        init(self, **settings)

    return checked


def refuse_foreign_call(sequences: tuple[Tensor, ...], options: dict[str, Any]) -> None:
    """Raise a ``TypeError`` if a layer is called in another library's manner."""
    if len(sequences) < 2 and not any(name in _OPTIONS_OF_OTHERS for name in options):
        return
    masks_given = [each for each in sequences[1:] if _is_mask(each)]
    others = [each for each in sequences[1:] if not _is_mask(each)]
    context = ["context=keys"] if any(x is not sequences[0] for x in others) else []
    mask = ["mask=mask"] if masks_given else []
    ours = dict(_OPTIONS_OF_OTHERS)
    if _is_added(options.get("attention_mask")):
        ours["attention_mask"] = "mask=from_additive(attention_mask)"
    line = ", ".join(["x", *context, *mask, *_translate(options, ours)])
    masks = (
        "; in a mask True = may attend, and from_additive converts a mask of floats"
        if "attn_mask" in options
        else ""
    )
    raise TypeError(
        "MultiHeadAttention takes one sequence x, and for cross-attention a context: "
        f"write layer({line}){masks}"
    )


def refuse_foreign_model_call(inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise a ``TypeError`` if a GPT is called in another library's manner."""
    if len(inputs) > 1 or "targets" in options or "labels" in options:
        raise TypeError(
            "a GPT returns logits, not a loss: write "
            "next_token_loss(model(tokens), targets), with targets one token further on"
        )
    if "idx" in options or "input_ids" in options:
        raise TypeError("a GPT takes tokens by position: write model(input_ids)")
    if "attention_mask" in options:
        raise TypeError(
            "a GPT has no attention_mask: write mask=token_mask(attention_mask)"
        )


def _is_mask(given: object) -> bool:
    return isinstance(given, Tensor) and given.dtype == torch.bool


def _is_added(mask: object) -> bool:
    """Whether it is a mask of numbers to add, as Hugging Face's models pass it."""
    return isinstance(mask, Tensor) and mask.is_floating_point() and mask.ndim > 2


def _translate(given: dict[str, Any], ours: dict[str, str]) -> list[str]:
    """Write each argument once, under the name it has in this library."""
    lines: list[str] = []
    for name, value in given.items():
        short = isinstance(value, (bool, int, float, str))
        line = ours.get(name, f"{name}={{}}").format(value if short else name)
        if line and line not in lines:
            lines.append(line)
    return lines
