"""What is usual enough to need no word: how a layer is called, and where its parts are.

Nothing is found by trying. An attention is called without a word if its arguments are
one of three kinds, and compared if its projections lie in one of four ways. For all
others an adapter is written, in which a person says the rest.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from attention_check.reference import Reference, Rotary, packed, together
from attention_check.steps import causal_mask
from attention_check.subject import Adapted, HeadsLayer, declared

__all__ = [
    "Usual",
    "adapter_for",
    "arguments_of",
    "as_layer",
    "forms",
    "never_passed",
    "recognize",
]

_TRIPLES = (
    ("query", "key", "value"),
    ("queries", "keys", "values"),
    ("q", "k", "v"),
)
# The names of projections to queries, keys and values.
_PROJECTIONS = (
    *_TRIPLES,
    ("q_proj", "k_proj", "v_proj"),
    ("query_proj", "key_proj", "value_proj"),
    ("q_linear", "k_linear", "v_linear"),
    ("linear_q", "linear_k", "linear_v"),
    ("to_q", "to_k", "to_v"),
    ("wq", "wk", "wv"),
    ("w_q", "w_k", "w_v"),
    ("W_q", "W_k", "W_v"),
    ("W_Q", "W_K", "W_V"),
    ("w_qs", "w_ks", "w_vs"),
    ("fc_q", "fc_k", "fc_v"),
    ("W_query", "W_key", "W_value"),
)
_COUNTS = (
    *("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads"),
    *("nheads", "n_h", "h", "head"),
)
# Arguments that change what else is returned, or that a call is right to leave out.
_HARMLESS = {
    *("need_weights", "average_attn_weights", "return_weights", "output_attentions"),
    *("dropout_p", "scale", "enable_gqa"),
}
_FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"rotary": Rotary()},
    {"rotary": Rotary(pairing="neighbors")},
    {"alibi": True},
)


@dataclass
class Usual:
    """What is known about an attention without a word.

    Args:
        layer: The attention, or a layer around a function of heads.
        call: How it is called; ``None`` if that is not usual.
        parts: The projections and the number of heads, as settings of a ``Reference``;
            several if they can lie in several ways, none if they are not usual.
        code: The same as code, for an adapter.
    """

    layer: Any
    call: Callable[..., Any] | None = None
    parts: list[dict[str, Any]] = field(default_factory=list)
    code: dict[str, str] = field(default_factory=dict)


def arguments_of(attention: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of an attention, without ``*args`` and ``**kwargs``."""
    try:
        run = attention.forward if isinstance(attention, nn.Module) else attention
        parameters = inspect.signature(run).parameters
    except (TypeError, ValueError):
        # A function of C has no signature, but its documentation begins with one.
        head = (getattr(attention, "__doc__", None) or "").partition("(")[2]
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parts = (part.partition("=") for part in head.partition(")")[0].split(","))
        parameters = {
            name.strip(): inspect.Parameter(
                name.strip(), either, default=None if default else inspect._empty
            )
            for name, default, _ in parts
            if name.strip().isidentifier()
        }
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: p for name, p in parameters.items() if p.kind not in variadic}


def _required(attention: Any) -> list[str]:
    """Return the names of the arguments without a default."""
    parameters = arguments_of(attention).items()
    return [name for name, p in parameters if p.default is p.empty]


def never_passed(attention: Any, seen: set[str]) -> list[str]:
    """Return the arguments that no call passed, in order."""
    if not seen:
        return []
    return [name for name in arguments_of(attention) if name not in seen | _HARMLESS]


