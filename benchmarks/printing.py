"""Print reports in lines that fit a terminal."""

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.stamp import changed_modules
from transformer_book import RECORDS

__all__ = ["lines", "outdated_lines", "shown"]


def outdated_lines(folder: Path = RECORDS) -> Iterator[str]:
    """Return a line for each record: its date, and which modules changed since."""
    for file in sorted(folder.glob("*.json")):
        record = json.loads(file.read_text("utf-8"))
        stamp = record["stamp"]
        heading = f"{file.stem:16} {stamp['date'][:10]}"
        if "modules" not in stamp:
            yield f"{heading}  does not name its modules"
            continue
        changed, total = changed_modules(record), len(stamp["modules"])
        names = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
        state = f"{len(changed)} of {total} modules have changed: {names}"
        yield f"{heading}  {state if changed else 'up to date'}"


def shown(record: dict, what: str = "all") -> str:
    """Return ``all`` of a record, only its ``stamp``, or all of it as ``json``."""
    if what == "json":
        return json.dumps(record, indent=2)
    return "\n".join(lines(record if what == "all" else {**record, "results": {}}))


def lines(report: dict) -> Iterator[str]:
    """Return the lines of a record: the machine, then the results."""
    stamp = report["stamp"]
    yield f"{report['kind']}: {stamp['date']}, commit {stamp['commit'][:10]}"
    yield (
        f"{stamp['device']}; {stamp['cpu']}, {stamp['instructions']}; "
        f"{stamp['threads']} threads of "
        f"{stamp['cores']} cores; torch {stamp['torch']}"
    )
    for peer, version in stamp["peers"].items():
        yield f"  {peer}: {version}"
    if report["quick"]:
        yield "quick: these numbers only show that the program runs"
    yield ""
    yield from _shown(report["results"], 0)


def _shown(value: object, depth: int) -> Iterator[str]:
    """Return lines with nested results indented, and small ones on one line."""
    indent = "  " * depth
    if isinstance(value, dict):
        width = max((len(str(key)) for key in value), default=0)
        for key, item in value.items():
            if _is_small(item):
                yield f"{indent}{key!s:<{width}}  {_inline(item)}"
            else:
                yield f"{indent}{key}"
                yield from _shown(item, depth + 1)
    elif isinstance(value, list) and not _is_small(value):
        for item in value:
            yield f"{indent}{_inline(item)}"
    else:
        yield f"{indent}{_inline(value)}"


def _is_small(value: object) -> bool:
    if isinstance(value, dict) and "median_ms" in value:
        return True
    return not isinstance(value, dict | list) or len(_inline(value)) <= 60


def _inline(value: object) -> str:
    if isinstance(value, dict) and "median_ms" in value:
        quartiles = "{lower_quartile_ms:.2f} to {upper_quartile_ms:.2f}"
        shown = "{median_ms:9.2f} ms  (" + quartiles + ", {count} calls)"
        return shown.format(**value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {_inline(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_inline(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
