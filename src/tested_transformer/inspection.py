"""Ask modules and tensors what they are: whose numbers can be read, what is plain.

While ``torch.compile`` or ``torch.export`` traces a model, lengths can be left open and
tensors have no numbers. And another module may have taken the place of a layer.
"""

from itertools import chain
from typing import TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = ["is_known", "is_open", "is_plain", "is_readable", "numbers_of"]

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


def numbers_of(module: nn.Module) -> Tensor:
    """Return an empty tensor with the type and the device that a module computes in.

    They are those of its first floating-point parameter or buffer; without one, as
    where all weights are packed integers, PyTorch's defaults.
    """
    for numbers in chain(module.parameters(), module.buffers()):
        if numbers.is_floating_point():
            return torch.empty(0, dtype=numbers.dtype, device=numbers.device)
    return torch.empty(0)