def recognize(attention: Any, call: Callable[..., Any] | None) -> Usual:
    """Return how an attention is called, and where its projections are.

    Args:
        attention: A layer, or a function of queries, keys and values.
        call: How it is called, if that has been said.
    """
    if call is not None and len(arguments := _positional(call)) == 4:
        if arguments[1:] != ["q", "k", "v"]:
            raise TypeError(
                f"call takes {', '.join(arguments)}: write call(layer, x, *, ...), or "
                "call(function, q, k, v, *, ...) for a function of heads"
            )
        layer = HeadsLayer(attention, call, num_heads=4, head_dim=6)
        return Usual(layer, as_layer(call), [_heads_parts(layer)])
    usual = Usual(attention, call)
    if isinstance(attention, nn.Module):
        _find_parts(attention, usual)
    if call is not None:
        return usual
    names = arguments_of(attention)
    triple = next((triple for triple in _TRIPLES if {*triple} <= {*names}), None)
    needed = {*_required(attention)} - {"causal", "is_causal"}
    if triple is not None and needed <= {*triple}:
        heads_call = _call_of_heads(names, triple) if not usual.parts else None
        has_weights = isinstance(attention, nn.Module) and any(
            True for _ in attention.parameters()
        )
        if heads_call is not None and not has_weights:
            layer = HeadsLayer(attention, heads_call, num_heads=4, head_dim=6)
            return Usual(
                layer, as_layer(heads_call, crossing=True), [_heads_parts(layer)]
            )
        if {"key_padding_mask", "attn_mask", "is_causal"} <= {*names}:
            usual.call = _call_like_mha(triple)
        elif has_weights:
            usual.call = _call_of_three(triple)
    elif {"mask", "causal"} <= {*names} and len(_required(attention)) == 1:
        usual.call = _call_with_mask
    elif len(_required(attention)) == 1:
        usual.call = _call_plain
    return usual


def _positional(call: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(call).parameters.values()
    return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]


def _heads_parts(layer: HeadsLayer) -> dict[str, Any]:
    parts = {"q": layer.q, "k": layer.k, "v": layer.v, "o": layer.o}
    return {**parts, "num_heads": layer.num_heads}


def as_layer(call: Callable[..., Any], *, crossing: bool = False) -> Callable[..., Any]:
    """Return a call of a layer that declares what a call of a function declares.

    Args:
        call: Calls a function of heads.
        crossing: Whether keys and values may come from another sequence.
    """

    def run(layer: HeadsLayer, x: Tensor, **options: Any) -> Any:
        return layer(x, by=call, **options)

    words = {**declared(call), **({"context": False} if crossing else {})}
    return Adapted(run, tuple(words.items()))


def _call_plain(layer: Any, x: Tensor) -> Any:
    return layer(x)


def _call_with_mask(
    layer: Any, x: Tensor, *, causal: bool, real: Tensor | None = None
) -> Any:
    mask = None if real is None else real[:, None, None]
    return layer(x, mask=mask, causal=causal)


def _call_of_three(names: tuple[str, ...]) -> Callable[..., Any]:
    def call(layer: Any, x: Tensor, *, context: Tensor) -> Any:
        return layer(**dict(zip(names, (x, context, context), strict=True)))

    return call


def _call_like_mha(names: tuple[str, ...]) -> Callable[..., Any]:
    def call(
        layer: Any,
        x: Tensor,
        *,
        causal: bool,
        context: Tensor,
        real: Tensor | None = None,
    ) -> Any:
        first = getattr(layer, "batch_first", True)
        inputs = (x, context, context)
        if not first:
            inputs = tuple(sequence.transpose(0, 1) for sequence in inputs)
        mask = ~causal_mask(x.shape[1], context.shape[1]) if causal else None
        sequences = dict(zip(names, inputs, strict=True))
        if real is None:
            plain = {"attn_mask": mask, "is_causal": causal, "need_weights": False}
            output = layer(**sequences, **plain)
        else:
            output = layer(**sequences, attn_mask=mask, key_padding_mask=~real)
        output = output[0] if isinstance(output, tuple) else output
        return output if first else output.transpose(0, 1)

    return call


