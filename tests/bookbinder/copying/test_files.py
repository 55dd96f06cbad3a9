import re
from pathlib import Path

import pytest

from bookbinder.copying.files import MarkupError, file_of, write_standalone_files
from bookbinder.copying.standalone import StandaloneError

SOURCE = """import torch
from torch import Tensor


# --8<-- [start:double]
def double(x: Tensor) -> Tensor:
    return x < {factor}
# --8<-- [end:double]


# --8<-- [start:nothing]
import math
# --8<-- [end:nothing]
"""
BLOCK = """<div class="language-py highlight"><span class="filename">a</span><pre><span>
</span><code>{}</code></pre></div>"""
CODE = """<span class="k">def</span> double(x: Tensor) -&gt; Tensor:
    return x &lt; 2
"""
LISTING = '```py title="src/tested_transformer/a.py"\n--8<-- "src/{}:{}"\n```\n'


def book(folder: Path, sections: list[str], blocks: list[str]) -> tuple[Path, Path]:
    """Make a book of one page, and its site."""
    package = folder / "src" / "tested_transformer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text(SOURCE.format(factor=2))
    (folder / "docs" / "part").mkdir(parents=True)
    text = "".join(LISTING.format("tested_transformer/a.py", s) for s in sections)
    (folder / "docs" / "part" / "page.md").write_text(text)
    (folder / "docs" / "index.md").write_text("Nothing is listed here.\n")
    built = folder / "site" / "part" / "page" / "index.html"
    built.parent.mkdir(parents=True)
    built.write_text("".join(BLOCK.format(code) for code in blocks))
    return folder / "site", built


def test_each_listing_says_where_its_file_is(tmp_path: Path) -> None:
    site, built = book(tmp_path, ["double", "double"], [CODE, CODE])
    write_standalone_files(site, tmp_path)
    found = re.findall(r'<div class="[^"]*" data-copy="([^"]*)">', built.read_text())
    assert found == ["../../listings/tested_transformer/a-double.py"] * 2
    text = (built.parent / found[0]).read_text("utf-8")
    assert text.startswith("# src/tested_transformer/a.py\n# Copyright")
    assert text.endswith("    return x < 2\n")
    assert [file.name for file in (site / "listings").rglob("*.py")] == ["a-double.py"]


def test_files_of_modules_in_folders_have_a_name_of_their_own() -> None:
    names = {
        file_of("src/tested_transformer/blocks/decoder.py", "step"),
        file_of("src/tested_transformer/blocks/decoder.py", "step-one"),
        file_of("src/tested_transformer/gpt/decoder.py", "step"),
    }
    assert sorted(names) == [
        "listings/tested_transformer/blocks/decoder-step-one.py",
        "listings/tested_transformer/blocks/decoder-step.py",
        "listings/tested_transformer/gpt/decoder-step.py",
    ]


@pytest.mark.parametrize(
    ("blocks", "shown"),
    [
        (
            [CODE.replace("2", "3")],
            "'def double(x: Tensor) -> Tensor:\\n    return x < 3\\n'",
        ),
        ([], "nothing more"),
        ([CODE, CODE], "'def double(x: Tensor) -> Tensor:\\n    return x < 2\\n'"),
    ],
)
def test_a_page_that_shows_something_else_is_refused(
    blocks: list[str], shown: str, tmp_path: Path
) -> None:
    site, built = book(tmp_path, ["double"], blocks)
    before = built.read_text()
    with pytest.raises(MarkupError) as caught:
        write_standalone_files(site, tmp_path)
    wanted = "../../listings/tested_transformer/a-double.py"
    wanted = "nothing more" if len(blocks) == 2 else wanted
    assert (
        str(caught.value) == f"docs/part/page.md: wanted {wanted}, and it shows {shown}"
    )
    assert built.read_text() == before
    assert not (site / "listings").exists()


def test_a_listing_that_cannot_stand_alone_leaves_the_site_alone(
    tmp_path: Path,
) -> None:
    site, built = book(tmp_path, ["double", "nothing"], [CODE, "import math"])
    before = built.read_text()
    with pytest.raises(StandaloneError, match="defines nothing in this section"):
        write_standalone_files(site, tmp_path)
    assert built.read_text() == before
    assert not (site / "listings").exists()
