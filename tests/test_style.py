"""The style of the whole tree, by the tools that make lint calls."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
GOALS = ["lint-code", "lint-types", "lint-prose", "lint-workflows"]


@pytest.mark.parametrize("goal", GOALS)
def test_the_tools_have_nothing_to_say(goal: str) -> None:
    # What is installed is what runs these tests: the setup is not asked again.
    make = ["make", "--no-print-directory", "--old-file=setup", goal]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_git_runs_before_a_commit_what_make_lint_runs() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    (repo,) = yaml.safe_load(text)["repos"]
    assert repo["repo"] == "local"
    assert [hook["entry"] for hook in repo["hooks"]] == [f"make {g}" for g in GOALS]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"\nlint: {' '.join(GOALS)} ## " in makefile


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_run_what_a_person_runs(file: Path) -> None:
    """A step is an action, pinned; a make target; or a script of bookbinder's own.

    Where a job may write, and so runs no code of the repository: git's commands.
    """
    goals = set(
        re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    )
    jobs = yaml.safe_load(file.read_text("utf-8"))["jobs"]
    goals |= {"$GOAL"} if file.name == "nightly.yml" else set()
    for job in jobs.values():
        for row in job.get("strategy", {}).get("matrix", {}).get("include", []):
            assert row["goal"] in goals
        for step in job["steps"]:
            if "uses" in step:
                assert re.search(r"@[0-9a-f]{40}$", step["uses"]), step["uses"]
                continue
            lines = step["run"].replace("\\\n", " ").splitlines()
            if {line.split()[0] for line in lines} <= {"git", "gh"}:
                continue
            program, first, *_ = step["run"].replace('"', "").split()
            if program == "make":
                assert first in goals, step["run"]
            else:
                assert program == "python3"
                assert first.startswith("src/bookbinder/hosting/")
                assert (ROOT / first).is_file()


def test_every_pin_says_which_version_it_is() -> None:
    for file in WORKFLOWS:
        for line in file.read_text("utf-8").splitlines():
            if "uses:" in line:
                assert re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