def _call_of_heads(
    names: dict[str, Any], triple: tuple[str, ...]
) -> Callable[..., Any] | None:
    """Return how a function of heads is called, if its masks are of a usual kind."""
    masks = {*names} & {"attn_mask", "is_causal", "mask", "causal"}
    kinds = {
        frozenset(): ("", "", False),
        frozenset({"attn_mask", "is_causal"}): ("attn_mask", "is_causal", True),
        frozenset({"mask", "causal"}): ("mask", "causal", False),
    }
    if (kind := kinds.get(frozenset(masks))) is None:
        return None
    mask_name, causal_name, alone = kind

    if not masks:

        def plain(function: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
            return function(**dict(zip(triple, (q, k, v), strict=True)))

        return plain

    def call(
        function: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        causal: bool,
        real: Tensor | None = None,
    ) -> Any:
        options: dict[str, Any] = {causal_name: causal}
        if real is not None:
            mask = real[:, None, None]
            if causal and alone:  # it takes one of the two
                mask = mask & causal_mask(q.shape[-2], k.shape[-2])
                options = {}
            options[mask_name] = mask
        return function(**dict(zip(triple, (q, k, v), strict=True)), **options)

    return call


def _find_parts(layer: nn.Module, usual: Usual) -> None:
    """Find the projections of a layer, if they are all that has parameters."""
    count = next((name for name in _COUNTS if _is_count(layer, name)), None)
    own = [name for name, _ in layer.named_parameters(recurse=False)]
    with_weights = {
        name: module
        for name, module in layer.named_children()
        if any(True for _ in module.parameters())
    }
    heads = [
        module for module in with_weights.values() if isinstance(module, nn.ModuleList)
    ]
    if len(heads) == 1 and not own and len(with_weights) <= 2:
        _find_list(with_weights, heads[0], usual)
        return
    triple = next(
        (triple for triple in _PROJECTIONS if {*triple} <= {*with_weights}), None
    )
    rest = [name for name in with_weights if name not in (triple or ())]
    if triple is not None:
        for word, name in zip("qkv", triple, strict=True):
            usual.code[word] = f"layer.{name}"
    if count is not None:
        usual.code["num_heads"] = f"layer.{count}"
    plain = {*own} <= {"in_proj_weight", "in_proj_bias"}
    if "in_proj_weight" in own and plain and not getattr(layer, "add_zero_attn", False):
        _find_in_projection(layer, count, usual)
        return
    linear = [name for name in rest if _is_linear(with_weights[name])]
    if triple is not None and len(linear) == 1:
        usual.code["o"] = f"layer.{linear[0]}"
    if own or not all(_is_linear(module) for module in with_weights.values()):
        return
    if triple is not None and len(rest) <= 1:
        if count is None:
            return
        num_heads = getattr(layer, count)
        q, k, v = (with_weights[name] for name in triple)
        width, of_keys = (_sizes(projection)[1] for projection in (q, k))
        kv_heads = of_keys * num_heads // width
        o = with_weights[rest[0]] if rest else None
        parts = {"q": q, "k": k, "v": v, "o": o, "num_heads": num_heads}
        usual.parts = [{**parts, "num_kv_heads": kv_heads}]
    elif triple is None and len(with_weights) == 2:
        names = sorted(with_weights, key=lambda name: -max(_sizes(with_weights[name])))
        together_, o = (with_weights[name] for name in names)
        if max(_sizes(together_)) != 3 * max(_sizes(o)):
            return
        usual.code["o"] = f"layer.{names[1]}"
        usual.code["packed"] = f"layer.{names[0]}"
        if count is not None:
            num_heads = getattr(layer, count)
            usual.parts = [
                {**packed(together_, num_heads=num_heads, order=order), "o": o}
                for order in ("thirds", "heads")
            ]


def _find_list(
    with_weights: dict[str, nn.Module], heads: nn.ModuleList, usual: Usual
) -> None:
    """Find the projections of a list of heads and of what joins them."""
    children = [dict(head.named_children()) for head in heads]
    triple = next(
        (triple for triple in _PROJECTIONS if {*triple} <= {*children[0]}), None
    )
    others = [module for module in with_weights.values() if module is not heads]
    if triple is None or not all(map(_is_linear, others)):
        return
    q, k, v = (together(*(modules[name] for modules in children)) for name in triple)
    parts = {"q": q, "k": k, "v": v, "o": others[0] if others else None}
    usual.parts = [{**parts, "num_heads": len(heads)}]


def _find_in_projection(layer: nn.Module, count: str | None, usual: Usual) -> None:
    """Find the projections of ``in_proj_weight`` and ``out_proj``."""
    out = getattr(layer, "out_proj", None)
    if count is None or not isinstance(out, nn.Module):
        return

    def take(which: int) -> Callable[[Any, Tensor], Tensor]:
        def project(layer: Any, x: Tensor) -> Tensor:
            weight = layer.in_proj_weight.chunk(3)[which]
            bias = layer.in_proj_bias
            return nn.functional.linear(
                x, weight, None if bias is None else bias.chunk(3)[which]
            )

        return project

    q, k, v = (take(which) for which in range(3))
    parts = {"q": q, "k": k, "v": v, "o": out, "num_heads": getattr(layer, count)}
    usual.parts = [parts]


def _is_count(layer: nn.Module, name: str) -> bool:
    value = getattr(layer, name, None)
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_linear(module: nn.Module) -> bool:
    """Return whether a module is linear: a matrix and perhaps a bias."""
    parameters = [*module.parameters()]
    return parameters[0].ndim == 2 and [p.ndim for p in parameters[1:]] in (
        [],
        [1],
    )


def _sizes(module: nn.Module) -> tuple[int, int]:
    """Return how many features a linear module takes and returns."""
    matrix = next(iter(module.parameters()))
    linear = next(
        (child for child in module.modules() if isinstance(child, nn.Linear)), None
    )
    if linear is not None:
        return linear.in_features, linear.out_features
    return matrix.shape[0], matrix.shape[1]


def forms(usual: Usual, causal: bool | None) -> Iterator[Reference]:
    """Yield the usual forms that a layer may have.

    Args:
        usual: What is known about the layer.
        causal: Whether it is causal; ``None`` if that is not known.
    """
    for number, parts in enumerate(usual.parts):
        # Positions are not the business of a function of heads, nor usual in the rarer
        # order of packed projections.
        plain = number or isinstance(usual.layer, HeadsLayer)
        for settings in _FORMS[:1] if plain else _FORMS:
            for mode in (True, False) if causal is None else (causal,):
                yield Reference(**parts, **settings, causal=mode)


def adapter_for(
    attention: Any,
    usual: Usual,
    *,
    call: bool,
    causal: bool | None = None,
    like: bool = True,
    asks: bool = False,
) -> str:
    """Write the call that a person has to complete.

    Args:
        attention: The attention.
        usual: What is known about it.
        call: Whether to write how it is called.
        causal: Whether it is causal, if that was said.
        asks: Whether to ask whether it is causal.
        like: Whether to write what it should compute.
    """
    causal_lines = [f"causal={causal},"] if causal is not None else [_CAUSAL] * asks
    if not isinstance(attention, nn.Module):
        args = "".join(
            f"        {line}\n" for line in _argument_lines(arguments_of(attention))
        )
        head = (
            "    # a function of heads, (B, H, T, d): give it q, k and v. If it takes\n"
            "    # masks: lambda f, q, k, v, *, causal, real: ..."
        )
        call_of_heads = "    call=lambda f, q, k, v: f("
        ends = [f"    {line}" for line in causal_lines]
        lines = ["check_attention(", "    f,", head, call_of_heads, args + "    ),"]
        return "\n".join([*lines, *ends, ")"])
    lines = ["check_attention(", "    layer,"]
    if call:
        lines += [f"    {line}" for line in _call_lines(arguments_of(attention))]
    if like:
        lines.append("    like=Reference(")
        lines += [f"        {line}" for line in _like_lines(attention, usual)]
        lines += [f"        {line}" for line in causal_lines]
        lines.append("        # and what else it has: rotary=, alibi=, window=, scale=")
        lines.append("    ),")
    else:
        lines += [f"    {line}" for line in causal_lines]
    return "\n".join([*lines, ")"])


_CAUSAL = "causal=...,  # whether a token ignores later ones, if call cannot say"


def _call_lines(parameters: dict[str, inspect.Parameter]) -> list[str]:
    """Return how a layer is called, with what its other arguments could be given."""
    rest = dict([*parameters.items()][1:])
    for name in _HARMLESS:
        rest.pop(name, None)
    if not rest:
        return ["call=lambda layer, x: layer(x),"]
    return [
        "# If it takes masks: lambda layer, x, *, causal, real: ..., of which",
        "# allowed(x, causal=causal, real=real) makes one, (B, 1, T, T).",
        "# causal is a bool; real is (B, T), True for tokens. Declare what it can do.",
        "call=lambda layer, x: layer(",
        "    x,",
        *[f"    {line}" for line in _argument_lines(rest)],
        "),",
        "# pieces=lambda layer, parts: ...,  # if it has a cache: read one by one",
    ]


def _argument_lines(parameters: dict[str, inspect.Parameter]) -> list[str]:
    """Return a line for each argument, as a comment if it has a default."""
    return [
        f"{name}=...," if p.default is p.empty else f"# {name}=...,"
        for name, p in parameters.items()
    ]


def _like_lines(attention: Any, usual: Usual) -> list[str]:
    code = usual.code
    count = code.get("num_heads", "...")
    if "packed" in code:
        return [
            f"**packed({code['packed']}, num_heads={count}),",
            f"o={code['o']},",
        ]
    lines: list[str] = []
    if isinstance(attention, nn.Module):
        children = [f"layer.{name}" for name, _ in attention.named_children()]
        if missing := [child for child in children if child not in code.values()]:
            lines.append(f"# not used below: {', '.join(missing)}")
    lines += [f"{word}={code.get(word, '...')}," for word in "qkvo"]
    return [*lines, f"num_heads={count},"]
