"""What the workflows write for others to read, with a ``gh`` that only listens.

One has the right to comment on a pull request, and reads what its code has left.
"""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

WORKFLOWS = Path(__file__).parents[1] / ".github" / "workflows"


def run(workflow: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the last step of a workflow in a folder, as the host does."""
    jobs = yaml.safe_load((WORKFLOWS / workflow).read_text("utf-8"))["jobs"]
    *_, job = jobs.values()
    step = job["steps"][-1]
    gh = folder / "bin" / "gh"
    gh.parent.mkdir()
    # It knows of one pull request, 7, and of one open issue, 3.
    gh.write_text(
        f"""#!/bin/sh
case "$*" in
  api*) echo 7 ;;
  *list*) [ "$TITLE" = "The night's tests: a,b" ] && echo 3 || true ;;
  *) echo "$@" && cat "{folder}"/*.md "{folder}"/logs/*.md 2>&- || true ;;
esac
"""
    )
    gh.chmod(0o755)
    environment = os.environ | dict.fromkeys(step["env"], "X")
    environment |= {
        "RUNNER_TEMP": str(folder),
        "PATH": f"{gh.parent}:{os.environ['PATH']}",
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


def comment(folder: Path, lines: str) -> subprocess.CompletedProcess[str]:
    (folder / "changes").mkdir()
    (folder / "changes" / "changes.txt").write_text(lines, "utf-8", newline="")
    return run("comment.yml", folder)


def test_the_comment_on_a_pull_request_is_a_table(tmp_path: Path) -> None:
    done = comment(tmp_path, "chapters/no-peeking.md 3 1\nhome 0 2\n")
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("pr comment 7 ")
    assert rest[4:6] == ["| `chapters/no-peeking.md` | 3 | 1 |", "| `home` | 0 | 2 |"]


@pytest.mark.parametrize(
    "line",
    [
        *("a](https://elsewhere.example)[ 1 0", "../../settings 1 0", "a`b 1 0"),
        *("a|b 1 0", "a 1 0\r## b", "@everyone 1 0", "a one 0", "a 1 0 0", "a 1 ٣"),
        *("", "a\x001 0", "ä 1 0"),
    ],
)
def test_a_line_with_anything_else_is_refused(line: str, tmp_path: Path) -> None:
    done = comment(tmp_path, f"home 1 1\n{line}\n")
    assert done.returncode == 1
    assert done.stderr == "not a page and two numbers\n"
    assert "pr comment" not in done.stdout


PAGE = "docs/chapters/no-peeking.md:12: the output differs: printed 'a', shown 'b'"
TEST = "FAILED tests/tested_transformer/test_masks.py::test_rows - assert 1 == 2"


def test_an_issue_names_what_failed_at_night(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = f"....F.\n____ no-peeking.md: audit ____\n{PAGE}\nE   {PAGE}\n{TEST}\n"
    (tmp_path / "logs" / "a.log").write_text(f"{log}1 failed in 2.00s\nfailed: bf16\n")
    (tmp_path / "logs" / "b.log").write_text("setup: ```\nmake: *** Error 1\n")
    done = run("nightly.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "issue comment 3 --body-file issue.md",
        "[The night's run](X) found:",
        *("", "## a", "", f"    {PAGE}", f"    {TEST}", "    failed: bf16"),
        *("", "## b", "", "    setup: ```", "    make: *** Error 1"),
    ]


def test_a_night_without_logs_opens_an_issue_too(tmp_path: Path) -> None:
    done = run("nightly.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("issue create --title The night's tests: ")
