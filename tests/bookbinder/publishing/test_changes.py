from pathlib import Path

from bookbinder.publishing.changes import compare
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
