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
    record_file,
    write_record,
)
from bookbinder.running.importing import change_imports
from bookbinder.running.recording import watch_sections
from bookbinder.writing import write_whole

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
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    change_imports(watch_sections, packages={"adding"})
    evidence = Evidence(page, root)
    for chain in page.chains:
        evidence.run(chain)
    standing_on = foundations(root)
    record = write_record(root, page, evidence.lines, standing_on)
    assert (record.blocks, record.outputs, record.lines) == (3, 2, 6)
    # The first block imports it and runs its last line; the second takes the branch.
    assert record.first_run_by == [[1, 2]]
    assert (record.torch, record.commit) == (version("torch"), "")
    assert fresh_record(root, page, standing_on) == record


def test_a_record_of_something_else_and_a_file_that_is_none_do_not_count(
    page: Page, root: Path
) -> None:
    for name in (page.path, "src/tested_transformer/adding.py", "src/new.py"):
        write_record(root, page, {}, foundations(root))
        assert fresh_record(root, page, foundations(root))
        with (root / name).open("a") as file:
            file.write("\nnew = 1\n")
        page = load_page(root / page.path, root)
        assert fresh_record(root, page, foundations(root)) is None, name
    for text in ("", "{}", "[]", "null"):
        record_file(root, page.path).write_text(text, "utf-8")
        assert fresh_record(root, page, foundations(root)) is None


WRONG = {
    "digit": (SUM.format(printed=3), "9: the page shows '3'"),
    "error": ("# A\n\n```python\nx = 1\n1 / 0\n```\n", "5: ZeroDivisionError"),
    "listing": ("# A\n\n```py\nx = 1\n```\n", "3: a listing is ```py title="),
    "picture": (
        "# A\n\n![A line that falls from one to zero.](assets/figures/picture/x.svg)\n",
        "3: no block of this page draws x.svg",
    ),
}


@pytest.mark.slow
def test_a_run_records_a_page_that_has_passed_whole_and_tells_what_is_wrong_where(
    tmp_path: Path,
) -> None:
    write_whole(tmp_path / "mkdocs.yml", CONFIG)
    write_whole(tmp_path / "pyproject.toml", "[tool.pytest.ini_options]\n")
    kept = tmp_path / ".cache" / "verified" / "docs"
    write_whole(kept / "digit.json", "{}")
    pages = dict.fromkeys(("right", "part", "shuffled"), SUM.format(printed=2))
    pages |= {name: text for name, (text, _) in WRONG.items()}
    for name, text in pages.items():
        write_whole(tmp_path / "docs" / f"{name}.md", text)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--codeblocks", "-p", "bookbinder.pytest_plugin"),
            *("docs/part.md::evidence", "docs/right.md"),
            *(f"docs/shuffled.md::{test}" for test in ("evidence", "line 3", "audit")),
            *(f"docs/{name}.md" for name in WRONG),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    for name, (_, words) in WRONG.items():
        assert f"docs/{name}.md:{words}" in run.stdout, run.stdout + run.stderr
    assert {file.name for file in kept.iterdir()} == {"right.json", "shuffled.json"}
    record = json.loads((kept / "right.json").read_text("utf-8"))
    assert (record["blocks"], record["outputs"]) == (1, 1)
