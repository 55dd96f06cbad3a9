"""A layer as the checks see it: copied, in double precision, and called by its adapter.

The layer and its reference are copied together, so that both have the same weights.
"""

import copy
import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attention_check.reference import Reference

__all__ = [
    "Adapted",
    "Dropout",
    "HeadsLayer",
    "LikeError",
    "NotAskedError",
    "Subject",
    "Use",
    "declared",
    "first",
    "paddings",
    "prepare",
]

Call = Callable[..., Any]
# What the keyword-only parameters of a call may be.
_WORDS = ("causal", "real", "context")


class NotAskedError(Exception):
    """A check does not apply to an attention; the message says why."""


class LikeError(ValueError):
    """What a layer should compute cannot be computed."""


class Dropout(TorchFunctionMode):
    """Sees each dropout while it is active, and can turn it off.

    Args:
        off: Whether nothing is dropped.
    """

    def __init__(self, *, off: bool) -> None:
        super().__init__()
        self.off, self.largest = off, 0.0
        self.dropped: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function of PyTorch, perhaps with no probability of dropping."""
        kwargs = kwargs or {}
        if func in _DROPPING:
            names, default = _DROPPING[func]
            arguments = {**dict(zip(names, args, strict=False)), **kwargs}
            where = "p" if "p" in names else "dropout_p"
            active = arguments.get("training", True) and arguments.get("train", True)
            p = arguments.get(where, default) * bool(active)
            self.largest = max(self.largest, p)
            if p and isinstance(x := arguments.get("input"), Tensor):
                self.dropped.append(x.detach())
            if self.off:
                args, kwargs = (), {**arguments, where: 0.0}
        return func(*args, **kwargs)


_OF_DROPOUT = ("input", "p", "training", "inplace")
_OF_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_DROPPING: dict[Any, tuple[Sequence[str], float]] = {
    F.dropout: (_OF_DROPOUT, 0.5),
    F.feature_alpha_dropout: (_OF_DROPOUT, 0.5),
    torch.dropout: (("input", "p", "train"), 0.5),
    F.dropout1d: (_OF_DROPOUT, 0.5),
    F.dropout2d: (_OF_DROPOUT, 0.5),
    F.alpha_dropout: (_OF_DROPOUT, 0.5),
    F.scaled_dot_product_attention: (_OF_ATTENTION, 0.0),
    F.multi_head_attention_forward: (
        [*inspect.signature(F.multi_head_attention_forward).parameters],
        0.0,
    ),
}


@dataclass(frozen=True)
class Adapted:
    """A call that declares what another one declares.

    Args:
        run: What is called, with a layer, features and what is given.
        words: What may be given, and whether it has to be.
    """

    run: Callable[..., Any]
    words: tuple[tuple[str, bool], ...]

    def __call__(self, layer: Any, x: Tensor, **options: Any) -> Any:
        """Call what it stands for."""
        return self.run(layer, x, **options)


class HeadsLayer(nn.Module):
    """A function of queries, keys and values, with projections around it.

    Args:
        function: Takes heads, (B, H, T, d).
        call: How to call it: ``call(function, q, k, v, ...)``.
        num_heads: H.
        head_dim: d.
    """

    def __init__(
        self, function: Callable[..., Any], call: Call, *, num_heads: int, head_dim: int
    ) -> None:
        super().__init__()
        self.function, self.call, self.num_heads = function, call, num_heads
        self.writes = False  # whether a call has changed queries, keys or values
        width = num_heads * head_dim
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, *, by: Call | None = None, **options: Any) -> Any:
        """Attend, with another function if there is one.

        The other options are those that the call declares.
        """
        context = options.pop("context", None)
        context = x if context is None else context
        q, k, v = (
            project(sequence).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project, sequence in ((self.q, x), (self.k, context), (self.v, context))
        )
        before = [part.detach().clone() for part in (q, k, v)]
        heads = (by or self.call)(self.function, q, k, v, **options)
        pairs = zip(before, (q, k, v), strict=True)
        self.writes |= not all(torch.equal(old, new) for old, new in pairs)
        heads = first(heads)
        if heads.shape != q.shape:
            raise ValueError(
                f"it returns {tuple(heads.shape)} for queries of {tuple(q.shape)}"
            )
        return self.o(heads.transpose(1, 2).flatten(2))

    def reference(self, **settings: Any) -> Reference:
        """Return what it should compute."""
        parts = {"q": self.q, "k": self.k, "v": self.v, "o": self.o}
        return Reference(**parts, num_heads=self.num_heads, **settings)


@dataclass(frozen=True, eq=False)
class Use:
    """One way to use an attention.

    Args:
        x: The features, (B, T, D).
        causal: Whether later keys are ignored.
        real: (B, S), ``True`` where a key is no padding; ``None`` for no padding.
        context: What is attended to; ``None`` for ``x``.
        parts: The sizes of the parts in which it is read, with a cache.
        training: Whether the layer is in training mode.
    """

    x: Tensor
    causal: bool
    real: Tensor | None = None
    context: Tensor | None = None
    parts: tuple[int, ...] = ()
    training: bool = False

    @property
    def rows(self) -> Tensor:
        """The queries that count, (B, T): those that are no padding."""
        if self.real is None or self.context is not None:
            return torch.ones(self.x.shape[:2], dtype=torch.bool)
        return self.real

    @property
    def begins_padded(self) -> bool:
        """Whether some sequence begins with padding."""
        return self.real is not None and not bool(self.real[:, 0].all())

    def __str__(self) -> str:
        words = ["causal" if self.causal else "both sides"]
        words += ["another context"] * (self.context is not None)
        words += [f"in parts of {self.parts}"] * bool(self.parts)
        words += ["training"] * self.training
        if self.real is not None:
            where = "in front" if self.begins_padded else "at the end"
            words.append(f"padding {where}")
        return ", ".join(words)


@dataclass(frozen=True, eq=False)
class Subject:
    """An attention, ready to be checked.

    Args:
        layer: The copied layer.
        call: How it is called.
        name: What reports call it.
        d_model: D, the width of its features.
        d_context: The width of a context.
        dtype: The type that it computes in.
        like: What it should compute; ``None`` if that is not known.
        pieces: How it reads a sequence in pieces; ``None`` if it cannot.
        causal: Whether it is causal, if its call cannot say; ``None`` if that is not
            known either.
        lengths: How long the sequences are that it is asked about.
        factor: What multiplies random features, so that scores are neither all near
            zero nor huge.
        least: The least precise type that it computes something in.
        left_out: Why longer sequences are left out.
    """

    layer: Any
    call: Call
    name: str
    d_model: int
    d_context: int
    dtype: torch.dtype = torch.float64
    like: Reference | Call | None = None
    pieces: Callable[[Any, list[Tensor]], Any] | None = None
    causal: bool | None = None
    lengths: tuple[int, ...] = (7, 67)
    factor: float = 1.0
    least: torch.dtype = torch.float64
    left_out: tuple[str, ...] = ()

    @property
    def declared(self) -> dict[str, bool]:
        """What a call may be given, and whether it has to be."""
        return declared(self.call)

    @property
    def modes(self) -> tuple[bool, ...]:
        """The values of ``causal`` that can be asked about."""
        if "causal" in self.declared:
            return (True, False)
        return () if self.causal is None else (self.causal,)

    @property
    def pads(self) -> bool:
        """Whether it can be told which tokens are padding."""
        return "real" in self.declared

    @property
    def module(self) -> nn.Module | None:
        """The layer, if it is a module."""
        return self.layer if isinstance(self.layer, nn.Module) else None

    @property
    def slack(self) -> float:
        """How far two answers of the layer may be apart, relative to the largest."""
        least = min((self.dtype, self.least), key=lambda dtype: torch.finfo(dtype).bits)
        return {64: 1e-9, 32: 1e-5, 16: 1e-2}[torch.finfo(least).bits]

    def cast(self, dtype: torch.dtype) -> Any:
        """Return a copy of the layer in another type."""
        layer = _copied(self.layer).to(dtype)
        if isinstance(layer, Reference) and isinstance(layer.layer, nn.Module):
            layer.layer.to(dtype)  # for its functions
        return layer

    def sample(self, length: int, *, seed: int = 0, batch: int = 3) -> Tensor:
        """Return random features, (B, T, D)."""
        return self.draw(length, seed, batch, self.d_model)

    def context(self, length: int = 5) -> Tensor:
        """Return a random context, (B, S, D)."""
        return self.draw(length, 3, 3, self.d_context)

    def draw(self, length: int, seed: int, batch: int, width: int) -> Tensor:
        """Return random numbers, (batch, length, width)."""
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(batch, length, width, generator=draw, dtype=torch.float64)
        return self.factor * x

    def answer(self, use: Use, *, drop: bool = False, dtype: Any = None) -> Tensor:
        """Return the output of the layer for a use.

        Args:
            use: The use.
            drop: Whether dropout stays as it is; by default nothing is dropped.
            dtype: The type of the features; by default that of the layer.

        Raises:
            ValueError: If it fails, or returns something else than it should.
        """
        x = use.x.to(dtype or self.dtype).contiguous()
        if self.module is not None:
            self.module.train(use.training)
        try:
            with Dropout(off=not drop):
                if use.parts:
                    assert self.pieces is not None
                    # An equal copy, in which no cache of an earlier reading is left.
                    output = self.pieces(
                        _copied(self.layer),
                        [part.contiguous() for part in x.split([*use.parts], dim=1)],
                    )
                    if isinstance(output, Sequence):
                        output = torch.cat([first(part) for part in output], dim=1)
                else:
                    keywords = _keywords_of(self.call, use, dtype or self.dtype)
                    output = first(self.call(self.layer, x, **keywords))
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            raise ValueError(f"{self.name} cannot be called: {message}") from error
        if not isinstance(output, Tensor):
            raise ValueError(f"{self.name} returns no tensor: {type(output).__name__}")
        if output.shape != use.x.shape:
            raise ValueError(
                f"{self.name} returns {tuple(output.shape)} for x of "
                f"{tuple(use.x.shape)}: attention must keep the shape"
            )
        return output

    def right(self, use: Use) -> Tensor:
        """Return what the output should be.

        Raises:
            NotAskedError: If that is not known.
        """
        if self.like is None:
            raise NotAskedError("what it should compute is not known: give like=")
        try:
            output = self._right(use)
        except (NotAskedError, LikeError):
            raise
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            raise LikeError(f"like cannot be called ({use}): {message}") from error
        if not isinstance(output, Tensor) or output.shape != use.x.shape:
            shape = tuple(getattr(output, "shape", ()))
            raise LikeError(f"like returns {shape} for x of {tuple(use.x.shape)}")
        return output

    def _right(self, use: Use) -> Any:
        x = use.x.to(torch.float64)
        if isinstance(self.like, Reference):
            self.like.training = use.training
            if use.parts:
                parts = [part.contiguous() for part in x.split([*use.parts], dim=1)]
                return self.like.read(parts)
            real = use.real
            if real is None and self.declared.get("real"):
                keys = use.x if use.context is None else use.context
                real = torch.ones(keys.shape[:2], dtype=torch.bool)  # as it is passed
            options = {"context": use.context, "causal": use.causal, "real": real}
            if not use.training:
                return self.like(x, **options)
            with Dropout(off=True):  # of modules that it shares with the layer
                return self.like(x, **options)
        assert self.like is not None
        keywords = _keywords_of(self.like, replace(use, parts=()), torch.float64)
        with Dropout(off=True):
            return first(self.like(self.layer, x, **keywords)).double()

    def uses(self, *, padded: bool = True, brief: bool = False) -> Iterator[Use]:
        """Yield the uses of sequences in one piece, the short ones first.

        Args:
            padded: Whether some have padding.
            brief: Whether long sequences are only used in the plainest way.

        Raises:
            NotAskedError: If it is not known whether it is causal.
        """
        if not self.modes:
            raise NotAskedError("whether it is causal is not known: give causal=")
        for length in self.lengths:
            x = self.sample(length)
            if brief and length != self.lengths[0]:
                yield self.first_use(length, self.modes[0])
                continue
            for causal in () if self.crosses else self.modes:
                yield Use(x, causal)
                if padded and self.pads and length > 2:
                    front, end = paddings(x)
                    yield Use(x, causal, end)
                    yield Use(x, causal, front)
            if "context" in self.declared and False in self.modes:
                for width in (5, length, length + 2):
                    yield Use(x, False, context=self.context(width))
                for real in paddings(self.context()) if padded and self.pads else ():
                    yield Use(x, False, real, self.context())

    @property
    def crosses(self) -> bool:
        """Whether it only attends to a context, as that has another width."""
        return bool(self.declared.get("context")) and self.d_context != self.d_model

    def alone(self, length: int, causal: bool) -> Use:
        """Return a use of self-attention.

        Raises:
            NotAskedError: If it only attends to a context.
        """
        if self.crosses:
            raise NotAskedError("it only attends to another sequence")
        return Use(self.sample(length), causal)

    def first_use(self, length: int, causal: bool) -> Use:
        """Return the plainest use that there is."""
        context = self.context(length) if self.crosses else None
        return Use(self.sample(length), causal, context=context)


def _copied(original: Any, layer: Any = None) -> Any:
    """Return a deep copy, without the graph of tensors that a layer keeps of a call."""
    layer = original if layer is None else layer
    memo: dict[int, Any] = {}
    for part in (layer, getattr(layer, "layer", None)):  # a reference's, too
        for module in part.modules() if isinstance(part, nn.Module) else ():
            for value in vars(module).values():
                if isinstance(value, Tensor) and not value.is_leaf:
                    memo[id(value)] = value.detach().clone()
    return copy.deepcopy(original, memo)


def first(output: Any) -> Any:
    """Return an output, or the first of several."""
    return output[0] if isinstance(output, Sequence) and output else output


def paddings(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is real with padding in front and at the end, each (B, T)."""
    length = x.shape[1]
    counts = torch.tensor([length - 1, max(1, length - 4), length])[: len(x), None]
    position = torch.arange(length)
    return position >= length - counts, position < counts


