"""Run pieces of work in forked processes, which may hang or die without harm."""

import os
import pickle
import resource
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Outcome", "each_in_a_fork"]

_MEMORY = 12 * 2**30  # of address space beside what is there already: a runaway's end


@dataclass(frozen=True)
class Outcome:
    """What became of a piece of work: its ``value``, unless it ``died`` of something.

    ``died`` is "" or the reason: "time" (it took more than its limit), or how the
    process ended.
    """

    value: Any
    died: str
    seconds: float


@dataclass
class _Child:
    """A process at work."""

    key: Any
    pid: int
    until: float
    began: float
    received: bytes = b""
    late: bool = False


def each_in_a_fork(
    work: Iterable[tuple[Any, Callable[[], Any], float]], jobs: int
) -> Iterator[tuple[Any, Outcome]]:
    """Do each piece of work in a process of its own, ``jobs`` of them at a time.

    Args:
        work: For each piece its key, what to call, and how many seconds of processor
            time it may take. The clock on the wall may show ten times as many.
        jobs: How many processes may run at once.

    Yields:
        The key and the outcome of each piece, as they come.
    """
    waiting = iter(work)
    selector = selectors.DefaultSelector()
    running = True
    try:
        while running or selector.get_map():
            while running and len(selector.get_map()) < jobs:
                piece = next(waiting, None)
                if piece is None:
                    running = False
                else:
                    pipe, child = _start(*piece)
                    selector.register(pipe, selectors.EVENT_READ, child)
            for key, _ in selector.select(timeout=0.2):
                chunk = os.read(key.fd, 1 << 20)
                key.data.received += chunk
                if not chunk:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    yield key.data.key, _finish(key.data)
            for key in list(selector.get_map().values()):
                if time.monotonic() > key.data.until and not key.data.late:
                    key.data.late = True
                    _kill(key.data.pid)
    finally:
        for key in list(selector.get_map().values()):
            _kill(key.data.pid)
            os.close(key.fd)
            os.waitpid(key.data.pid, 0)
        selector.close()


def _start(key: Any, call: Callable[[], Any], limit: float) -> tuple[int, _Child]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            os.setpgid(0, 0)
            _confine(limit)
            value = pickle.dumps(call())
            with os.fdopen(writing, "wb") as sink:
                sink.write(value)
            status = 0
        finally:
            # Neither the cleaning up nor the buffers of the parent are this process's.
            os._exit(status)
    os.close(writing)
    now = time.monotonic()
    return reading, _Child(key, pid, now + 10 * limit, now)


def _confine(limit: float) -> None:
    seconds = int(limit) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _finish(child: _Child) -> Outcome:
    _, status, used = os.wait4(child.pid, 0)
    seconds = used.ru_utime + used.ru_stime
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return Outcome(pickle.loads(child.received), "", seconds)
    slow = child.late or -code in (signal.SIGXCPU, signal.SIGKILL)
    died = "time" if slow else f"the process ended with {code}"
    return Outcome(None, died, seconds)
