import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bookbinder.evidence import Evidence
from bookbinder.page import Page, load_page
from bookbinder.publishing.records import (
    foundations,
    fresh_record,
    make_record,
    record_file,
    write_record,
)

CONFIG = """\
site_name: The Book
markdown_extensions:
  - pymdownx.highlight: {pygments_lang_class: true}
  - pymdownx.superfences
"""

SUM = """\
# A sum

```python
print(1 + 1)
```

<!--pytest-codeblocks:expected-output-->
```text
{printed}
```
"""


@pytest.fixture
def page(root: Path) -> Page:
    return load_page(root / "docs" / "chapters" / "01-sums.md", root)


def test_a_record_says_what_ran_and_is_read_as_it_was_written(
    page: Page, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(root / "src" / "tested_transformer")
    monkeypatch.delitem(sys.modules, "adding", raising=False)
    evidence = Evidence(page, root)
    for chain in page.chains:
        evidence.run(chain)
    standing_on = foundations(root)
    record = make_record(page, evidence.lines, root, standing_on)
    assert (record.blocks, record.outputs, record.lines) == (3, 2, 6)
    # The first block imports it and runs its last line; the second takes the branch.
    assert record.first_run_by == [[1, 2]]
    assert (record.torch, record.commit) == (version("torch"), "")
    write_record(root, page, record)
    assert fresh_record(root, page, standing_on) == record


@pytest.mark.parametrize(
    "name",
    ["docs/chapters/01-sums.md", "src/tested_transformer/adding.py", "src/new.py"],
)
def test_a_record_of_something_else_is_none(name: str, page: Page, root: Path) -> None:
    write_record(root, page, make_record(page, {}, root, foundations(root)))
    assert fresh_record(root, page, foundations(root))
    with (root / name).open("a") as file:
        file.write("\nnew = 1\n")
    again = load_page(root / "docs" / "chapters" / "01-sums.md", root)
    assert fresh_record(root, again, foundations(root)) is None


def test_a_file_that_is_no_record_is_none(page: Page, root: Path) -> None:
    file = record_file(root, page.path)
    file.parent.mkdir(parents=True)
    for text in ("", "{}", "[]", "null"):
        file.write_text(text, "utf-8")
        assert fresh_record(root, page, foundations(root)) is None


@pytest.mark.slow
def test_only_a_page_that_has_passed_whole_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text(CONFIG, "utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", "utf-8")
    (tmp_path / "docs").mkdir()
    kept = tmp_path / ".cache" / "verified" / "docs"
    kept.mkdir(parents=True)
    (kept / "wrong.json").write_text("{}", "utf-8")
    for name, printed in (("right", 2), ("wrong", 3), ("part", 2)):
        page = tmp_path / "docs" / f"{name}.md"
        page.write_text(SUM.format(printed=printed), "utf-8")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--codeblocks", "-p", "bookbinder.pytest_plugin"),
            *("docs/right.md", "docs/wrong.md", "docs/part.md::evidence"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "docs/wrong.md:9: " in run.stdout, run.stdout + run.stderr
    assert [file.name for file in kept.iterdir()] == ["right.json"]
    record = json.loads((kept / "right.json").read_text("utf-8"))
    assert (record["blocks"], record["outputs"]) == (1, 1)
