"""Formulas are drawn while the page is made, or refused at their page and line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown
from mkdocs.exceptions import BuildError

from bookbinder.drawing import katex
from bookbinder.drawing.undrawn import UndrawnError
from bookbinder.writing import write_whole


@pytest.fixture(autouse=True)
def _book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKBINDER_PREVIEW", raising=False)


def rendered(text: str) -> BeautifulSoup:
    write_whole(Path("docs/chapters/page.md"), text)
    extensions = ["pymdownx.arithmatex", "bookbinder.drawing.extension"]
    configuration = {"pymdownx.arithmatex": {"generic": True}}
    markdown = Markdown(extensions=extensions, extension_configs=configuration)
    return BeautifulSoup(markdown.convert(text), "html.parser")


def test_a_formula_becomes_html_and_mathml() -> None:
    page = rendered("A key $k_i$ for \\$5, `$x$`.\n\n$$\na < b \\& c\n$$\n")
    line, block = page.select(".arithmatex[data-search-exclude]")
    assert line.select_one("math msub")
    assert line.select_one(".katex-html[aria-hidden=true]")
    # Material's search resumes at the first end tag of the same name.
    assert not line.find(line.name)
    assert block.select_one(".katex-display math[display=block]")
    annotation = block.find("annotation")
    assert annotation
    assert annotation.get_text() == r"a < b \& c"
    line.decompose()
    assert "A key  for $5, $x$." in page.get_text()


def test_a_refused_formula_is_an_error_wherever_it_stands() -> None:
    write_whole(Path("docs/another.md"), "\n$$\n\\nope\n$$\n")
    with pytest.raises(UndrawnError) as caught:
        rendered("\\nope is a macro.\n\n$\\nope$ and $\\fine$\n\n$$ \\nope $$\n")
    reason = r"formula \nope: Undefined control sequence: \nope at character 1"
    assert str(caught.value).splitlines() == [
        f"docs/another.md:2: {reason}",
        f"docs/chapters/page.md:5: {reason}",
        f"docs/chapters/page.md:3: {reason}",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"$\frac{1$", "Unexpected end of input"),
        ("$a^b^c$", "Double superscript at character 4"),
        (r"$é$", "unicodeTextInMathMode"),
        (r"$\href{https://example.org}{x}$", "trust"),
        ("## The width $d_k$", "formula d_k: the table of contents cannot show it"),
    ],
)
def test_what_cannot_be_drawn_as_it_should_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UndrawnError, match=rf"page\.md:2: .*{reason}"):
        rendered(f"\n{text}\n")


def test_a_preview_shows_the_reason_in_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    page = rendered("A $\\nope < 1$ and\n\n$$\na^b^c\n$$\n\nand $x$.")
    line, block = page.select(".book-error")
    assert (line.name, block.name) == ("span", "div")
    assert line["data-source"] == r"\nope < 1"
    assert "Undefined control sequence" in line.get_text()
    assert block["data-source"] == "a^b^c"
    assert len(page.select(".katex")) == 1


def test_without_node_modules_the_line_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(katex, "_worker", katex._worker.__wrapped__)
    monkeypatch.setattr(katex, "ROOT", tmp_path)
    with pytest.raises(BuildError, match="node_modules holds no KaTeX: run make setup"):
        rendered("$not_{drawn} + before$")


@pytest.mark.parametrize("killed", [False, True])
def test_the_worker_ends_with_the_program_and_its_death_is_told(killed: bool) -> None:
    program = (
        "from bookbinder.drawing import katex; katex.draw('x', display=False)\n"
        "print(katex._worker().pid)\n"
        f"if {killed}:\n"
        "    katex._worker().kill()\n"
        "    katex.draw('y', display=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(katex.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert killed == ("KaTeX stopped with status" in done.stderr)
    assert killed == bool(done.stderr)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


@pytest.mark.parametrize(
    ("tex", "broken"),
    [
        ("a = 1 / (1 + e)", ["a=1/(1+e)"]),
        ("h_t = q_t + x_t + y_t + z_t + b_t", ["ht​=", "qt​+xt​+yt​+zt​+bt​"]),
        (
            " + ".join("abcdefghijklmnopq"),
            [*(f"{x}+" for x in "abcdefghijklmnop"), "q"],
        ),
    ],
)
def test_a_line_ends_behind_a_relation_of_a_long_one(
    tex: str, broken: list[str]
) -> None:
    shown = rendered(f"So ${tex}$.").select_one(".katex-html")
    assert shown
    for each in shown.select("wbr"):
        each.insert_before("|")
    assert shown.get_text().split("|") == broken
    display = rendered(f"$$\n{tex}\n$$\n")
    assert not display.select("wbr")
