"""Show the progress of a run: a bar on a terminal, plain lines, or JSON."""

import json
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress as Bar, TextColumn
from rich.table import Column

from tested_transformer.training import Progress, Validation

__all__ = ["Display", "Terminal", "loading", "losses", "printable", "reminder"]

_WORTH_A_BAR = 200_000_000  # bytes; a smaller model is read at once
_STYLES = {"sample": "cyan", "validation": "green"}


class Terminal(Console):
    """A console that raises an error when its reader has gone."""

    def on_broken_pipe(self) -> None:
        """Raise an error, so that the command can end silently."""
        raise BrokenPipeError


class Display:
    """Report the progress of a run to people or programs.

    Args:
        as_json: Print one JSON object per line, and nothing else.
        silent: Print nothing, as in all processes except the first.
        console: Where to print; standard output by default.
        seconds: Seconds between two lines about steps, if there is no bar.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        silent: bool = False,
        console: Console | None = None,
        seconds: float = 5.0,
    ) -> None:
        self.as_json, self.silent, self.seconds = as_json, silent, seconds
        self.console = console or Terminal(file=sys.stdout)
        self.reported_at = time.monotonic()
        self.bar: Bar | None = None
        self.held_out = ""

    def tell(self, event: str, text: str, /, **facts: Any) -> None:
        """Print the text, or in JSON the event and its facts."""
        if self.silent:
            return
        if self.as_json:
            line = json.dumps({"event": event, **facts}, allow_nan=False)
            print(line, flush=True)
        elif text:
            self.console.print(
                printable(text) if self.console.is_terminal else text,
                style=_STYLES.get(event),
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            self.reported_at = time.monotonic()

    def step(self, step: Progress) -> None:
        """Report a step: each one in JSON, or now and then in a line."""
        if self.as_json:
            self.tell("step", "", **asdict(step))
            return
        validation = step.validation
        if validation is not None:
            self.tell("validation", f"step {step.step}: {losses(validation)}")
            self.held_out = (
                f" · held-out {validation.loss:.3f} · honest {validation.prefix:.3f}"
            )
        minutes, seconds = divmod(round(step.seconds_left), 60)
        pace = f"{step.tokens_per_second:,.0f} tokens/s · {minutes}:{seconds:02d} left"
        if self.bar is not None:
            line = f"loss {step.loss:.3f}{self.held_out} · {pace}"
            self.bar.update(self.bar.task_ids[0], completed=step.step, line=line)
        elif validation is None and time.monotonic() - self.reported_at >= self.seconds:
            text = f"step {step.step}/{step.steps}: loss {step.loss:.3f}, {pace}"
            self.tell("step", text)

    @contextmanager
    def running(self, steps: int) -> Generator[None]:
        """Show a progress bar for that many steps, if the output is a terminal."""
        plain = not self.console.is_terminal or self.console.is_dumb_terminal
        if self.as_json or self.silent or plain:
            yield
            return
        count = Column(no_wrap=True, min_width=len(f"{steps}/{steps}"))
        self.bar = Bar(
            TextColumn("{task.completed:.0f}/{task.total:.0f}", table_column=count),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[line]}"),
            console=self.console,
            refresh_per_second=5,
            expand=True,
        )
        self.bar.add_task("", total=steps, line="")
        with self.bar:
            try:
                yield
            finally:
                self.bar = None


def reminder(*, seconds: float = 5.0) -> Callable[[int, int], None]:
    """Return a function that prints how much is read, at most every few seconds.

    It prints to standard error, since the output may be for programs, and in only one
    of the processes that torchrun starts.
    """
    silent = os.environ.get("RANK", "0") != "0"
    reported_at = time.monotonic()

    def tell(read: int, characters: int) -> None:
        nonlocal reported_at
        if not silent and time.monotonic() - reported_at >= seconds:
            reported_at = time.monotonic()
            text = f"encoding the text: {read:,} of {characters:,} characters"
            print(text, file=sys.stderr, flush=True)

    return tell


@contextmanager
def loading() -> Generator[Callable[[int, int], None]]:
    """Show a bar of the bytes read of a large model, if people watch.

    It is on standard error, and goes when all is read.
    """
    console = Terminal(file=sys.stderr)
    columns = TextColumn("loading"), BarColumn(bar_width=None), DownloadColumn()
    plain = not console.is_terminal or console.is_dumb_terminal
    bar = Bar(*columns, console=console, transient=True, expand=True, disable=plain)
    task = bar.add_task("", total=None)

    def tell(read: int, total: int) -> None:
        if total >= _WORTH_A_BAR:
            bar.start()  # of which only the first counts
            bar.update(task, completed=read, total=total)

    try:
        yield tell
    finally:
        bar.stop()


def losses(validation: Validation) -> str:
    """Return the losses that an evaluation found, in words."""
    return (
        f"held-out loss {validation.loss:.3f}; at some positions honest loss "
        f"{validation.prefix:.3f}, in one pass {validation.full:.3f}"
    )


def printable(text: str) -> str:
    """Return a text with control characters escaped: a model may write anything."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) != "Cc"
        else character.encode("unicode_escape").decode()
        for character in text
    )