@lru_cache(maxsize=16)
def declared(call: Call) -> dict[str, bool]:
    """Return which words a call declares, and whether each has no default.

    Raises:
        TypeError: If it has another keyword-only parameter.
    """
    if isinstance(call, Adapted):
        return dict(call.words)
    words: dict[str, bool] = {}
    for p in inspect.signature(call).parameters.values():
        if p.kind is p.KEYWORD_ONLY:
            if p.name not in _WORDS:
                raise TypeError(
                    f"call has the parameter {p.name}; keyword-only parameters may "
                    f"be {', '.join(_WORDS)}"
                )
            words[p.name] = p.default is p.empty
    return words


def _keywords_of(call: Call, use: Use, dtype: torch.dtype) -> dict[str, Any]:
    """Return the keyword arguments of a call for a use."""
    words = declared(call)
    keywords: dict[str, Any] = {}
    if "causal" in words:
        keywords["causal"] = use.causal
    if "context" in words and (words["context"] or use.context is not None):
        keywords["context"] = (use.x if use.context is None else use.context).to(dtype)
    if "real" in words and (words["real"] or use.real is not None):
        keys = use.x if use.context is None else use.context
        real = torch.ones(keys.shape[:2], dtype=torch.bool)
        keywords["real"] = real if use.real is None else use.real
    return keywords


