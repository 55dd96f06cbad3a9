"""A chain that hangs on where it runs is found, and one that does not is left alone."""

import shutil
from pathlib import Path

import pytest

from bookbinder.places import ELSEWHERE, PageChain, run_in
from bookbinder.page import load_page, read_page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# What each prints is what it prints where the tests run.
HANGING = {
    "the seed": ("print(torch.randint(2**40, ()).item() % 1000)", "151"),
    "the threads": ("print(torch.get_num_threads())", "1"),
    "the folder": ("print(len(list(pathlib.Path.cwd().iterdir())))", "0"),
    "nothing": ("print(causal_mask(2).tolist())", "[[True, False], [True, True]]"),
    "the way out": ("os._exit(0)", ""),
}


def chain(code: str, output: str) -> str:
    imports = "import os\nimport pathlib\n\nimport torch\n\n"
    imports += "from tested_transformer import causal_mask\n\n"
    shown = f"<!--pytest-codeblocks:expected-output-->\n```text\n{output}\n```\n"
    return f"```python\n{imports}{code}\n```\n\n{shown if output else ''}"


def test_what_hangs_on_the_place_is_found(tmp_path: Path):
    page = read_page(
        "# A page\n\n" + "\n".join(map(chain, *zip(*HANGING.values(), strict=True))),
        "page.md",
    )
    assert page.problems == []
    chains = [PageChain(page, each) for each in page.chains]
    by_name = dict(zip((each.name for each in chains), HANGING, strict=True))
    for name in ("README.md", "CONTRIBUTING.md"):
        right = load_page(ROOT / name, ROOT)
        chains += [PageChain(right, each) for each in right.chains]
    # As a wheel lays it out.
    shutil.copytree(
        ROOT / "src" / "tested_transformer", tmp_path / "tested_transformer"
    )
    failed = dict(run_in(ELSEWHERE, chains, tmp_path, jobs=2))
    assert {by_name.get(name, name) for name in failed} == {
        "the seed",
        "the threads",
        "the way out",
    }
    assert "a block may not leave the run" in str(failed.values())
