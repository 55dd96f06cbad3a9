"""The report about an attention: the answer first, then what was found."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from attention_check.checks import LIMITS
from attention_check.exhibits import Exhibit

__all__ = ["STATES", "Counterexample", "Report", "Verdict"]

STATES = ("right", "within limits", "wrong", "cannot tell")
# What the first line calls what was covered.
_COVERED = {
    "output": "whole",
    "gradient": "gradients",
    "padding": "padded",
    "cache": "in pieces",
    "modes": "training",
    "half precision": "float16 and bfloat16",
}


# Reasons that explain whatever else is wrong.
_ANYWAY = ("it writes into its input", "it has two outputs")


@dataclass(frozen=True)
class Verdict:
    """The answer to one question.

    Args:
        check: The name of the check.
        passed: Whether the attention passes; ``None`` if it was not asked.
        reason: What is wrong, or why it was not asked.
    """

    check: str
    passed: bool | None
    reason: str = ""

    def __str__(self) -> str:
        word = {True: "passed", False: "FAILED", None: "not asked"}[self.passed]
        return f"{self.check:<18}  {word:<9}  {self.reason}".rstrip()


@dataclass(frozen=True)
class Counterexample:
    """One number of the output that is not what it should be.

    Args:
        use: How the layer was used.
        length: How many tokens it read.
        token: The index of the token.
        feature: The index of the feature.
        came: The number that came out.
        due: The number that should have come out.
    """

    use: str
    length: int
    token: int
    feature: int
    came: float
    due: float

    def __str__(self) -> str:
        return (
            f"smallest case, {self.use}: of {self.length} token"
            f"{'s' * (self.length > 1)}, token {self.token} gets {self.came:.4g} in "
            f"feature {self.feature}, and {self.due:.4g} is due"
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found about an attention. It is true if nothing is wrong.

    Args:
        name: The attention's name.
        state: One of ``STATES``.
        verdicts: The answer to each question.
        kind: What it is known to be, such as ``causal``.
        bugs: The known bugs that give the same answers: one, or a few candidates.
        limits: The known limits that it has.
        measured: What is wrong, in a number, if a number says it.
        counterexample: The shortest sequence whose output is wrong.
        never_passed: Its arguments that no call passed.
        unused: Its parts that have no effect on the output.
        adapter: What to fill in, as code, if it cannot be told whether it is right.
        reason: Why it cannot be told.
        lengths: How many tokens the sequences had.
        notes: What else should be known.
    """

    name: str
    state: str
    verdicts: Sequence[Verdict] = ()
    kind: str = ""
    bugs: Sequence[Exhibit] = ()
    limits: Sequence[Exhibit] = ()
    measured: str = ""
    counterexample: Counterexample | None = None
    never_passed: Sequence[str] = ()
    unused: Sequence[str] = ()
    adapter: str = ""
    reason: str = ""
    lengths: Sequence[int] = ()
    notes: Sequence[str] = field(default=())

    def __bool__(self) -> bool:
        return self.state in ("right", "within limits")

    @property
    def failed(self) -> list[str]:
        """The names of the failed checks."""
        return [verdict.check for verdict in self.verdicts if verdict.passed is False]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the bugs that it may have, or of its limits.

        What is no known bug is named by ``scale``, if that is measured, or by a check
        whose reason says all: ``batch`` or ``modes``.
        """
        if self.bugs or self.state != "wrong":
            return tuple(exhibit.name for exhibit in (self.bugs or self.limits))
        if self.measured:
            return ("scale",)
        reasons = {verdict.check: verdict.reason for verdict in self.verdicts}
        runs = "cannot be called" not in reasons.get(self.telling, "")
        return (self.telling,) if runs and self.telling in ("batch", "modes") else ()

    @property
    def covered(self) -> list[str]:
        """What was compared and is right, in words."""
        passed = {verdict.check for verdict in self.verdicts if verdict.passed}
        return [word for check, word in _COVERED.items() if check in passed]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can hold."""
        verdicts = {
            verdict.check: {"passed": verdict.passed, "reason": verdict.reason}
            for verdict in self.verdicts
        }
        return {
            "name": self.name,
            "state": self.state,
            "kind": self.kind,
            "bugs": [bug.name for bug in self.bugs],
            "limits": [limit.name for limit in self.limits],
            "measured": self.measured,
            "smallest_case": str(self.counterexample or ""),
            "never_passed": [*self.never_passed],
            "unused": [*self.unused],
            "reason": self.reason,
            "adapter": self.adapter,
            "notes": [*self.notes],
            "checks": verdicts,
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _headline(self) -> str:
        if self.state == "wrong":
            return f"{self.name} is WRONG: {self._mistake()}."
        covered = "; ".join(filter(None, [self.kind, ", ".join(self.covered)]))
        if self.state == "cannot tell":
            complete = ": complete what follows" if self.adapter else ""
            return f"{self.name}: cannot tell, since {self.reason}{complete}."
        limits = " within limits" if self.state == "within limits" else ""
        return f"{self.name} is right{limits}: {covered}."

    @property
    def telling(self) -> str:
        """The failed check that says most: the others often fail because of it."""
        failed = [verdict for verdict in self.verdicts if verdict.passed is False]
        order = [
            *(verdict for verdict in failed if verdict.reason.startswith(_ANYWAY)),
            *(verdict for verdict in failed if verdict.check == "batch"),
            *(verdict for verdict in failed if verdict.check not in LIMITS),
            *(verdict for verdict in failed if verdict.check == "huge scores"),
            *failed,
        ]
        return order[0].check if failed else ""

    def _mistake(self) -> str:
        if len(self.bugs) == 1:
            return self.bugs[0].mistake[:1].lower() + self.bugs[0].mistake[1:-1]
        if self.measured:
            return self.measured
        reasons = {verdict.check: verdict.reason for verdict in self.verdicts}
        return f"{self.telling}: {reasons[self.telling]}"

    def _lines(self) -> list[str]:
        lines = [self._headline()]
        if len(self.bugs) == 1:
            lines.append(f"  as in {self.bugs[0].url}")
        elif self.bugs:
            lines.append("  like one of these, which give the same answers:")
            lines += [f"    {bug.name}: {bug.mistake}" for bug in self.bugs]
        if self.counterexample is not None:
            lines.append(f"  {self.counterexample}")
        reasons = {verdict.check: verdict.reason for verdict in self.verdicts}
        known = self.limits if self.state != "wrong" or not self.bugs else ()
        if self.state == "within limits":
            lines += [f"  {check}: {reasons[check]}" for check in self.failed]
        lines += [f"  {limit.mistake} {limit.url}" for limit in known]
        if self.never_passed:
            lines.append(f"Never passed: {', '.join(self.never_passed)}.")
        if self.unused:
            lines.append(f"Without effect: {', '.join(self.unused)}.")
        lines += self.notes
        if self.state == "cannot tell":
            if passed := self.covered:
                lines.append(f"What was asked and is right: {', '.join(passed)}.")
            failed = [verdict for verdict in self.verdicts if verdict.passed is False]
            lines += [f"  {verdict}" for verdict in failed]
            return [*lines, *([self.adapter] if self.adapter else [])]
        answered = [verdict for verdict in self.verdicts if verdict.passed is not None]
        passed_count = sum(bool(verdict.passed) for verdict in answered)
        lengths = " and ".join(map(str, self.lengths))
        count = f"{passed_count} of {len(answered)} checks passed"
        lines.append(f"{count}, with sequences of {lengths} tokens:")
        lines += [f"  {verdict}" for verdict in self.verdicts]
        return lines