def prepare(
    layer: Any, call: Call, likes: list[Any], *, name: str, **settings: Any
) -> tuple[Subject, list[Any]]:
    """Return a subject, and copies of what it may have to compute.

    Layer and references are copied together, so that they share their parameters.

    Raises:
        ValueError: If the layer cannot be copied, or cannot be called at any width.
    """
    try:
        layer, likes = _copied((layer, likes), layer)
    except Exception as error:
        raise ValueError(f"{name} cannot be copied: {error}") from error
    if isinstance(layer, nn.Module):
        _draw_again(layer)
        layer.double()
        for p in layer.parameters():
            p.requires_grad_(True)  # gradients are compared, of frozen ones, too
    for reference in likes:
        if isinstance(reference, Reference):
            reference.double().bind(layer)
    like = likes[0] if likes else None
    widths = [settings.pop("d_model", None)]
    if widths == [None]:
        widths = _widths(layer, like)
    d_context = settings.pop("d_context", None)
    subject = Subject(layer, call, name, 1, 1, **settings)
    failed: Exception | None = None
    for dtype in (torch.float64, torch.float32):
        if isinstance(layer, nn.Module) and dtype != torch.float64:
            subject = replace(subject, layer=_copied(layer).to(dtype))
        for width in widths:
            sized = replace(
                subject, d_model=width, d_context=d_context or width, dtype=dtype
            )
            failures = {length: _failure(sized, length) for length in sized.lengths}
            if (failure := failures[sized.lengths[0]]) is not None:
                failed = failed or failure
                continue
            works = tuple(n for n, failure in failures.items() if failure is None)
            left = [str(error) for error in failures.values() if error is not None]
            sized = replace(sized, lengths=works, left_out=tuple(left))
            return _tuned(sized, like), likes
    raise failed or ValueError(f"{name} has no parameters: give d_model=")


