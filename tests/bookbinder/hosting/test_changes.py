import subprocess
import sys
from pathlib import Path

import pytest

from bookbinder.hosting import changes
from bookbinder.hosting.changes import comment, compare
from bookbinder.writing import write_whole


def site(folder: Path, **pages: str) -> Path:
    for name, article in pages.items():
        page = folder / name.replace("home", "") / "index.html"
        write_whole(page, f"<nav>{folder}</nav><article>{article}</article>")
    return folder


def test_what_a_reader_sees_changed_is_told_page_by_page(tmp_path: Path) -> None:
    before = site(
        tmp_path / "before",
        home="<p>Home</p>",
        same="<p>one <b>two</b></p>",
        listing="<pre><code>a = 1\nb = 2\n</code></pre>",
        picture='<p><img alt="a fall" src="x.svg"></p>',
        gone="<p>one</p><p>two</p>",
        verified="<p>one</p>",
    )
    after = site(
        tmp_path / "after",
        home="<p>Home, now</p><p>more</p>",
        same="<p>one\n<i>two</i></p>",
        listing="<pre><code>a = 1\nb = 3\n</code></pre>",
        picture='<p><img alt="a rise" src="x.svg"></p>',
        new="<p>one</p>",
        verified='<p class="ran">Run</p><p>one</p><div class="published">2</div>',
    )
    found = ["gone 0 2", "home 3 1", "listing 1 1", "new 1 0", "picture 1 1"]
    assert list(compare(before, after)) == found


def test_the_comment_is_one_table(tmp_path: Path) -> None:
    # Where it is written, nothing is installed.
    lines = tmp_path / "changes.txt"
    lines.write_text("chapters/no-peeking 3 1\nhome 0 2\n")
    command = [sys.executable, "-IS", changes.__file__, "comment", str(lines)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[2:] == [
        "| page | words that are new | words that are gone |",
        "|---|---|---|",
        "| `chapters/no-peeking` | 3 | 1 |",
        "| `home` | 0 | 2 |",
    ]
    assert comment([]) == "No page has changed.\n"


@pytest.mark.parametrize(
    "line",
    [
        *("a](https://elsewhere.example)[ 1 0", "../../settings 1 0", "a`b 1 0"),
        *("a|b 1 0", "a 1 0\r## b", "@everyone 1 0", "a one 0", "a 1 0 0", "a 1 ٣"),
    ],
)
def test_a_line_that_holds_anything_else_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a page and two numbers"):
        comment(["home 1 1", line])
