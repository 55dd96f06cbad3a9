"""Watch a pass: every tensor under its name, and what each was computed from.

The shapes that a diagram draws are held against the tensors of a real pass, and its
arrows against the way that the numbers took.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["PAGE", "Flow", "Steps", "traced"]

_LIBRARY = Path(__file__).resolve().parents[2] / "tested_transformer"
# Written in Python inside torch, with steps that have names of their own.
_IN_TORCH = ("multi_head_attention_forward", "_in_projection_packed")
# The name of the code that comes from a page.
PAGE = "<page>"


class Flow(TorchDispatchMode):
    """Record what each operation that runs inside reads and writes."""

    def __init__(self) -> None:
        super().__init__()
        # For each tensor, by id, what wrote it: when, an operation, what that read.
        self._made: dict[int, list[tuple[int, str, list[int]]]] = {}
        self._steps_done = 0
        self._sharing: dict[int, list[int]] = {}
        # An id belongs to a living object alone, so none of them may die.
        self._kept: dict[int, Tensor] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave Dynamo alone: nothing is compiled, and it takes seconds to load."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Let an operation run, and note it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given, made = _tensors((args, kwargs)), _tensors(result)
        for tensor in (*given, *made):
            self._keep(tensor)
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info and argument.alias_info.is_write:
                # What is written into a slice is read from all that shares its memory.
                for written in _tensors(value):
                    made += [self._kept[i] for i in self._sharing[_memory(written)]]
        inputs = [id(tensor) for tensor in given]
        self._steps_done += 1
        step = self._steps_done, _called(func, args), inputs
        for tensor in {id(tensor): tensor for tensor in made}:
            self._made.setdefault(tensor, []).append(step)
        return result

    def _keep(self, tensor: Tensor) -> None:
        if id(tensor) not in self._kept:
            self._kept[id(tensor)] = tensor
            self._sharing.setdefault(_memory(tensor), []).append(id(tensor))

    def sources(
        self, values: Iterable[Any], nodes: Mapping[int, str]
    ) -> dict[str, list[str]]:
        """Find out of which nodes values were made, with no other node between.

        Args:
            values: Tensors, or the numbers of a model in plain Python, which remember
                their parents.
            nodes: The node of each value that has one, by the value's id.

        Returns:
            The operations on the way from each node, in their order, as far as they
            have names.
        """
        made_of: dict[int, list[tuple[int, str, int]]] = {}
        waiting = [*values]
        start = {id(value) for value in waiting}
        seen = {*start}
        while waiting:
            value = waiting.pop()
            for when, name, inputs in self._steps(value):
                for source in inputs:
                    made_of.setdefault(id(source), []).append((when, name, id(value)))
                    if id(source) not in seen and id(source) not in nodes:
                        waiting.append(source)
                    seen.add(id(source))
        operations: dict[str, set[tuple[int, str]]] = {}
        for value in (seen & nodes.keys()) - start:
            done = _operations_from(value, made_of, nodes)
            operations.setdefault(nodes[value], set()).update(done)
        return {node: [name for _, name in sorted(o)] for node, o in operations.items()}

    def _steps(self, value: Any) -> list[tuple[int, str, list[Any]]]:
        if isinstance(value, Tensor):
            return [
                (when, name, [self._kept[source] for source in inputs])
                for when, name, inputs in self._made.get(id(value), [])
            ]
        return [(0, "", getattr(value, "parents", []))]


def _called(func: Any, args: Any) -> str:
    """Name an operation; a softmax of rows has another name than one of columns."""
    name: str = func.overloadpacket.__name__
    columns = name == "_softmax" and args[1] % args[0].ndim != args[0].ndim - 1
    return f"{name} of columns" if columns else name


def _operations_from(
    value: int,
    made_of: dict[int, list[tuple[int, str, int]]],
    nodes: Mapping[int, str],
) -> set[tuple[int, str]]:
    done: set[tuple[int, str]] = set()
    waiting, seen = [value], {value}
    while waiting:
        for when, name, target in made_of.get(waiting.pop(), []):
            done.add((when, name))
            if target not in seen and target not in nodes:
                seen.add(target)
                waiting.append(target)
    return done


class Steps:
    """The tensors of a pass, by the names that the code of the library gives them.

    ``steps.q`` is the last value of the local variable ``q`` in the function that has
    one and is called from furthest outside; ``steps.each("x", "GPT.forward")`` gives
    every value that it had there, in order. ``steps["blocks.0.attention"]`` is what
    that part of the model returned, ``steps.result`` what the whole did.
    """

    def __init__(self) -> None:
        self.result: Any = None
        # How far inside, in which function, under which name, and what.
        self._locals: list[tuple[int, FrameType, str, Any]] = []
        self._parts: dict[str, Any] = {}

    def each(self, name: str, function: str = "") -> list[Any]:
        """Give all values of a local variable, in the order in which it had them.

        Args:
            name: The variable.
            function: Where, as ``DecoderBlock.forward``; anywhere by default.
        """
        values = [
            value
            for _, frame, known, value in self._locals
            if known == name and frame.f_code.co_qualname.endswith(function)
        ]
        return list({id(value): value for value in values}.values())

    def __getattr__(self, name: str) -> Any:
        """Give the last value of a local variable."""
        found = [step for step in self._locals if step[2] == name]
        if not found:
            raise AttributeError(f"no step of the pass is called {name}")
        _, outermost, *_ = min(found, key=lambda step: step[0])
        return [value for _, frame, _, value in found if frame is outermost][-1]

    def __getitem__(self, part: str) -> Any:
        """Give what a part of the model returned, the last time that it was called."""
        if part not in self._parts:
            raise KeyError(f"the pass has no part {part}")
        return self._parts[part]

    def names(self, value: object) -> set[str]:
        """Give every name under which a value was met."""
        names = {known for *_, known, other in self._locals if other is value}
        parts = {part for part, other in self._parts.items() if other is value}
        return names | {part.rpartition(".")[2] for part in parts}


def traced(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Steps:
    """Run a model or a function, and keep every tensor that has a name in it."""
    steps = Steps()
    parts: dict[int, str] = {}
    if isinstance(run, nn.Module):
        parts = {id(part): name for name, part in run.named_modules() if name}
    latest: dict[tuple[FrameType, str], object] = {}

    def note(frame: FrameType) -> None:
        for name, value in frame.f_locals.items():
            if _has_shape(value) and latest.get((frame, name)) is not value:
                latest[frame, name] = value
                steps._locals.append((_depth(frame), frame, name, value))

    def trace_lines(frame: FrameType, event: str, argument: Any) -> Any:
        if _is_watched(frame):
            note(frame)
        part = parts.get(id(frame.f_locals.get("self")))
        if event == "return" and part and frame.f_code.co_name == "forward":
            steps._parts[part] = argument
        return trace_lines

    def trace_calls(frame: FrameType, event: str, argument: Any) -> Any:
        forward = frame.f_code.co_name == "forward"
        return trace_lines if forward or _is_watched(frame) else None

    before = sys.gettrace()
    sys.settrace(trace_calls)
    try:
        steps.result = run(*args, **kwargs)
    finally:
        sys.settrace(before)
    return steps


def _is_watched(frame: FrameType) -> bool:
    code = frame.f_code
    file = code.co_filename
    return code.co_name in _IN_TORCH or file == PAGE or file.startswith(str(_LIBRARY))


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame:
        depth, frame = depth + 1, frame.f_back
    return depth


def _has_shape(value: object) -> bool:
    """Tell tensors, and lists of numbers, from all else that a variable may hold."""
    return isinstance(value, Tensor) or (isinstance(value, list) and bool(value))


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
