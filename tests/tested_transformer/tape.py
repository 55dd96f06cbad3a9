"""Recording as a CUDA graph does, on a processor: operations and where tensors lie."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# What a graph cannot hold, since Python waits for the result.
_WAITS = ("_local_scalar_dense", "nonzero", "equal", "masked_select")


class _Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, kwargs = func._schema.name.removeprefix("aten::"), kwargs or {}
        assert name not in _WAITS, f"{name} waits for the device"
        if func._schema.is_mutable:
            for x in tree_leaves((args, kwargs)):
                if isinstance(x, Tensor):
                    self.before.setdefault(id(x), (x, x.clone()))
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, result in self.calls:
            again = func(*args, **kwargs)
            pairs = zip(tree_leaves(result), tree_leaves(again), strict=True)
            for where, x in pairs:
                if isinstance(x, Tensor) and x.data_ptr() != where.data_ptr():
                    where.copy_(x)


def record(function: Callable[..., object], inputs: tuple) -> Callable[[], object]:
    """Record a function as ``replay.record`` does, without lasting effects."""
    state, tape = torch.get_rng_state(), _Tape()
    with tape:
        result = function(*inputs)
    with torch.no_grad():
        for x, before in tape.before.values():
            x.copy_(before)
    torch.set_rng_state(state)

    def replay() -> object:
        with torch.no_grad():
            tape.replay()
        return torch.utils._pytree.tree_map_only(Tensor, Tensor.clone, result)

    return replay
