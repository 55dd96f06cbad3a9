"""An exhibit: a wrong step of attention, and where the bug was published."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any

from attention_check.steps import Steps

__all__ = ["RIGHT", "Exhibit", "Publication", "exhibit", "issue", "other_bug", "pull"]

RIGHT = Steps()


@dataclass(frozen=True)
class Publication:
    """A thread about a bug, or a file that has it.

    Args:
        project: The repository, ``owner/name``.
        place: Which of its threads, ``issues/7`` or ``pull/7``, or a file of it.
        when: The year and the state of a thread, such as ``2024, closed``; empty for a
            file.
    """

    project: str
    place: str
    when: str = ""

    @property
    def url(self) -> str:
        """The address of the thread or, for a file, of the repository."""
        thread = f"/{self.place}" if self.when else ""
        return f"https://github.com/{self.project}{thread}"

    def __str__(self) -> str:
        which = self.place.rpartition("/")[2]
        return f"{self.project} " + (f"#{which} ({self.when})" if self.when else which)


def issue(project: str, number: int, when: str) -> Publication:
    """Return the publication of a bug as an issue."""
    return Publication(project, f"issues/{number}", when)


def pull(project: str, number: int, when: str) -> Publication:
    """Return the publication of a bug as a pull request, which usually repairs it."""
    return Publication(project, f"pull/{number}", when)


# --8<-- [start:exhibit]
@dataclass(frozen=True)
class Exhibit:
    """One bug: the step of ``Steps`` that it replaces, and where it was reported.

    Args:
        function: The step with the bug in it. Its docstring says what is wrong.
        step: The name of the step.
        published: Threads and files in which this bug was found, if any are known.
        related: Threads about something near: another form of the mistake, its
            opposite, a question, or a repair that was proposed.
        reach: Where a limit lies, within which this step is right: "half precision",
            say. Empty if it is wrong wherever it has an effect.
        section: The section of the book that lists it; by default one of its own.
        settings: The settings that a layer needs for the bug to have an effect.
    """

    function: Callable[..., Any]
    _: KW_ONLY
    step: str
    published: tuple[Publication, ...] = ()
    related: tuple[Publication, ...] = ()
    reach: str = ""
    section: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name, such as ``no-scale``."""
        return self.function.__name__.replace("_", "-")

    @property
    def mistake(self) -> str:
        """What is wrong, in a sentence."""
        return " ".join((self.function.__doc__ or "").split())

    @property
    def url(self) -> str:
        """Its place in the book."""
        return f"chapters/the-bug-museum/#{self.section or self.name}"

    @property
    def steps(self) -> Steps:
        """The steps of attention with this one replaced."""
        return replace(RIGHT, **{self.step: self.function})


# --8<-- [end:exhibit]


def exhibit(
    step: str,
    *published: Publication,
    related: tuple[Publication, ...] = (),
    reach: str = "",
    section: str = "",
    **settings: Any,
) -> Callable[[Callable[..., Any]], Exhibit]:
    """Return a decorator that turns a function into an exhibit."""
    threads = {"published": published, "related": related}
    return partial(
        Exhibit, step=step, reach=reach, section=section, settings=settings, **threads
    )


other_bug = partial(exhibit, section="other-known-bugs")
