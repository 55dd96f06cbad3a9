r"""Bind numbers of the prose to what the runs of the page give.

Comments, each on a line of its own, in the section of the words that they quote::

    <!-- holds: "four tokens", "four guesses" = len(tokens) -->
    <!-- given: "three ways to mask": they are listed below -->

``holds`` is evaluated with the names that the run above it has left (on a page's
first lines: the first run), and compared with what the prose says, to the digits that
it shows. A truth is asked to be true: ``"about half" = 0.45 < share < 0.55``. Several
numbers in one quotation are several values. ``"| head |"`` is the table with that
first column, all of its numbers row by row. ``given`` is for what no run can give, and
says why it is so. The constants of formulas with symbols are written down a second
time, section by section, so that none changes unseen::

    <!-- constants: 2 1 0 -->

And the letters of formulas get values, so that the formulas can be computed::

    <!-- where: Q = q; K = k; \sqrt{d_k} = 2 -->
"""

import math
import random
import re
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_FORM = re.compile(r"^<!-- (?P<kind>holds|given|constants|where): (?P<rest>.+) -->$")
_TERM = re.compile(r"(?P<tex>.+?) = (?P<code>[^=].*)")
_QUOTES = re.compile(r'^"(?P<text>[^"]+)"(?P<next>, | = |: |$)')

Value = bool | list[float] | str
"""What an expression gives: a truth, numbers, or the error that it raised."""

Terms = dict[str, Any]
"""What a ``where`` gives: for each term its number, or lists of them."""


@dataclass(frozen=True)
class Binding:
    """A comment that says what stands behind numbers; ``why`` is code or a reason."""

    kind: str
    quotes: tuple[str, ...]
    why: str
    line: int


def read_binding(line: str, number: int) -> Binding | None:
    """Read a comment; nothing if it is of another kind.

    Raises:
        ValueError: If it is begun as a binding and is none; the message says why.
    """
    form = _FORM.match(line)
    if not form:
        if re.match(r"<!--\s*(holds|given|constants|where)\b", line):
            raise ValueError(
                "this comment binds nothing: wanted, on one line,"
                ' <!-- holds: "four tokens" = len(tokens) -->'
                ' or <!-- given: "three ways": the reason -->'
                " or <!-- where: Q = q; K = k -->"
            )
        return None
    kind, rest = form["kind"], form["rest"]
    if kind == "constants":
        return Binding(kind, (), rest, number)
    if kind == "where":
        return Binding(kind, (), _dictionary(rest), number)
    quotes: list[str] = []
    sign = ", "
    while sign == ", ":
        found = _QUOTES.match(rest)
        if not found:
            raise ValueError(f"{kind}: wanted words of the page in quotes: {rest}")
        quotes.append(found["text"])
        sign, rest = found["next"], rest[found.end() :]
    if sign != {"holds": " = ", "given": ": "}[kind]:
        wanted = "= and an expression" if kind == "holds" else "a colon and a reason"
        raise ValueError(f"{kind}: after the quotation stands {wanted}")
    if kind == "holds":
        try:
            compile(rest, "<binding>", "eval")
        except SyntaxError as error:
            raise ValueError(f"holds: {rest} is no expression: {error.msg}") from None
    return Binding(kind, tuple(quotes), rest, number)


def _dictionary(rest: str) -> str:
    """Write the terms of a ``where`` as Python does: ``{'Q': (q), 'd_k': (4)}``."""
    pairs: list[str] = []
    for term in rest.split("; "):
        found = _TERM.fullmatch(term)
        if not found:
            raise ValueError(f"where: wanted a letter and its value, Q = q: {term}")
        pairs.append(f"{found['tex']!r}: ({found['code']})")
        try:
            compile(found["code"], "<binding>", "eval")
        except SyntaxError as error:
            what = f"where: {found['code']} is no expression: {error.msg}"
            raise ValueError(what) from None
    return f"{{{', '.join(pairs)}}}"


@dataclass
class Notes:
    """What the expressions of a page gave, by the line of their comment."""

    values: dict[int, Value] = field(default_factory=dict[int, Value])
    terms: dict[int, Terms | str] = field(default_factory=dict[int, Terms | str])


_listening: list[Notes] = []


@contextmanager
def noted(notes: Notes) -> Generator[None]:
    """Keep what the expressions give while the blocks of a page run."""
    _listening.append(notes)
    try:
        yield
    finally:
        _listening.remove(notes)


def note_code(bindings: Iterable[Binding]) -> str:
    """Give the code that ends a block: it evaluates what is bound to it.

    Where this package is not loaded, it does nothing.
    """
    wanted = {"holds": dict[int, str](), "where": dict[int, str]()}
    for each in bindings:
        if each.kind in wanted:
            wanted[each.kind][each.line] = each.why
    if not any(wanted.values()):
        return ""
    here = f"__import__('sys').modules.get({__name__!r})"
    return f"; (lambda m: m and m.note(globals(), **{wanted!r}))({here})"


def note(names: dict[str, Any], holds: dict[int, str], where: dict[int, str]) -> None:
    """Evaluate expressions, so that the run that follows does not notice."""
    if not _listening:
        return
    import torch

    tracing, drawn, seeded = sys.gettrace(), random.getstate(), torch.get_rng_state()
    sys.settrace(None)  # What only a comment executes, the page has not executed.
    try:
        for line, expression in holds.items():
            _listening[-1].values[line] = _evaluate(expression, names)
        for line, expression in where.items():
            _listening[-1].terms[line] = _terms(expression, names)
    finally:
        random.setstate(drawn)
        torch.set_rng_state(seeded)
        sys.settrace(tracing)


def _evaluate(expression: str, names: dict[str, Any]) -> Value:
    import torch

    try:
        value = eval(expression, {"math": math, "torch": torch, **names})
        values = list(_flat(value))
        if values and all(isinstance(each, bool) for each in values):
            return all(values)
        return [float(each) for each in values]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _terms(expression: str, names: dict[str, Any]) -> Terms | str:
    import torch

    try:
        values = eval(expression, {"math": math, "torch": torch, **names})
        return {tex: _plain(value) for tex, value in values.items()}
    except NameError as error:
        return (
            f"NameError: {error}: after = stand names of the run; what a function "
            r"gives is a value too, under what the formula writes: \phi(q_t) = phi(q)"
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _plain(value: Any) -> Any:
    """Give numbers and lists of them, whatever they were kept in."""
    if hasattr(value, "detach"):
        value = value.detach()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return float(value)


def _flat(value: Any) -> Iterable[Any]:
    """Give the numbers in lists, tensors and dictionaries, from left to right."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [value]
    return [number for each in value for number in _flat(each)]
