"""Measure times and memory so that they can be compared.

The speed of a machine varies. So contenders run in turns, a few calls each, round after
round, and are compared by the median of all their calls.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path

__all__ = ["Times", "in_turns", "peak_memory", "ratio", "slope"]


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
        return {
            (name if name == "count" else f"{name}_ms"): (
                value if name == "count" else round(1000 * value, 4)
            )
            for name, value in asdict(self).items()
        }


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

    Raises:
        ValueError: If ``rounds`` or ``calls`` is not positive.
    """
    for name, value in (("rounds", rounds), ("calls", calls)):
        if value < 1:
            raise ValueError(f"{name}={value} must be positive")
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


def ratio(theirs: float, ours: float) -> float:
    """Return how many times as fast ours is.

    Raises:
        ValueError: If a time is not positive.
    """
    if theirs <= 0 or ours <= 0:
        raise ValueError(f"theirs={theirs} and ours={ours} must be positive")
    return theirs / ours


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Fit ``log y = slope * log x + constant``: how y grows with x.

    1 is proportional, 2 is quadratic.

    Raises:
        ValueError: If there are fewer than two points.
    """
    if len(xs) < 2:
        raise ValueError(f"a slope needs two points, not {len(xs)}")
    fitted = statistics.linear_regression([log(x) for x in xs], [log(y) for y in ys])
    return fitted.slope


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
