"""Run the checks on each module of a set, and on bugs in it; count the answers.

Each is checked twice: as it is, and as its author could pass it, with an adapter of at
most two lines and with arguments that describe it.
"""

import json
import os
import signal
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.public.bugs import Bug, draw_bugs, make_with
from benchmarks.public.modules import Module, Trees, checkout
from benchmarks.stamp import modules_used
from tested_transformer.checking import check_attention

__all__ = [
    *("BUGS", "MODULES", "Answer", "ask", "measure_found", "measure_public"),
    *("shortened", "verdict"),
]

WAYS = ("as they are", "with adapters")
MODULES = ("right", "limited", "not known", "wrong", "refused")
BUGS = (
    *("named rightly", "misnamed", "caught, not named", "refused"),
    *("not known", "passed as right", "as the correct module"),
)
_SECONDS = 60
_PROCESSES = 4
_SETS = "learn", "held_out", "unseen", "found"
# A module that is correct in single precision, within limits, may fail these.
_LIMITS = {"dtypes", "empty rows", "huge scores"}


@dataclass(frozen=True)
class Answer:
    """The answer of the checks about an attention.

    Args:
        state: ``right``, ``not known``, ``wrong`` or ``refused``.
        failed: The checks that failed.
        likely: The names of the exhibits that are like it.
        reason: Why it is not ``right``.
        said: The beginning of the report.
    """

    state: str
    failed: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()
    reason: str = ""
    said: str = ""


def measure_public(
    folder: Path | None,
    sets: Sequence[str],
    *,
    only: str = "",
    parts: Path | None = None,
) -> dict[str, Any]:
    """Check all modules of some sets that have a checkout, and bugs in them.

    Args:
        folder: The folder with the checkouts, each under the name of its repository,
            with ``+`` for ``/``.
        sets: Some of ``learn``, ``held_out`` and ``unseen``.
        only: Check only modules whose names contain this.
        parts: A folder that keeps the answers about each module. Those that the same
            code has written there are not asked for again.

    Raises:
        ValueError: If no such module has a checkout.
    """
    results: dict[str, Any] = {}
    for each in sets:
        folder, there = _there(each, folder, only)
        if there:
            asked = partial(_asked, folder=folder)
            if parts is not None:
                asked = partial(_asked_once, folder=folder, kept=parts / each)
            fork = get_context("fork")
            with ProcessPoolExecutor(_PROCESSES, mp_context=fork) as processes:
                answers = processes.map(asked, there, there.values())
                found = dict(zip(there, answers, strict=True))
            results[each] = {**tables(found), "each": found}
    if not results:
        raise ValueError(f"--projects={folder} has none of the checkouts")
    return results


def measure_found(folder: Path | None, *, only: str = "") -> dict[str, Any]:
    """Check the modules of ``found``, without any bugs put into them.

    Args:
        folder: The folder with the checkouts, as for ``measure_public``.
        only: Check only modules whose names contain this.

    Raises:
        ValueError: If no such module has a checkout.
    """
    folder, there = _there("found", folder, only)
    if not there:
        raise ValueError(f"--projects={folder} has none of the checkouts")
    found: dict[str, Any] = {}
    for name, module in there.items():
        asked = {way: _answer(module, folder, None, way) for way in WAYS}
        found[name] = {way: asdict(answer) for way, answer in asked.items()}
        found[name]["commit"] = module.commit
    return {**{way: _states(found, way) for way in WAYS}, "each": found}


def _there(name: str, folder: Path | None, only: str) -> tuple[Path, dict[str, Module]]:
    """Return the folder, and the modules of a set that have a checkout in it."""
    if folder is None:
        raise ValueError("--projects is missing: give a folder with checkouts")
    modules: dict[str, Module] = import_module(f"benchmarks.public.{name}").MODULES
    return folder, {
        key: module
        for key, module in modules.items()
        if only in key and checkout(module, folder).is_dir()
    }


