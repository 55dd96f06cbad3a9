"""Ctrl-C and SIGTERM: once to save and leave, twice to leave at once."""

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

__all__ = ["StopRequest"]


class StopRequest:
    """Notes that the run is to stop, and lets the step be finished and saved.

    Within ``with StopRequest() as stop:``, ``stop()`` says whether it is to stop. The
    second signal is handled as ever and ends the run there and then, which does no
    harm: the last checkpoint is whole.

    Args:
        repeats: Whether a second signal does that. Not under torchrun, which passes
            signals on, and has a patience of its own.
    """

    def __init__(self, *, repeats: bool = True) -> None:
        self.signal: signal.Signals | None = None
        self._repeats = repeats
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        """Return whether the run is to stop."""
        return self.signal is not None

    @property
    def status(self) -> int:
        """The exit status: 128 and the number of the signal, as shells have it."""
        return 0 if self.signal is None else 128 + self.signal

    def __enter__(self) -> "StopRequest":
        """Take the signals, where Python lets us: in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM):
                self._before[each] = signal.signal(each, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the handlers of before."""
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = signal.Signals(number)
            # Not print: the signal may have come in the middle of one.
            with suppress(OSError):
                os.write(
                    2, b"\nfinishing the step, then saving; again to leave at once\n"
                )
            if self._repeats:
                self.__exit__()
