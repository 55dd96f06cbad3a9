"""Keep what became of mutants and slips, and write the files that the report reads."""

import json
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from bookbinder.mutation.library import Verdict
from bookbinder.mutation.slips import MEANT, Slip

__all__ = ["Journal", "library_results", "page_results", "reviewed"]

REVIEWED = Path(__file__).with_name("survivors.toml")


class Journal:
    """What is known already, line by line in a file, so that a run can be taken up.

    Args:
        file: The file; its name tells the state of the book that it belongs to.
        rests_on: Gives the state of whatever else a saying rests on; it is known no
            more when that has changed.
    """

    def __init__(
        self, file: Path, rests_on: Callable[[Any], str] = lambda said: ""
    ) -> None:
        self.file, self.rests_on = file, rests_on
        self.known: dict[str, Any] = {}
        if file.is_file():
            for line in file.read_text("utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # cut off as it was written
                if entry["on"] == rests_on(entry["said"]):
                    self.known[entry["key"]] = entry["said"]

    def write(self, key: str, said: Any) -> None:
        """Add a line."""
        self.known[key] = said
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as sink:
            entry = {"key": key, "said": said, "on": self.rests_on(said)}
            sink.write(json.dumps(entry) + "\n")


def reviewed() -> tuple[dict[tuple[str, str, str], str], dict[tuple[str, str], str]]:
    """Give the reasons for survivors, as people have judged them.

    Returns:
        For mutants by file, line of code and change; for slips by the line of the
        page before and after.
    """
    told = tomllib.loads(REVIEWED.read_text("utf-8"))
    mutants = {
        (each["file"], each["code"], change): each["reason"]
        for each in told.get("mutant", [])
        for change in each["changes"]
    }
    slips = {
        (each["before"], each["after"]): each["reason"] for each in told.get("slip", [])
    }
    return mutants, slips


def library_results(
    verdicts: Iterable[Verdict], by_pages: Iterable[Verdict], library: Path
) -> dict[str, Any]:
    """Count what tests and pages have noticed, and list what the tests have not."""
    reasons, _ = reviewed()
    modules = defaultdict[str, dict[str, int]](lambda: _tally())
    operators = defaultdict[str, dict[str, int]](lambda: _tally())
    pages = defaultdict[str, dict[str, int]](lambda: _tally())
    survivors: list[dict[str, Any]] = []
    for verdict in verdicts:
        mutant, file = verdict.broken.mutant, verdict.broken.file
        name = file.relative_to(library).as_posix()
        reason = reasons.get((name, mutant.text, mutant.change), "")
        for tally in (modules[verdict.broken.module], operators[mutant.operator]):
            _count(tally, verdict.by, reason)
        if not verdict.by:
            survivors.append(
                {
                    "module": verdict.broken.module,
                    "file": name,
                    "line": mutant.line,
                    "function": mutant.function,
                    "operator": mutant.operator,
                    "code": mutant.text,
                    "change": mutant.change,
                    "reason": reason,
                }
            )
    for verdict in by_pages:
        _count(pages[verdict.broken.module], verdict.by, "")
    survivors.sort(key=lambda each: (each["file"], each["line"], each["change"]))
    return {
        "modules": modules,
        "operators": dict(sorted(operators.items())),
        "pages": pages,
        "survivors": survivors,
    }


def page_results(told: Iterable[tuple[Slip, str]]) -> dict[str, Any]:
    """Count the slips that were noticed, and list those that were not."""
    _, reasons = reviewed()
    kinds = defaultdict[str, dict[str, int]](lambda: _tally())
    survivors: list[dict[str, Any]] = []
    for slip, by in told:
        reason = reasons.get((slip.before, slip.after), "")
        _count(kinds[slip.kind], by, reason)
        if not by:
            survivors.append({**vars(slip), "reason": reason})
    survivors.sort(key=lambda each: (each["page"], each["line"]))
    return {"kinds": kinds, "meant": sorted(MEANT), "survivors": survivors}


def _tally() -> dict[str, int]:
    return {"made": 0, "noticed": 0, "by_time": 0, "explained": 0}


def _count(tally: dict[str, int], by: str, reason: str) -> None:
    tally["made"] += 1
    tally["noticed"] += bool(by)
    tally["by_time"] += by == "time"
    tally["explained"] += not by and bool(reason)


def table(tallies: Mapping[str, Mapping[str, int]]) -> str:
    """Write tallies below one another, with their sum."""
    total = {key: sum(each[key] for each in tallies.values()) for key in _tally()}
    lines = [f"{'':26} {'made':>6} {'noticed':>8} {'share':>7} {'explained':>10}"]
    for name, each in [*tallies.items(), ("all", total)]:
        share = each["noticed"] / max(each["made"], 1)
        lines.append(
            f"{name:26} {each['made']:6} {each['noticed']:8} {share:7.1%} "
            f"{each['explained']:10}"
        )
    return "\n".join(lines)
