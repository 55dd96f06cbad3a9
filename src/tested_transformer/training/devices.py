"""Devices to compute on, and the precision in which they are fast."""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from threading import Lock

import torch

__all__ = [
    "autocast",
    "choose_device",
    "choose_precision",
    "compiling_pays",
    "faster_precision",
    "float32_products",
    "seed_dropout",
]

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_PRECISIONS = ("medium", "high", "highest")
# The setting for float32 before any thread wanted another, then what they want now.
_products: list[str] = []
_lock = Lock()

# From this many steps on, compiling pays off on a GPU, even with a small model: on an
# H100 it took 25 s, and a step of 10.7 million parameters 18.7 ms instead of 24.3.
_WORTH_COMPILING = 5000


def choose_device(name: str = "auto") -> torch.device:
    """Return the device with a name, or the best one available.

    Args:
        name: ``auto`` for CUDA if available, else MPS (Apple's GPU), else the CPU; or a
            name for ``torch.device``: ``cpu``, ``cuda``, ``cuda:1``, ``mps``.

    Raises:
        ValueError: If there is no such device.
    """
    present = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    present += ["mps:0"] * torch.backends.mps.is_available() + ["cpu:0"]
    if name == "auto":
        return torch.device(present[0].partition(":")[0])
    kind, _, index = name.partition(":")
    if f"{kind}:{index or 0}" not in present:
        known = ", ".join(present).replace("cpu:0", "cpu").replace("mps:0", "mps")
        raise ValueError(f"device={name!r} is not available; it must be one of {known}")
    return torch.device(name)


def choose_precision(
    device: torch.device,
    name: str = "auto",
    *,
    step: Callable[[str], object] | None = None,
) -> str:
    """Return the precision to multiply in: the one named, or the fastest safe one.

    bfloat16 has the range of float32 and needs no care. float16 has a smaller range, so
    its gradients must be scaled. On a CPU the fastest depends on processor and model,
    so ``auto`` measures.

    Args:
        device: The device of the model.
        name: ``fp32``, ``bf16``, ``fp16``, or ``auto``.
        step: Runs one step in a given precision. On a CPU, ``auto`` times it; without
            it, ``auto`` is ``fp32``.

    Raises:
        ValueError: If ``name`` is none of these.
    """
    if name in _DTYPES:
        return name
    if name != "auto":
        known = ", ".join(["auto", *_DTYPES])
        raise ValueError(f"precision={name!r} must be one of {known}")
    if device.type == "cuda":
        # Before Ampere (8.0), PyTorch emulates bfloat16 but reports it as supported.
        # Before Volta (7.0), there are no tensor cores for float16 either.
        capability = torch.cuda.get_device_capability(device)
        if capability >= (8, 0):
            return "bf16"
        return "fp16" if capability >= (7, 0) else "fp32"
    if device.type == "cpu" and step is not None:
        return faster_precision(step)
    return "fp32"


def faster_precision(step: Callable[[str], object]) -> str:
    """Return ``bf16`` if a step is faster in it on this CPU, else ``fp32``.

    A processor without bfloat16 instructions emulates them, several times slower. Two
    single products find that out in a millisecond. Only if the bfloat16 product is
    faster are whole steps timed in turns, because the operations around the products
    can cost more than the products save.

    Args:
        step: Runs one step in a given precision.
    """
    matrices = {
        name: torch.ones(256, 256, dtype=_DTYPES[name]) for name in ("fp32", "bf16")
    }
    products = _best_seconds(lambda name: matrices[name] @ matrices[name], rounds=5)
    if products["bf16"] >= products["fp32"]:
        return "fp32"
    steps = _best_seconds(step, rounds=2)
    # If the difference is small, keep the full precision.
    return "bf16" if steps["bf16"] < 0.97 * steps["fp32"] else "fp32"


def _best_seconds(work: Callable[[str], object], *, rounds: int) -> dict[str, float]:
    """Return the shortest time of a function in each precision, after one warm-up."""
    seconds: dict[str, list[float]] = {"fp32": [], "bf16": []}
    for _ in range(1 + rounds):
        for name, times in seconds.items():
            start = time.perf_counter()
            work(name)
            times.append(time.perf_counter() - start)
    return {name: min(times[1:]) for name, times in seconds.items()}


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Multiply in ``precision``, but keep operations that need it in float32.

    Source: Micikevicius et al., 2018, "Mixed Precision Training".
    """
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=_DTYPES[precision])


@contextmanager
def float32_products(device: torch.device, precision: str) -> Generator[None]:
    """Let a GPU multiply float32 in TF32 (``high``), or exactly (``highest``).

    TF32 keeps 10 of the 23 mantissa bits of each factor, sums in float32, and is
    several times as fast. All threads share the setting: while they want different
    ones, the most precise holds, and the last of them restores the one before.
    """
    if device.type != "cuda":
        yield
        return
    with _lock:
        if not _products:
            _products.append(torch.get_float32_matmul_precision())
        _products.append(precision)
        torch.set_float32_matmul_precision(max(_products[1:], key=_PRECISIONS.index))
    try:
        yield
    finally:
        with _lock:
            before, *precisions = _products
            precisions.remove(precision)
            _products[:] = [before, *precisions] if precisions else []
            torch.set_float32_matmul_precision(
                max(precisions, key=_PRECISIONS.index, default=before)
            )


def compiling_pays(device: torch.device, steps: int) -> bool:
    """Return whether ``torch.compile`` saves more time than it takes in a run.

    On a GPU that the compiler supports, it does in a long run. On a CPU the matrix
    products dominate, which the compiler does not change.
    """
    return (
        device.type == "cuda"
        and steps >= _WORTH_COMPILING
        and torch.cuda.get_device_capability(device) >= (7, 0)
        and find_spec("triton") is not None
    )


def seed_dropout(device: torch.device, seed: int) -> None:
    """Seed dropout, a hundred times faster than ``torch.manual_seed``."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
