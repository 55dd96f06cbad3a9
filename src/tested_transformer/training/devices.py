"""What there is to compute on, and in which numbers it is fast."""

from contextlib import AbstractContextManager, nullcontext

import torch

__all__ = ["autocast", "choose_device", "choose_precision", "seed_dropout"]

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


# --8<-- [start:device]
def choose_device(name: str = "auto") -> torch.device:
    """Give the device of that name, or the best there is.

    Args:
        name: ``auto`` for CUDA before MPS (Apple's) before the CPU; otherwise as in
            ``torch.device``: ``cpu``, ``cuda``, ``cuda:1``, ``mps``.

    Raises:
        ValueError: If there is no such device.
    """
    there = _devices_there()
    if name == "auto":
        return torch.device(there[0].partition(":")[0])
    kind, _, index = name.partition(":")
    if f"{kind}:{index or 0}" not in there:
        known = ", ".join(there).replace("cpu:0", "cpu").replace("mps:0", "mps")
        raise ValueError(f"device={name!r} is not there; there is {known}")
    return torch.device(name)


# --8<-- [end:device]


def _devices_there() -> list[str]:
    there = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        there.append("mps:0")
    return [*there, "cpu:0"]


# --8<-- [start:precision]
def choose_precision(device: torch.device, name: str = "auto") -> str:
    """Give the numbers to multiply in: those named, or the fastest that are safe.

    bfloat16 has the range of float32 and needs no care; float16 has not, and its
    gradients are scaled. Both are fast only where the device has instructions for
    them: a CPU without is slower in bfloat16 than in float32.

    Args:
        device: Where the model is.
        name: ``fp32``, ``bf16``, ``fp16``, or ``auto``.

    Raises:
        ValueError: If ``name`` is none of these.
    """
    if name in _DTYPES:
        return name
    if name != "auto":
        known = ", ".join(["auto", *_DTYPES])
        raise ValueError(f"precision={name!r} must be one of {known}")
    if device.type == "cuda":
        # From Ampere, 8.0, on. Before it PyTorch emulates bfloat16, and says that it
        # is supported.
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"
    if device.type == "cpu":
        can = torch.cpu.get_capabilities()
        native = any(can.get(key, False) for key in ("amx_bf16", "avx512_bf16"))
        return "bf16" if native else "fp32"
    return "fp32"


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Multiply in ``precision``, and keep in float32 what needs it.

    Source: Micikevicius et al., 2018, "Mixed Precision Training".
    """
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=_DTYPES[precision])


# --8<-- [end:precision]


def seed_dropout(device: torch.device, seed: int) -> None:
    """Set what dropout is drawn from; ``torch.manual_seed`` takes a hundred times."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
