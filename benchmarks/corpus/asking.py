"""Ask the checks about each module of a set and each bug in it; count the answers.

Each is asked about twice: as it is, and with what its author would say of it: how it is
called and what it should compute.
"""

import json
import os
import signal
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.corpus.modules import CORPUS, Bug, Module, checkout, make, read
from benchmarks.run import SETS, Results, Run
from benchmarks.stamp import modules_used

__all__ = [
    *("BUGS", "STATES", "WAYS", "Answer", "ask", "found", "modules", "public"),
    *("shortened", "tables", "told", "verdict"),
]

WAYS = ("as they are", "with adapters")
STATES = ("right", "within limits", "cannot tell", "wrong", "refused")
BUGS = (
    *("named alone", "named among three", "other names", "no name"),
    *("as the correct module", "within limits", "cannot tell", "right", "refused"),
)
_SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """What the checks say of an attention.

    Args:
        state: One of ``STATES``; any error counts as ``refused``.
        names: The exhibits that it may be.
        limits: The limits within which it is right.
        adapter: An adapter to fill in.
        said: The report, or the error.
    """

    state: str
    names: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    adapter: str = ""
    said: str = ""


def public(run: Run) -> Results:
    """Ask about sets, print tables and return them: for ``--out``, with all answers.

    Raises:
        ValueError: If no module has a checkout.
    """
    results = _asked_of_sets(run, [run.set] if run.set else SETS)
    return results if run.out else shortened(results)


def found(run: Run) -> Results:
    """Ask about the modules that may be wrong, and print a table.

    Raises:
        ValueError: If no module has a checkout.
    """
    return _asked_of_sets(run, ["found"])["found"]


def modules(name: str, folder: Path | None, only: str = "") -> list[Module]:
    """Return the modules of a set that have a checkout in a folder.

    Args:
        name: The name of the set.
        folder: A folder with a checkout of each project, named ``owner+name``.
        only: What the names of modules must contain.

    Raises:
        ValueError: If there is no folder.
    """
    if folder is None:
        raise ValueError("--projects is missing: give a folder with checkouts")
    every = [read(file) for file in sorted((CORPUS / name).glob("*.toml"))]
    return [x for x in every if only in x.name and checkout(x, folder).is_dir()]


def _asked_of_sets(run: Run, names: Sequence[str]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name in names:
        there = modules(name, run.projects, run.only)
        kept = None if run.parts is None else run.parts / name
        asked = partial(_asked, folder=run.projects, kept=kept)
        if len(there) < 2:  # no other process is worth its start
            answers = [*map(asked, there)]
        else:
            with ProcessPoolExecutor(mp_context=get_context("fork")) as processes:
                answers = [*processes.map(asked, there)]
        if each := {x.name: y for x, y in zip(there, answers, strict=True)}:
            results[name] = {**tables(each), "each": each}
    if not results:
        raise ValueError(f"--projects={run.projects} has none of the checkouts")
    print("\n".join(told(results, verbose=run.verbose)))
    return results


def _asked(module: Module, *, folder: Path, kept: Path | None) -> dict[str, Any]:
    """Ask about a module and its bugs, unless this code has kept the answers."""
    if kept is None:
        return _asked_anew(module, folder)
    made_with = json.dumps([modules_used(), repr(module)]).encode()
    name = f"{module.name.replace('/', '+')}.{sha256(made_with).hexdigest()[:16]}.json"
    if not (kept / name).is_file():
        kept.mkdir(parents=True, exist_ok=True)
        unfinished = kept / f"{name}.unfinished"
        unfinished.write_text(json.dumps(_asked_anew(module, folder)), "utf-8")
        os.replace(unfinished, kept / name)
    return json.loads((kept / name).read_text("utf-8"))


def _asked_anew(module: Module, folder: Path) -> dict[str, Any]:
    right = _answers(module, folder)
    asked: dict[str, Any] = {way: asdict(right[way]) for way in WAYS}
    asked["bugs"] = []
    for bug in module.bugs:
        said: dict[str, Any] = {"bug": bug.bug, "kind": bug.kind}
        for way, answer in _answers(module, folder, bug).items():
            worth = verdict(answer, right[way], bug.names)
            said[way] = {"verdict": worth, **asdict(answer)}
        asked["bugs"].append(said)
    return asked


def _answers(module: Module, folder: Path, bug: Bug | None = None) -> dict[str, Answer]:
    first = ask(make(module, folder, bug)[0])
    # The layer is made anew, as a check may leave something in it.
    layer, settings = make(module, folder, bug)
    return {WAYS[0]: first, WAYS[1]: ask(layer, **settings) if settings else first}


def ask(layer: Any, **settings: Any) -> Answer:
    """Check a layer, and return the answer; in time, by the CPU's clock."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"took more than {_SECONDS} seconds")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, _SECONDS)
    try:
        with warnings.catch_warnings(action="ignore"):
            check_attention = import_module("attention_check").check_attention
            report = check_attention(layer, **settings)
            limits = tuple(each.name for each in report.limits)
            parts = report.state, (*report.names,), limits, report.adapter
            return Answer(*parts, str(report))
    except Exception as error:  # a layer can raise anything
        return Answer("refused", said=f"{type(error).__name__}: {error}"[:300])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def verdict(answer: Answer, right: Answer, names: Sequence[str]) -> str:
    """Return what an answer about a bug is worth, one of ``BUGS``.

    Args:
        answer: The answer about the module with the bug.
        right: The answer about the correct module.
        names: The exhibits that name the bug rightly.
    """
    if answer.state != "wrong":
        return answer.state
    if right.state == "wrong" and right.names == answer.names:
        return "as the correct module"
    if not answer.names:
        return "no name"
    if {*answer.names}.isdisjoint(names):
        return "other names"
    if len(answer.names) == 1:
        return "named alone"
    return "named among three" if len(answer.names) <= 3 else "no name"


def tables(each: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Count the answers about modules and about bugs, for both ways."""
    bugs = [bug for asked in each.values() for bug in asked["bugs"]]
    counted: dict[str, Any] = {}
    for way in WAYS:
        states = Counter(asked[way]["state"] for asked in each.values())
        worth = Counter(bug[way]["verdict"] for bug in bugs)
        counted[way] = {"modules": {"all": len(each), **{x: states[x] for x in STATES}}}
        if bugs:
            counted[way]["bugs"] = {"all": len(bugs), **{x: worth[x] for x in BUGS}}
    return counted


def told(results: dict[str, Any], *, verbose: bool = False) -> Iterator[str]:
    """Yield tables of each set, with a column per way.

    Args:
        results: The tables of each set, and its answers.
        verbose: Whether to add a line for each module and each of its bugs.
    """
    for name, of_set in results.items():
        yield f"{name:<24}" + "".join(f"{way:>24}" for way in WAYS)
        for what, counts in of_set[WAYS[0]].items():
            for row in counts:
                numbers = [of_set[way][what][row] for way in WAYS]
                head = what if row == "all" else f"  {row}"
                yield f"{head:<24}" + "".join(f"{each:>24}" for each in numbers)
        for module, said in of_set["each"].items() if verbose else ():
            yield f"{module}: " + " | ".join(said[way]["state"] for way in WAYS)
            yield from (f"    {line}" for line in said[WAYS[1]]["said"].splitlines())
            for bug in said["bugs"]:
                verdicts = " | ".join(bug[way]["verdict"] for way in WAYS)
                yield f"  {bug['bug']}: {verdicts}"
        yield ""


def shortened(results: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of results: what a record keeps."""
    return {
        name: {way: of_set[way] for way in WAYS} for name, of_set in results.items()
    }
