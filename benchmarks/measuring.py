"""Measure times and memory so that they can be compared.

The speed of a machine varies. So contenders run in turns, a few calls each, round after
round, and are compared by the median of all their calls.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path

import torch

from benchmarks import STANDINS

__all__ = [
    *("Times", "answer_order", "in_a_process", "in_turns", "mib", "milliseconds"),
    *("peak_memory", "slope"),
]

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Times:
    """The time of each call of one contender, in seconds."""

    median: float
    fastest: float
    lower_quartile: float
    upper_quartile: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        """Summarize what was measured.

        Raises:
            ValueError: If nothing was measured.
        """
        if not seconds:
            raise ValueError("seconds is empty: nothing was measured")
        # A single call has no spread.
        lower, median, upper = (
            statistics.quantiles(seconds, n=4, method="inclusive")
            if len(seconds) > 1
            else [seconds[0]] * 3
        )
        return cls(median, min(seconds), lower, upper, len(seconds))

    def to_json(self) -> dict[str, float]:
        """Return the summary as numbers, with times in milliseconds."""
        times = {
            name: seconds for name, seconds in vars(self).items() if name != "count"
        }
        shown = {
            f"{name}_ms": round(1000 * seconds, 4) for name, seconds in times.items()
        }
        return {**shown, "count": self.count}


def in_turns(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    calls: int = 1,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Times]:
    """Time all contenders in turns: in each round, ``calls`` calls of each.

    Args:
        contenders: The functions to call, by name.
        rounds: How many turns each contender gets.
        calls: How many calls a turn has. From the second call on, the processor's
            caches hold a contender's own data.
        warm_up: Calls of each before the first round, which are not counted.
        clock: A function that returns the time in seconds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        for _ in range(warm_up):
            call()
    for _ in range(rounds):
        for name, call in contenders.items():
            for _ in range(calls):
                start = clock()
                call()
                seconds[name].append(clock() - start)
    return {name: Times.of(taken) for name, taken in seconds.items()}


def milliseconds(times: Mapping[str, Times], digits: int = 3) -> dict[str, float]:
    """Return the median of each, in milliseconds."""
    return {name: round(1000 * taken.median, digits) for name, taken in times.items()}


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Fit ``log y = slope * log x + constant`` to two points or more: how y grows.

    1 is proportional, 2 is quadratic.
    """
    fitted = statistics.linear_regression([log(x) for x in xs], [log(y) for y in ys])
    return fitted.slope


def in_a_process(
    module: str, order: dict[str, object], *, limit: float | None = None, **env: str
) -> object:
    """Let a module of this folder answer an order in a fresh process.

    Args:
        module: Its name; it passes a function to ``answer_order``.
        order: What the function is given, by name.
        limit: Stop it after this many seconds.
        **env: Variables of its environment.

    Raises:
        subprocess.SubprocessError: If it fails or is stopped.
    """
    path = [ROOT / "src", ROOT, os.environ.get("PYTHONPATH", ""), STANDINS]
    env |= {"PYTHONPATH": os.pathsep.join(map(str, path))}
    threads, arguments = str(torch.get_num_threads()), json.dumps(order)
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", threads, arguments],
        cwd=ROOT,
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=True,
        timeout=limit,
    )
    return json.loads(done.stdout.splitlines()[-1])


def answer_order(function: Callable[..., object]) -> None:
    """Answer the order of ``in_a_process`` with what a function returns."""
    torch.set_num_threads(int(sys.argv[1]))
    print("\n" + json.dumps(function(**json.loads(sys.argv[2]))))


def peak_memory(call: Callable[[], object]) -> int:
    """Return by how many bytes ``call`` raised the peak memory of this process.

    The peak is Linux's record of the resident set (VmHWM), reset just before the call.
    Use a process of its own, so that no memory is reused unnoticed.

    Raises:
        OSError: If the system keeps no such record.
    """
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    call()
    return max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"the system does not tell {name}")


def mib(used: float, digits: int = 1) -> float:
    """Return a number of bytes in MiB."""
    return round(used / 2**20, digits)
