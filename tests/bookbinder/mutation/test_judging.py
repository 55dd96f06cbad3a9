"""What is asked of a page with a slip in it is what is asked of every page."""

from pathlib import Path

import pytest

from bookbinder.mutation.judging import Judge, Site, record
from bookbinder.mutation.slips import Slip
from bookbinder.reading.pages import Page, read_page

ROOT = Path(__file__).resolve().parents[3]
TEXT = """# A page

```python
import torch

x = torch.ones(2, 3)
print(tuple(x.shape))
```

<!--pytest-codeblocks:expected-output-->
```text
(2, 3)
```

<!--pytest-codeblocks:cont-->
```python
print(x.sum().item())
```

<!--pytest-codeblocks:expected-output-->
```text
6.0
```

Words, $x$, and a formula: $\\sqrt x$.
"""


@pytest.fixture(scope="module")
def page() -> Page:
    return read_page(TEXT, "page.md")


@pytest.fixture(scope="module")
def judge(page: Page) -> Judge:
    return Judge(ROOT, record([page], ROOT))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("(2, 3)", "(3, 2)", "12: the page shows '(3, 2)', the run gives '(2, 3)'"),
        ("6.0", "6.1", "22: the page shows '6.1', the run gives '6.0'"),
        ("<!--pytest-codeblocks:cont-->", "", "17: NameError: name 'x' is not defined"),
        ("```text", "```", "10: expected-output must stand before a ```text block"),
        ("x = torch.ones(2, 3)", "x = torch.ones(2, 4)", "the run gives '(2, 4)'"),
        ("Words", r"Words, $x$, and a formula: $\sqtr x$.", r"\sqtr"),
    ],
)
def test_what_is_said_of_a_slip(
    judge: Judge, page: Page, before: str, after: str, said: str
):
    (number, line), *_ = [
        (n, each) for n, each in enumerate(page.lines, 1) if each.startswith(before)
    ]
    slip = Slip("page.md", "a kind", number, line, after)
    assert said in judge.reason(slip, page)


def test_nothing_is_said_of_a_page_that_is_right(judge: Judge, page: Page):
    slip = Slip("page.md", "a kind", 2, "", "")
    assert judge.reason(slip, page) == ""


def test_a_page_of_which_something_is_said_as_it_is_proves_nothing(judge: Judge):
    wrong = read_page(TEXT.replace("6.0", "6.1"), "page.md")
    assert judge.failing([read_page(TEXT, "page.md")], jobs=1) == {}
    assert judge.failing([wrong], jobs=1) == {
        "page.md": "page.md:22: the page shows '6.1', the run gives '6.0': make outputs"
    }


def test_the_site_knows_what_the_reference_will_have(tmp_path: Path):
    (tmp_path / "mkdocs.yml").write_text("site_name: A site\n")
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    for name in ("index.md", "reference/masks.md"):
        (tmp_path / "docs" / name).write_text("# A page\n")
    site, page = Site(tmp_path), read_page("# A page\n", "docs/index.md")
    link = "[a mask](reference/masks.md#tested_transformer.masks.{})\n"
    assert site.problems(page, link.format("causal_mask")) == []
    (problem,) = site.problems(page, link.format("casual_mask"))
    assert "casual_mask" in problem.reason


def test_what_ran_is_kept_for_the_same_page_and_code(tmp_path: Path, page: Page):
    (first,) = record([page], ROOT, kept=tmp_path).values()
    (kept,) = tmp_path.iterdir()
    changed = kept.stat().st_mtime_ns
    (again,) = record([page], ROOT, kept=tmp_path).values()
    assert again.printed == first.printed == dict(first.printed)
    assert kept.stat().st_mtime_ns == changed
    record([read_page(TEXT.replace("6.0", "7.0"), "page.md")], ROOT, kept=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
