from pathlib import Path

import pytest

from bookbinder.publishing.trimming import TrimmingError, trim, trimmed

CONTINUES = "<!--pytest-codeblocks:cont-->"


@pytest.mark.parametrize(
    ("page", "light"),
    [
        ('<p>a</p>\n<!-- holds: "a" = 1 -->\n<p>b</p>', "<p>a</p>\n<p>b</p>"),
        ("<!--pytest-codeblocks:expected-output-->\n<pre>x</pre>", "<pre>x</pre>"),
        (f"{CONTINUES}\n<pre>x</pre>", f"{CONTINUES}\n<pre>x</pre>"),
        ("<code>&lt;!-- kept --&gt;</code>", "<code>&lt;!-- kept --&gt;</code>"),
        ("<tr><th> </th><th>a</th></tr>", "<tr><td></td><th>a</th></tr>"),
        ('<thead><th scope="col"></th>', '<thead><td scope="col"></td>'),
        ("<p>a</p>\n\n   <p>b  c</p>", "<p>a</p>\n<p>b c</p>"),
        ("<pre>a  b\n\n  c</pre>  <b>", "<pre>a  b\n\n  c</pre> <b>"),
        ('<script>a = "  "</script>\n\n', '<script>a = "  "</script>\n'),
    ],
)
def test_a_page_keeps_what_is_read(page: str, light: str) -> None:
    assert trimmed(page) == light


def site(folder: Path, styles: str) -> Path:
    (folder / "assets" / "stylesheets").mkdir(parents=True)
    (folder / "assets" / "js").mkdir()
    (folder / "assets" / "css").mkdir()
    (folder / "assets" / "stylesheets" / "main.css").write_text(styles, "utf-8")
    page = '<p class="shown" data-kind="red">note<!-- given --></p>'
    (folder / "index.html").write_text(page, "utf-8")
    (folder / "assets" / "js" / "a.js").write_text('add("by-script")', "utf-8")
    (folder / "assets" / "css" / "book.css").write_text("p{color:var(--ours)}", "utf-8")
    return folder


def test_a_stylesheet_keeps_what_is_used(tmp_path: Path) -> None:
    root = site(
        tmp_path,
        ":root{--ours:red}.shown{top:0}.by-script{top:1px}.note{top:2px}"
        "[data-kind=red]{top:3px}[data-kind=blue]{top:4px}",
    )
    trim(root)
    left = (root / "assets" / "stylesheets" / "main.css").read_text("utf-8")
    assert left == (
        ":root{--ours:red}.shown{top:0}.by-script{top:1px}[data-kind=red]{top:3px}"
    )
    # The book's own stays as it was written.
    own = (root / "assets" / "css" / "book.css").read_text("utf-8")
    assert own == "p{color:var(--ours)}"
    assert "given" not in (root / "index.html").read_text("utf-8")


def test_a_stylesheet_keeps_the_variables_that_are_asked_for(tmp_path: Path) -> None:
    root = site(
        tmp_path,
        ":root{--ours:red;--later:1px;--last:2px;--gone:3px}"
        ".shown{top:var(--last)}.gone{top:var(--gone)}",
    )
    palette = root / "assets" / "stylesheets" / "palette.css"
    palette.write_text(".shown{left:var(--later)}", "utf-8")
    trim(root)
    left = (root / "assets" / "stylesheets" / "main.css").read_text("utf-8")
    assert left == ":root{--ours:red;--later:1px;--last:2px}.shown{top:var(--last)}"


def test_a_stylesheet_is_for_what_is_read_from_left_to_right(tmp_path: Path) -> None:
    root = site(tmp_path, "[dir=rtl] .shown{top:0}[dir=ltr] .shown{top:1px}")
    (root / "assets" / "js" / "a.js").write_text('is("rtl") || is("ltr")', "utf-8")
    (root / "index.html").write_text('<p dir="ltr" class="shown">', "utf-8")
    trim(root)
    left = (root / "assets" / "stylesheets" / "main.css").read_text("utf-8")
    assert left == "[dir=ltr] .shown{top:1px}"


def test_a_stylesheet_has_no_rules_that_cost_every_page_and_give_little(
    tmp_path: Path,
) -> None:
    tabs = [
        f".tabbed-set>a:nth-child({n})~.tabbed-labels>:nth-child({n})" for n in "123"
    ]
    fades = "[data-md-color-switching] *{transition-duration:0s}"
    root = site(tmp_path, f"{','.join(tabs)}{{top:0}}{fades}a:nth-child(3){{top:1px}}")
    row = '<a class="tabbed-set tabbed-labels" data-tabs="1:2" data-md-color-switching>'
    (root / "index.html").write_text(row, "utf-8")
    trim(root)
    left = (root / "assets" / "stylesheets" / "main.css").read_text("utf-8")
    assert left == f"{tabs[0]},{tabs[1]}{{top:0}}a:nth-child(3){{top:1px}}"


def test_a_stylesheet_that_is_none_is_refused(tmp_path: Path) -> None:
    root = site(tmp_path, ".shown{")
    with pytest.raises(TrimmingError, match=r"^PurgeCSS: CssSyntaxError: .*Unclosed"):
        trim(root)
    assert (root / "assets" / "stylesheets" / "main.css").read_text() == ".shown{"