def _failure(subject: Subject, length: int) -> ValueError | None:
    """Return why a layer cannot take sequences of a length, if it cannot."""
    try:
        for causal in subject.modes or (True,):
            subject.answer(subject.first_use(length, causal))
    except ValueError as error:
        return error
    return None


def _tuned(subject: Subject, like: Any) -> Subject:
    """Return a subject with features that make scores neither tiny nor huge."""
    use = subject.first_use(subject.lengths[0], (subject.modes or (True,))[0])
    with _watched() as seen:
        subject.answer(use)
    subject = replace(
        subject, least=min(seen, key=lambda dtype: torch.finfo(dtype).bits)
    )
    if isinstance(like, Reference):
        try:
            with torch.no_grad():
                size = like.spread(use.x, use.x if use.context is None else use.context)
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            raise LikeError(f"like cannot be called: {message}") from error
        if 0 < size < 1:
            subject = replace(subject, factor=min(30.0, size**-0.5))
    return subject


@contextmanager
def _watched() -> Generator[list[torch.dtype]]:
    """Note the types that numbers in double precision are converted to."""
    seen = [torch.float64]

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and result.dtype in _LESS:
                tensors = [arg for arg in args if isinstance(arg, Tensor)]
                if any(tensor.dtype in _EXACT for tensor in tensors):
                    seen.append(_LESS[result.dtype])
            return result

    with Watch():
        yield seen


