"""Record which parts of a JavaScript file have run, by the counts of its engine.

If an environment variable names a folder, Node writes a count for every function and
branch of the scripts that it ran.
"""

import json
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from urllib.request import url2pathname

from bookbinder.listings import Section
from bookbinder.places import real_name

Idle = dict[str, set[int]]
"""For each script that was loaded, the places of the characters that never ran."""


@contextmanager
def recorded_scripts(idle: Idle) -> Generator[None]:
    """Record what does not run in any Node that starts and ends within the block.

    Args:
        idle: The places that no run has reached so far; updated at the end.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, NODE_V8_COVERAGE=folder),
    ):
        try:
            yield
        finally:
            for report in sorted(Path(folder).glob("*.json")):
                for script in json.loads(report.read_text("utf-8"))["result"]:
                    url = urlsplit(script["url"])
                    if url.scheme == "file":
                        file = real_name(url2pathname(url.path))
                        places = idle_places(script["functions"])
                        idle[file] = idle[file] & places if file in idle else places


def idle_places(functions: list[dict[str, Any]]) -> set[int]:
    """Return the characters that never ran, from V8's counts.

    Its ranges are nested, and the innermost one counts.
    """
    ranges = [each for function in functions for each in function["ranges"]]
    idle: set[int] = set()
    for each in sorted(ranges, key=lambda r: (r["startOffset"], -r["endOffset"])):
        places = range(each["startOffset"], each["endOffset"])
        if each["count"]:
            idle.difference_update(places)
        else:
            idle.update(places)
    return idle


def never_run(section: Section, idle: Idle) -> list[int]:
    """Return the first line of each part of a section that has not run."""
    file = real_name(str(section.file))
    if file not in idle:
        return [section.first]
    text = section.file.read_text("utf-8")
    lines: list[int] = []
    start = 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        listed = section.first <= number <= section.last
        # Closing brackets are counted with what follows them.
        places = (start + at for at, sign in enumerate(line) if not sign.isspace())
        if listed and line.strip("}); \n") and idle[file].intersection(places):
            lines.append(number)
        start += len(line)
    return [line for line in lines if line - 1 not in lines]
