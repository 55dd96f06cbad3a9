"""Open an issue for what the night's tests found, or add to the one that is open.

Standard library only: it runs where nothing is installed, with the right to open
issues, and with logs as all it knows of the tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["found_in", "report"]

# What is said of a page, how pytest names a test, and the table of make elsewhere.
_FOUND = re.compile(
    r"^(?:E\s+)?((?:docs/)?[\w/-]+\.md:\d+: .+|(?:FAILED|ERROR) \S.*"
    r"|[\w-]+ +\d+ (?:failed|errors?).*)",
    re.MULTILINE,
)


def found_in(log: str) -> list[str]:
    """Return each line of a log that names a page or a test, once; or else its end."""
    found = dict.fromkeys(line[:300] for line in _FOUND.findall(log))
    return [*found][:60] or log.strip().splitlines()[-20:]


def report(logs: dict[str, str], run: str) -> str:
    """Return the text of the issue: for each log its lines, as an indented block."""
    parts = [f"[The night's run]({run}) found:"]
    for name, log in sorted(logs.items()):
        lines = "\n".join(f"    {line}" for line in found_in(log))
        parts.append(f"## {name}\n\n{lines}")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    logs = {file.stem: file.read_text("utf-8") for file in folder.glob("*.log")}
    title = f"The night's tests: {', '.join(sorted(logs)) or 'no log'}"
    search = ["gh", "issue", "list", "--state", "open", "--json", "number,title"]
    search += ["--jq", f'.[] | select(.title == "{title}") | .number']
    there = subprocess.check_output(search, text=True).split()
    command = ["comment", there[0]] if there else ["create", "--title", title]
    command = ["gh", "issue", *command, "--body-file", "-"]
    text = report(logs, os.environ["RUN_URL"])
    subprocess.run(command, input=text, text=True, check=True)