def tables(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Count the answers about modules and about bugs, for both ways."""
    counted: dict[str, Any] = {}
    for way in WAYS:
        bugs = [bug for each in found.values() for bug in each["bugs"]]
        of_bugs = Counter(bug[way]["verdict"] for bug in bugs)
        counted[way] = {
            "modules": _states(found, way),
            "bugs": {"all": len(bugs), **{x: of_bugs[x] for x in BUGS}},
        }
    return counted


def _states(found: dict[str, dict[str, Any]], way: str) -> dict[str, int]:
    """Count the answers about modules."""
    states = Counter(_state(each[way]) for each in found.values())
    return {"all": len(found), **{x: states[x] for x in MODULES}}


def shortened(results: dict[str, Any]) -> dict[str, Any]:
    """Return results that keep only the rule and the verdicts of each bug."""
    return {
        name: {
            **of_set,
            "each": {
                module: {
                    **said,
                    "bugs": [
                        {"rule": bug["rule"], **{w: bug[w]["verdict"] for w in WAYS}}
                        for bug in said["bugs"]
                    ],
                }
                for module, said in of_set["each"].items()
            },
        }
        for name, of_set in results.items()
    }


def _state(said: dict[str, Any]) -> str:
    """Return the state of a correct module: a limit is not counted as a false alarm."""
    limited = said["state"] == "wrong" and {*said["failed"]} <= _LIMITS
    return "limited" if limited else said["state"]


def _asked_once(
    name: str, module: Module, *, folder: Path, kept: Path
) -> dict[str, Any]:
    """Return the answers in a folder, or ask for them and keep them there."""
    code = {x: y for x, y in modules_used().items() if Path(x).stem not in _SETS}
    made_with = json.dumps([code, repr(module)]).encode()
    file = kept / f"{name.replace('/', '+')}.{sha256(made_with).hexdigest()[:16]}.json"
    if not file.is_file():
        kept.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(_asked(name, module, folder)), "utf-8")
        os.replace(unfinished, file)
    return json.loads(file.read_text("utf-8"))


def _asked(name: str, module: Module, folder: Path) -> dict[str, Any]:
    """Check a module and each of its bugs, in both ways."""
    right = {way: _answer(module, folder, None, way) for way in WAYS}
    asked: dict[str, Any] = {way: asdict(right[way]) for way in WAYS}
    bugs = draw_bugs(name, module, folder)
    asked["bugs"] = [_asked_of_bug(module, folder, each, right) for each in bugs]
    return asked


def _asked_of_bug(
    module: Module, folder: Path, bug: Bug, right: dict[str, Answer]
) -> dict[str, Any]:
    said: dict[str, Any] = {"rule": bug.rule.name, "place": bug.place}
    for way in WAYS:
        if way == WAYS[1] and not (module.adapter or module.given):
            said[way] = said[WAYS[0]]  # it needs no adapter
            continue
        answer = _answer(module, folder, bug.trees, way)
        told = verdict(answer, right[way], bug.rule.exhibits)
        said[way] = {"verdict": told, **asdict(answer)}
    return said


def verdict(answer: Answer, right: Answer, exhibits: Sequence[str]) -> str:
    """Return the verdict on an answer about a bug.

    Args:
        answer: The answer about the module with the bug.
        right: The answer about the correct module.
        exhibits: The exhibits that name the bug rightly.
    """
    if answer.state == "right":
        return "passed as right"
    if answer.state == "not known":
        return "not known"
    same = (answer.state, answer.failed, answer.likely)
    if same == (right.state, right.failed, right.likely):
        return "as the correct module"
    if answer.state == "refused":
        return "refused"
    if not answer.likely:
        return "caught, not named"
    return "named rightly" if {*answer.likely} & {*exhibits} else "misnamed"


def _answer(module: Module, folder: Path, trees: Trees | None, way: str) -> Answer:
    options = module.arguments if way == WAYS[1] else {}
    made = make_with(module, folder, trees, adapted=way == WAYS[1])
    return ask(made, **options)


def ask(attention: Any, **options: Any) -> Answer:
    """Check an attention, and return the answer; an error counts as ``refused``."""
    try:
        with _limited(_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = check_attention(attention, **options)
    except Exception as error:  # a layer can raise anything
        return Answer("refused", reason=f"{type(error).__name__}: {error}"[:300])
    reasons = [x.reason for x in report.verdicts if x.passed is False]
    return Answer(
        report.state,
        tuple(report.failed),
        tuple(each.name for each in report.likely),
        "; ".join(reasons or report.unknown)[:300],
        str(report).partition("\nCalled in")[0],
    )


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Raise a ``TimeoutError`` after so many seconds of this process's CPU time."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"took more than {seconds} seconds")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
