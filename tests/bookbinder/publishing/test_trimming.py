import re
import subprocess
from pathlib import Path

import pytest

from bookbinder.drawing.katex import ROOT, node
from bookbinder.publishing.trimming import trim, trimmed


@pytest.mark.parametrize(
    ("page", "light"),
    [
        ("<code>&lt;!-- kept --&gt;</code>", "<code>&lt;!-- kept --&gt;</code>"),
        ("<tr><th> </th><th>a</th></tr>", "<tr><td></td><th>a</th></tr>"),
        ("<p>a</p>\n\n   <p>b  c</p>", "<p>a</p>\n<p>b c</p>"),
        ("<pre>a  b\n\n  c</pre>  <b>", "<pre>a  b\n\n  c</pre> <b>"),
        ('<script>a = "  "</script>\n\n', '<script>a = "  "</script>\n'),
        (
            '<span class="n">x</span><span class="w"> </span><span class="mi">1</span>',
            'x <span class="mi">1</span>',
        ),
    ],
)
def test_a_page_keeps_what_is_read(page: str, light: str) -> None:
    assert trimmed(page) == light


def test_names_and_signs_have_the_color_of_all_code() -> None:
    # Their elements are left out, so no other color could be seen.
    style = (ROOT / "docs" / "assets" / "css" / "code.css").read_text("utf-8")
    for kind in ("fg", "hl-name", "hl-operator", "hl-punctuation"):
        colors = re.findall(rf"--md-code-{kind}-color: (.+);", style)
        assert colors == ["var(--book-ink)"], kind


def test_a_stylesheet_of_others_keeps_what_is_used(tmp_path: Path) -> None:
    used = ".shown{top:0}.by-script{top:1px}"
    styles = tmp_path / "assets" / "stylesheets" / "main.css"
    own = tmp_path / "assets" / "css" / "book.css"
    script = tmp_path / "assets" / "js" / "a.js"
    for file, text in (
        (
            styles,
            f"{used}.gone{{top:2px}}[data-md-color-switching] *{{}}[id] p{{}}",
        ),
        (own, ".gone{top:0}"),
        (script, 'add("by-script")'),
        (tmp_path / "index.html", '<p class="shown" data-md-color-switching id=a>'),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    trim(tmp_path)
    assert styles.read_text("utf-8") == used
    assert own.read_text("utf-8") == ".gone{top:0}"


def test_rules_are_not_tried_on_all_of_a_page(tmp_path: Path) -> None:
    styles = tmp_path / "assets" / "stylesheets" / "main.css"
    styles.parent.mkdir(parents=True)
    styles.write_text("table:not([class])+*{top:0}.tabbed-labels>:first-child{top:0}")
    (tmp_path / "index.html").write_text('<table><p class="table tabbed-labels">')
    trim(tmp_path)
    cheap = ".table table+*{top:0}.tabbed-labels>label:first-child{top:0}"
    assert styles.read_text("utf-8") == cheap


SCRIPT = r"""// Said to whoever reads the source.
const pattern = /a  \/\/ b/g, text = "no // comment";  /* nor
  this */
let count = 1;
function told(x) {
  if (x) return x
  return `kept  as  it  is: ${ pattern.source.length
    + `${ count - -1 } // ${text}` }`;
}
const twice = (x) => x + +x
const half = 8 / 2 // not a pattern
count++
console.log(told(), told(3), twice("4"), half, count, text.replace(/o/g, "0"));
"""


def test_a_script_does_the_same_without_its_comments(tmp_path: Path) -> None:
    file = tmp_path / "assets" / "js" / "gpt" / "a.js"
    file.parent.mkdir(parents=True)

    def answer() -> str:
        command = [str(node()), str(file)]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout

    file.write_text(SCRIPT, "utf-8")
    before = answer()
    trim(tmp_path)
    light = file.read_text("utf-8")
    assert answer() == before
    assert before.startswith("kept  as  it  is: ")
    assert len(light) < 0.8 * len(SCRIPT)
    assert "Said" not in light
    assert "nor" not in light


def test_a_stylesheet_of_ours_says_the_same_in_less(tmp_path: Path) -> None:
    file = tmp_path / "assets" / "css" / "a.css"
    file.parent.mkdir(parents=True)
    file.write_text(
        "/* why */\n.a > .b :is(p, li) + p "
        "{ margin: calc(1em + 2px) -1px !important; }\n\n"
        "@media (max-width: 4em) and (scripting: none) {\n"
        '  & .c::before { content: "a  {b}"; }\n}\n',
        "utf-8",
    )
    trim(tmp_path)
    assert file.read_text("utf-8") == (
        ".a>.b :is(p,li) + p{margin:calc(1em + 2px) -1px !important}"
        '@media (max-width:4em) and (scripting:none){& .c::before{content:"a  {b}"}}'
    )
