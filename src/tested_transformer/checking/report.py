"""The report on an attention: a verdict for each check, and the likely bug."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from tested_transformer.checking.counterexample import Counterexample
from tested_transformer.checking.exhibits import EXHIBITS, Exhibit

__all__ = ["Report", "Verdict"]

_QUESTIONS = "chapters/is-your-attention-right/#the-questions"
_SHOWN = {True: "passed", False: "FAILED", None: "not asked"}
_NO_AVERAGE = (
    "Equal tokens got unequal rows: unless it adds positions, its weights do not sum "
    "to one, or it mixes up heads and tokens."
)
# Without these comparisons, something else could pass for attention.
_COMPARISONS = ("output", "gradient")


@dataclass(frozen=True)
class Verdict:
    """The result of one check.

    Args:
        check: Its name.
        passed: ``True`` or ``False``; ``None`` if the check did not apply.
        reason: What went wrong, or why the check did not apply.
    """

    check: str
    passed: bool | None
    reason: str = ""

    def __str__(self) -> str:
        reason = f"  {self.reason}" if self.reason else ""
        return f"{self.check:18}  {_SHOWN[self.passed]:9}{reason}".rstrip()


@dataclass(frozen=True, repr=False)
class Report:
    """The results of all checks of one attention. Its text is a table.

    It is true only if the attention is right.

    Args:
        name: What was checked.
        style: How it was called.
        verdicts: One for each check.
        likely: The exhibits that compute the same as the attention, if any.
        whole_only: Whether they do so only for whole sequences without padding.
        doubts: Why it may not be what it was taken for.
        drawn: The names of the weights that were drawn again for the checks, because
            they would have hidden mistakes. The layer itself keeps its weights.
        counterexample: The shortest sequence that exposes the mistake, if found.
        notes: What was found out about how to call it.
        form: What it has besides its projections, such as positions, if recognized.
        untried: The arguments that had one value in every check, such as a cache or
            padding under a name that says nothing. What they do was not checked.
    """

    name: str
    style: str
    verdicts: tuple[Verdict, ...]
    likely: tuple[Exhibit, ...] = ()
    whole_only: bool = False
    doubts: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    counterexample: Counterexample | None = None
    notes: tuple[str, ...] = ()
    form: str = ""
    untried: tuple[str, ...] = ()

    @property
    def state(self) -> Literal["right", "wrong", "not known"]:
        """``wrong`` if a check failed, ``not known`` if there is a doubt, or ``right``.

        ``right`` needs output and gradient to be compared with an oracle, since
        something other than attention can pass all the other checks.
        """
        if self.failed:
            return "wrong"
        return "not known" if self.unknown else "right"

    @property
    def passed(self) -> bool:
        """Whether ``state`` is ``right``."""
        return self.state == "right"

    def __bool__(self) -> bool:
        return self.passed

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [each.check for each in self.verdicts if each.passed is False]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why it may be wrong even if no check failed."""
        verdicts = {each.check: each for each in self.verdicts}
        reasons = dict.fromkeys(self.doubts)  # as a set that keeps the order
        for name in _COMPARISONS:
            if name not in verdicts:
                reasons[f"{name} was not compared: it was left out"] = None
            elif verdicts[name].passed is None and verdicts[name].reason not in reasons:
                reasons[f"not compared with attention: {verdicts[name].reason}"] = None
        return tuple(reasons)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary that JSON can hold."""
        return {
            "name": self.name,
            "state": self.state,
            "style": self.style,
            "form": self.form,
            "unknown": [*self.unknown],
            "likely": {each.name: each.mistake for each in self.likely},
            "whole_only": self.whole_only,
            "checks": [asdict(each) for each in self.verdicts],
            "drawn": [*self.drawn],
            "notes": [*self.notes],
            "untried": [*self.untried],
            "counterexample": self.counterexample and str(self.counterexample),
        }

    @property
    def _headline(self) -> str:
        if self.state == "not known":
            return f"{self.name} is not known to be right:"
        if self.state == "right":
            inside = f": attention with {self.form}" if self.form else ""
            return f"{self.name} is right{inside}{self._limit}."
        if self.likely:
            mistake = self.likely[0].mistake
            return f"{self.name} is WRONG: {mistake[0].lower()}{mistake[1:]}"
        check = "" if self._share_reason else f"{self.failed[0]}: "
        return f"{self.name} is WRONG: {check}{self._reasons[0]}"

    @property
    def _limit(self) -> str:
        """Which arguments the verdict leaves out, to end its sentence."""
        if not self.untried:
            return ""
        one = len(self.untried) == 1
        words = ("argument", "was") if one else ("arguments", "were")
        return f"; its {words[0]} {', '.join(self.untried)} {words[1]} not tried"

    @property
    def _reasons(self) -> list[str]:
        return [each.reason for each in self.verdicts if each.passed is False]

    @property
    def _share_reason(self) -> bool:
        """Whether several checks failed for one reason, such as NaN."""
        return len(self._reasons) > 1 and len({*self._reasons}) == 1

    def __str__(self) -> str:
        lines = [self._headline]
        if self.state == "not known":
            lines += [f"  {each}" for each in self.unknown]
        for each in self.likely[1:]:
            lines.append(f"  or: {each.mistake}")
        where = "without padding, " if self.whole_only else ""
        lines += [
            f"  {where}as in chapters/the-bug-museum/#{each.name}"
            for each in self.likely
            if each.name in EXHIBITS
        ]
        if self.state == "wrong":
            lines += [f"  {each}" for each in self.doubts]
        if self.counterexample is not None:
            lines.append(f"  {self.counterexample}")
        if asked := sum(each.passed is not None for each in self.verdicts):
            passed = f"{asked - len(self.failed)} of {asked} checks passed"
            lines.append(f"Called in the style {self.style!r}, {passed}:")
            lines += [f"  {each}" for each in self.verdicts]
        lines += self.notes
        if self.drawn:
            lines.append("Drawn again for the checks: " + ", ".join(self.drawn))
        told = self.likely or self._share_reason
        if "row sums" in self.failed and not told:
            lines.append(_NO_AVERAGE)
        if self.failed and not self.likely:
            lines.append("What each check asks: " + _QUESTIONS)
        return "\n".join(lines)

    __repr__ = __str__
