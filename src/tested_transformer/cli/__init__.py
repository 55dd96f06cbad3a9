"""The command ``tested-transformer``: train, generate, evaluate, heads, check, info."""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit status; see ``command.main``.

    Its modules are imported here, so that Ctrl-C in the first second is obeyed too.
    """
    try:
        from tested_transformer.cli.command import main as run
    except KeyboardInterrupt:
        print("\ntested-transformer: interrupted", file=sys.stderr)
        return 130
    return run(words)
