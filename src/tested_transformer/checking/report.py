"""What a check found, and all of what was found of one attention."""

from dataclasses import dataclass

from tested_transformer.checking.exhibits.exhibit import Exhibit

__all__ = ["Report", "Verdict"]

_QUESTIONS = "chapters/25-the-kill-matrix/#the-questions"
_SHOWN = {True: "passed", False: "FAILED", None: "not asked"}


@dataclass(frozen=True)
class Verdict:
    """What one check says.

    Args:
        check: Its name.
        passed: ``True`` or ``False``; ``None`` if the question could not be put.
        reason: What went wrong, or why it was not asked.
    """

    check: str
    passed: bool | None
    reason: str = ""

    def __str__(self) -> str:
        reason = f"  {self.reason}" if self.reason else ""
        return f"{self.check:18}  {_SHOWN[self.passed]:9}{reason}".rstrip()


@dataclass(frozen=True)
class Report:
    """What the checks say of one attention. Printed, it is a table.

    Args:
        name: What was checked.
        style: How it was called.
        verdicts: One a check.
        likely: The exhibits that compute what it computes, if any does.
        whole_only: Whether they do so for whole sequences without padding alone.
    """

    name: str
    style: str
    verdicts: tuple[Verdict, ...]
    likely: tuple[Exhibit, ...] = ()
    whole_only: bool = False

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [each.check for each in self.verdicts if each.passed is False]

    def __str__(self) -> str:
        asked = sum(each.passed is not None for each in self.verdicts)
        lines = [
            f"{self.name}, called in the style {self.style!r}: "
            f"{asked - len(self.failed)} of {asked} checks passed",
            *(f"  {each}" for each in self.verdicts),
        ]
        it = "Without padding, it" if self.whole_only else "It"
        for each in self.likely:
            lines += [
                f"{it} computes what the exhibit {each.name} computes:",
                f"  {each.mistake}",
                f"  chapters/24-the-bug-museum/#{each.name}",
            ]
        if self.failed and not self.likely:
            lines.append("What each check asks: " + _QUESTIONS)
        return "\n".join(lines)
