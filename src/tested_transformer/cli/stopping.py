"""Ctrl-C and SIGTERM: once to save and exit, twice to exit at once."""

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

__all__ = ["StopRequest"]


class StopRequest:
    """Record a signal to stop, so that the run can finish the step and save.

    Within ``with StopRequest() as stop:``, ``stop()`` says whether to stop. A second
    signal has its usual effect and ends the run at once, which does no harm: the last
    checkpoint is complete.

    Args:
        repeats: Whether a second signal ends the run. Pass ``False`` under torchrun,
            which forwards signals and has its own timeout.
    """

    def __init__(self, *, repeats: bool = True) -> None:
        self.signal: signal.Signals | None = None
        self._repeats = repeats
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        """Return whether the run should stop."""
        return self.signal is not None

    @property
    def status(self) -> int:
        """The exit status: 128 plus the number of the signal, as in a shell."""
        return 0 if self.signal is None else 128 + self.signal

    def __enter__(self) -> "StopRequest":
        """Handle the signals, which Python allows only in the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = signal.Signals(number)
            # Not print, which the signal may have interrupted.
            with suppress(OSError):
                os.write(
                    2, b"\nfinishing the step, then saving; again to exit at once\n"
                )
            if self._repeats:
                self.__exit__()
