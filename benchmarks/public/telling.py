"""Format the results of public projects as lines that fit a terminal."""

from collections.abc import Iterator
from typing import Any

from benchmarks.public.asking import BUGS, MODULES, WAYS

__all__ = ["told", "told_found"]


def told(results: dict[str, Any], *, verbose: bool = False) -> Iterator[str]:
    """Yield a table of modules and one of bugs for each set, with a column per way.

    Args:
        results: What ``measure_public`` returns.
        verbose: Whether to add a line for each module and each of its bugs.
    """
    for name, of_set in results.items():
        for what, columns in (("modules", MODULES), ("bugs", BUGS)):
            yield f"{name:<24}" + "".join(f"{each:>24}" for each in WAYS)
            for column in ("all", *columns):
                counts = [of_set[way][what][column] for way in WAYS]
                head = what if column == "all" else f"  {column}"
                yield f"{head:<24}" + "".join(f"{each:>24}" for each in counts)
            yield ""
        for module, said in of_set["each"].items() if verbose else ():
            yield module
            states = " | ".join(said[way]["state"] for way in WAYS)
            yield f"  {states}  {said[WAYS[1]]['reason']}".rstrip()
            for bug in said["bugs"]:
                verdicts = " | ".join(bug[way]["verdict"] for way in WAYS)
                yield f"    {bug['rule']}: {verdicts}"


def told_found(results: dict[str, Any], *, verbose: bool = False) -> Iterator[str]:
    """Yield a table of the answers about modules that may be wrong, and each answer.

    Args:
        results: What ``measure_found`` returns.
        verbose: Whether to add the beginning of each report.
    """
    for column in ("all", *MODULES):
        counts = [results[way][column] for way in WAYS]
        yield f"{column:<24}" + "".join(f"{each:>24}" for each in counts)
    for name, said in results["each"].items():
        yield f"{name}: {' | '.join(said[way]['state'] for way in WAYS)}"
        if verbose:
            answer = said[WAYS[1]]
            yield from (f"  {line}" for line in answer["said"].splitlines())
            if not answer["said"]:
                yield f"  {answer['reason']}"