_EXACT = (torch.float64, torch.complex128)
_LESS = {
    torch.float32: torch.float32,
    torch.complex64: torch.float32,
    torch.float16: torch.float16,
    torch.bfloat16: torch.bfloat16,
}


def _draw_again(layer: nn.Module) -> None:
    """Draw constant parameters, which would hide a bug, again.

    A bias of zeros hides that it is lost, and a last projection of zeros everything.
    """
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.numel() and (parameter == parameter.flatten()[0]).all():
                noise = torch.randn(
                    parameter.shape, generator=draw, dtype=torch.float64
                )
                size = 0.3 if parameter.ndim < 2 else parameter[0].numel() ** -0.5
                parameter.add_((size * noise).to(parameter))


def _widths(layer: Any, like: Any) -> list[int]:
    """Return possible widths of features: sizes of parameters, the likely first."""
    if isinstance(layer, HeadsLayer):
        return [layer.q.in_features]
    sizes: list[int] = []
    if isinstance(like, Reference) and isinstance(like.q, nn.Linear):
        sizes.append(like.q.in_features)
    if isinstance(layer, nn.Module):
        for parameter in layer.parameters():
            sizes += [*parameter.shape[1:2], *parameter.shape[:1]]
    return [*dict.fromkeys(sizes)]
