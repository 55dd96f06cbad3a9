from pathlib import Path

import pytest

from bookbinder.publishing.trimming import trim, trimmed


@pytest.mark.parametrize(
    ("page", "light"),
    [
        ("<code>&lt;!-- kept --&gt;</code>", "<code>&lt;!-- kept --&gt;</code>"),
        ("<tr><th> </th><th>a</th></tr>", "<tr><td></td><th>a</th></tr>"),
        ("<p>a</p>\n\n   <p>b  c</p>", "<p>a</p>\n<p>b c</p>"),
        ("<pre>a  b\n\n  c</pre>  <b>", "<pre>a  b\n\n  c</pre> <b>"),
        ('<script>a = "  "</script>\n\n', '<script>a = "  "</script>\n'),
    ],
)
def test_a_page_keeps_what_is_read(page: str, light: str) -> None:
    assert trimmed(page) == light


def test_a_stylesheet_of_others_keeps_what_is_used(tmp_path: Path) -> None:
    used = ".shown{top:0}.by-script{top:1px}"
    styles = tmp_path / "assets" / "stylesheets" / "main.css"
    own = tmp_path / "assets" / "css" / "book.css"
    script = tmp_path / "assets" / "js" / "a.js"
    for file, text in (
        (styles, f"{used}.gone{{top:2px}}[data-md-color-switching] *{{top:3px}}"),
        (own, ".gone{top:0}"),
        (script, 'add("by-script")'),
        (tmp_path / "index.html", '<p class="shown" data-md-color-switching>'),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    trim(tmp_path)
    assert styles.read_text("utf-8") == used
    assert own.read_text("utf-8") == ".gone{top:0}"
