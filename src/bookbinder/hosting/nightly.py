"""Open an issue for failures of the nightly tests, or comment on the open one.

It uses only the standard library, because it runs where nothing is installed. It has
permission to open issues, and knows only the logs of the tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["found_in", "report"]

# Lines about pages, pytest's names of tests, and the table of make elsewhere.
_FOUND = re.compile(
    r"^(?:E\s+)?((?:docs/)?[\w/-]+\.md:\d+: .+|(?:FAILED|ERROR) \S.*"
    r"|[\w-]+ +\d+ (?:failed|errors?).*)",
    re.MULTILINE,
)


def found_in(log: str) -> list[str]:
    """Return the lines of a log that name a page or a test, or its last lines."""
    found = dict.fromkeys(line[:300] for line in _FOUND.findall(log))
    return [*found][:60] or log.strip().splitlines()[-20:]


def report(logs: dict[str, str], run: str) -> str:
    """Return the text of the issue, with the lines of each log as an indented block."""
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
