"""A test run leaves a record of each page of which everything has passed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CONFIG = """\
site_name: The Book
markdown_extensions:
  - pymdownx.highlight:
      pygments_lang_class: true
  - pymdownx.superfences
"""

PAGE = """\
# A sum

```python
print(1 + 1)
```

<!--pytest-codeblocks:expected-output-->
```text
{printed}
```

```python
x = [0]
x.append(1)
```
"""


def test_only_a_page_that_has_passed_whole_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text(CONFIG, "utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", "utf-8")
    old = tmp_path / ".cache" / "verified" / "docs"
    old.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "notation.md").write_text("# Notation\n", "utf-8")
    for name, printed in (("right", 2), ("wrong", 3), ("part", 2)):
        page = tmp_path / "docs" / f"{name}.md"
        page.write_text(PAGE.format(printed=printed), "utf-8")
    (old / "wrong.json").write_text("{}", "utf-8")
    chosen = ["docs/right.md", "docs/wrong.md", "docs/part.md::evidence"]
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--codeblocks", "-p", "bookbinder.pytest_plugin", *chosen),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 8 passed" in run.stdout, run.stdout + run.stderr
    assert "docs/wrong.md:9: the page shows '3', the run gives '2'" in run.stdout
    assert [file.name for file in old.iterdir()] == ["right.json"]
    record = json.loads((old / "right.json").read_text("utf-8"))
    assert (record["blocks"], record["outputs"], record["listings"]) == (2, 1, [])
    assert (record["commit"], record["changed"]) == ("", False)
