"""The style of the whole tree, by the tools that make lint calls."""

import re
import subprocess
import tomllib
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
def test_workflows_call_what_is_there(file: Path) -> None:
    """Each make target exists, each file of the repository, and actions are pinned."""
    text = file.read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = {"$GOAL", *re.findall(r"^([\w-]+):", makefile, re.MULTILINE)}
    called = re.findall(r'run: make (?:--\S+ )*"?([\w$-]+)', text)
    called += re.findall(r"\bgoal: ([\w-]+)", text)
    assert set(called) <= targets
    for path in re.findall(r"(?:src|\.github)/[\w/.-]+\.\w+", text):
        assert (ROOT / path).is_file(), path
    for action in re.findall(r"uses: (\S+)", text):
        assert re.search(r"@[0-9a-f]{40}$", action), action


def test_each_night_the_library_runs_with_the_oldest_pytorch_that_it_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (oldest,) = (d[7:] for d in project["dependencies"] if d.startswith("torch>="))
    nightly = (ROOT / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    assert f'torch: "torch=={oldest}.*"' in nightly
    extras = ",".join(project["optional-dependencies"])
    assert f'".[{extras}]"' in nightly
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"PyTorch {oldest} or later" in readme
    assert f'".[{extras}]"' in readme


def test_every_pin_says_which_version_it_is() -> None:
    for file in WORKFLOWS:
        for line in file.read_text("utf-8").splitlines():
            if "uses:" in line:
                assert re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
