"""What is seen of a command: a bar on a terminal, plain lines, or JSON for programs."""

import json
import sys
import time
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from tested_transformer.training import Progress as Step, Validation

__all__ = [
    "Display",
    "JsonLines",
    "Lines",
    "Screen",
    "Terminal",
    "make_display",
    "printable",
]


class Display:
    """Says nothing: for every process but the first."""

    def tell(self, event: str, text: str, /, **facts: Any) -> None:
        """Say something.

        Args:
            event: What it is about, in a word, for programs.
            text: For people; nothing if they are told in another way.
            facts: For programs.
        """

    def step(self, step: Step) -> None:
        """Say how training goes on."""

    @contextmanager
    def running(self, steps: int) -> Generator[None]:
        """Be ready for that many steps."""
        yield


class JsonLines(Display):
    """One JSON object a line, and nothing else."""

    def tell(self, event: str, text: str, /, **facts: Any) -> None:
        """Print the facts."""
        print(json.dumps({"event": event, **facts}, allow_nan=False), flush=True)

    def step(self, step: Step) -> None:
        """Print all of it."""
        self.tell("step", "", **asdict(step))


class Lines(Display):
    """Plain lines: one every few seconds, and one for each evaluation.

    Args:
        console: Where to.
        seconds: Between two lines about steps.
    """

    def __init__(self, console: Console, *, seconds: float = 5.0) -> None:
        self.console, self.seconds = console, seconds
        self.told = time.monotonic()

    def tell(self, event: str, text: str, /, **facts: Any) -> None:
        """Print the text."""
        if not text:
            return
        style = {"sample": "cyan", "validation": "green"}.get(event)
        self.console.print(
            printable(text) if self.console.is_terminal else text,
            style=style,
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    def step(self, step: Step) -> None:
        """Print the evaluation, or where the run is if it was quiet for long."""
        if step.validation is not None:
            self.tell("validation", _of_validation(step.validation))
        elif time.monotonic() - self.told >= self.seconds:
            self.tell("step", _of_step(step))
        else:
            return
        self.told = time.monotonic()


class Screen(Lines):
    """A bar that moves, on a terminal."""

    bar: Progress | None = None
    task: TaskID
    found: str = ""

    @contextmanager
    def running(self, steps: int) -> Generator[None]:
        """Show the bar."""
        bar = Progress(
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[line]}"),
            console=self.console,
            refresh_per_second=5,
            expand=True,
        )
        self.task = bar.add_task("", total=steps, line="")
        with bar:
            self.bar = bar
            try:
                yield
            finally:
                self.bar = None

    def step(self, step: Step) -> None:
        """Move the bar on."""
        if step.validation is not None:
            self.tell("validation", _of_validation(step.validation))
            self.found = (
                f" · held-out {step.validation.loss:.3f}"
                f" · honest {step.validation.prefix:.3f}"
            )
        if self.bar is not None:
            line = f"loss {step.loss:.3f}{self.found} · {_pace(step)}"
            self.bar.update(self.task, completed=step.step, line=line)


class Terminal(Console):
    """Where people read; if nobody does any more, that is an error."""

    def on_broken_pipe(self) -> None:
        """Leave it to the command, which ends without a word."""
        raise BrokenPipeError


def make_display(*, as_json: bool, first: bool = True) -> Display:
    """Choose what is seen.

    Args:
        as_json: Whether a program reads it.
        first: Whether this process is the one that speaks.
    """
    if not first:
        return Display()
    if as_json:
        return JsonLines()
    console = Terminal(file=sys.stdout)
    if sys.stdout.isatty() and not console.is_dumb_terminal:
        return Screen(console)
    return Lines(console)


def printable(text: str) -> str:
    """Replace what would command a terminal; a model may write anything."""
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) != "Cc"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def _of_validation(found: Validation) -> str:
    return (
        f"step {found.step}: held-out loss {found.loss:.3f}, honest loss "
        f"{found.prefix:.3f} where one pass gives {found.full:.3f}"
    )


def _of_step(step: Step) -> str:
    return f"step {step.step}/{step.steps}: loss {step.loss:.3f}, {_pace(step)}"


def _pace(step: Step) -> str:
    minutes, seconds = divmod(round(step.seconds_left), 60)
    return f"{step.tokens_per_second:,.0f} tokens/s · {minutes}:{seconds:02d} left"
