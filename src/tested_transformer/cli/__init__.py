"""The command ``tested-transformer``: from training to explaining a bug."""

import signal
import threading
from collections.abc import Sequence

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit status; see ``command.main``.

    While its modules are imported, Ctrl-C ends the process at once and silently: some
    would show a ``KeyboardInterrupt`` as another error.
    """
    usual = signal.default_int_handler
    in_main = threading.current_thread() is threading.main_thread()
    ends = in_main and signal.getsignal(signal.SIGINT) is usual
    if ends:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from tested_transformer.cli.command import main as run
    finally:
        if ends:
            signal.signal(signal.SIGINT, usual)
    return run(words)
