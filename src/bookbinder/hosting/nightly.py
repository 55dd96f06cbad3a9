"""Open an issue for what the night's tests found: the pages, the lines, the reasons.

Standard library only: it runs where nothing is installed, with the right to open
issues, and with logs as all it knows of the tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["found_in", "main", "report"]

# What the tests say of a page, and how pytest names what failed.
_ON_PAGE = re.compile(r"^(?:E\s+)?((?:docs/)?[\w/-]+\.md:\d+: .+)$", re.MULTILINE)
_FAILED = re.compile(r"^((?:FAILED|ERROR) \S.*)$", re.MULTILINE)
_MOST = 60


def found_in(log: str) -> list[str]:
    """Give each ``page.md:line: reason`` of a log once, or else the tests that failed.

    Where there is neither, the run broke before or beside the tests: its last lines.
    """
    for pattern in (_ON_PAGE, _FAILED):
        found = dict.fromkeys(line.strip()[:300] for line in pattern.findall(log))
        if found:
            return list(found)[:_MOST]
    return log.strip().splitlines()[-20:]


def report(logs: dict[str, str], run: str) -> str:
    """Write the text of the issue.

    Args:
        logs: For each kind of run that failed, what it printed.
        run: The address of the run.
    """
    parts = [f"[The night's run]({run}) found:"]
    for name, log in sorted(logs.items()):
        # A fence longer than any in the log, so that nothing in it ends the block.
        longest = max(map(len, re.findall(r"`+", log)), default=2)
        fence = "`" * (max(longest, 2) + 1)
        lines = "\n".join(found_in(log))
        parts.append(f"## {name}\n\n{fence}text\n{lines}\n{fence}")
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Open the issue for the logs in a folder; add to the one that is open already."""
    (folder,) = arguments
    logs = {file.stem: file.read_text("utf-8") for file in Path(folder).glob("*.log")}
    title = f"The night's tests: {', '.join(sorted(logs)) or 'no log'}"
    text = report(logs, os.environ["RUN_URL"])
    search = ["gh", "issue", "list", "--state", "open", "--json", "number,title"]
    search += ["--jq", f'.[] | select(.title == "{title}") | .number']
    done = subprocess.run(search, check=True, capture_output=True, text=True)
    there = done.stdout.split()
    command = ["comment", there[0]] if there else ["create", "--title", title]
    subprocess.run(
        ["gh", "issue", *command, "--body-file", "-"], input=text, text=True, check=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
