"""Verify that the modules of a set run, and that each bug changes what one computes."""

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.corpus.modules import Module, make

__all__ = ["problems"]

_LENGTHS = (3, 11, 70)
_Options = dict[str, Any]


def problems(module: Module, folder: Path) -> Iterator[str]:
    """Yield what is wrong with a module, with what it is said to compute, or its bugs.

    A bug must change an output or a gradient: in one of three lengths, while training
    or evaluating, and with one of the masks and contexts that the call can be given.
    An error is no change.
    """
    runs: list[tuple[_Options, Tensor, bool, tuple[Tensor, Tensor]]] = []
    error: Exception | None = None
    try:
        right, settings = make(module, folder)
        right.double()
        call = settings.get("call") or _plain(right)
    except Exception as raised:  # a module can raise anything
        yield _said(module, "", raised)
        return
    for length, training in product(_LENGTHS, (False, True)):
        x = _features(module, length)
        for options in _options(call, x):
            try:
                result = _run(right, call, x, options, training=training)
            except Exception as raised:  # many have a longest sequence
                error = error or raised
            else:
                runs.append((options, x, training, result))
    if not runs:
        yield _said(module, "", error)
    elif like := settings.get("like"):
        yield from _unlike(module, right, like, runs)
    for bug in module.bugs if runs else ():
        what: Exception | str = "it changes nothing"
        try:
            wrong, settings = make(module, folder, bug)
            wrong.double()
            call = settings.get("call") or _plain(wrong)
        except Exception as raised:
            yield _said(module, bug.bug, raised)
            continue
        for options, x, training, result in runs:
            try:
                got = _run(wrong, call, x, options, training=training)
            except Exception as raised:  # such as a mask that does not fit a context
                what = raised
            else:
                if not _equal(result, got):
                    break
        else:
            yield _said(module, bug.bug, what)


def _said(module: Module, bug: str, what: Exception | str | None) -> str:
    error = f"{type(what).__name__}: " if isinstance(what, Exception) else ""
    return f"{module.name}, {bug or 'no bug'}: {error}{what}"[:300]


def _features(module: Module, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randn(2, length, module.d_model, generator=generator).double()


def _plain(layer: nn.Module) -> Callable[..., Tensor]:
    """Return a call with the features, as often as the layer needs them."""
    parameters = inspect.signature(layer.forward).parameters.values()
    needed = [each for each in parameters if each.default is each.empty]
    count = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in needed)

    return lambda layer, x: layer(*[x] * count)


def _options(call: Callable[..., Tensor], x: Tensor) -> Iterator[_Options]:
    """Yield all that a call can be given: causal or not, with padding, of a context."""
    parameters = inspect.signature(call).parameters.values()
    defaults = {
        each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY
    }
    length = x.shape[1]
    contexts = x, x.flip(0, 1)[:, : length - 1] * 0.7
    for causal, padded, other in product((False, True), repeat=3):
        given = {"causal": causal, "real": padded, "context": other}
        if any(value and key not in defaults for key, value in given.items()):
            continue
        context = contexts[other]
        real = torch.ones(context.shape[:2], dtype=torch.bool)
        real[1, -1] = not padded
        if causal and other:
            continue
        options = {"causal": causal, "real": real, "context": context}
        yield {
            key: options[key]
            for key, default in defaults.items()
            if key in options and (given[key] or default is not None)
        }


def _run(
    layer: nn.Module,
    call: Callable[..., Tensor],
    x: Tensor,
    options: _Options,
    *,
    training: bool,
) -> tuple[Tensor, Tensor]:
    """Return the output of a call and its gradient."""
    layer.train(training)
    torch.manual_seed(5)
    leaf = x.clone().requires_grad_()
    if options.get("context") is x:
        options = {**options, "context": leaf}
    output = call(layer, leaf, **options)
    output = output[0] if isinstance(output, tuple | list) else output
    if output.shape != x.shape:
        raise ValueError(f"the output's shape is {(*output.shape,)}, not {(*x.shape,)}")
    kept = torch.linspace(-1, 1, output.numel()).sin().view(output.shape).double()
    (gradient,) = torch.autograd.grad((output.double() * kept).sum(), leaf)
    return output.detach(), gradient


def _equal(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> bool:
    return all(
        torch.allclose(x, y, rtol=0, atol=1e-9, equal_nan=True)
        for x, y in zip(one, other, strict=True)
    )


def _unlike(
    module: Module, layer: nn.Module, like: Any, runs: list[Any]
) -> Iterator[str]:
    """Yield where a module does not compute what it is said to compute."""
    layer.eval()
    for options, x, training, (output, _) in runs:
        if training:
            continue
        with torch.no_grad():
            if hasattr(like, "bind"):
                expected = like.double().bind(layer)(x, **options)
            else:
                expected = like(layer, x, **options)
        real = options.get("real")
        own = real is not None and options.get("context", x) is x
        rows = real if own else torch.ones(x.shape[:2], dtype=torch.bool)
        if not torch.allclose(output[rows], expected[rows], rtol=1e-6, atol=1e-6):
            off = (output[rows] - expected[rows]).abs().max()
            with_ = [key for key, value in options.items() if value is not False]
            yield _said(module, "", f"off by {off:.2g}, {x.shape[1]} long, {with_}")
