"""Formulas are drawn while the page is made, or refused at their page and line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown
from mkdocs.exceptions import BuildError

from bookbinder.drawing import katex
from bookbinder.drawing.undrawn import UndrawnError


@pytest.fixture(autouse=True)
def _book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKBINDER_PREVIEW", raising=False)


def rendered(text: str) -> BeautifulSoup:
    page = Path("docs/chapters/page.md")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    extensions = ["pymdownx.arithmatex", "toc", "tables", "bookbinder.drawing.formulas"]
    configuration = {"pymdownx.arithmatex": {"generic": True}}
    markdown = Markdown(extensions=extensions, extension_configs=configuration)
    return BeautifulSoup(markdown.convert(text), "html.parser")


def test_a_formula_in_a_line_becomes_html_and_mathml() -> None:
    formula = rendered("A key $k_i$ here.").select_one("p > .arithmatex")
    assert formula
    assert formula.has_attr("data-search-exclude")
    assert formula.select_one("math msub")
    assert formula.select_one(".katex-html[aria-hidden=true]")
    # Material's search resumes at the first end tag of the same name.
    assert not formula.find(formula.name)


def test_a_formula_of_its_own_is_drawn_large() -> None:
    formula = rendered("$$\na < b \\& c\n$$").select_one("div.arithmatex")
    assert formula
    assert formula.has_attr("data-search-exclude")
    assert formula.select_one(".katex-display math[display=block]")
    annotation = formula.find("annotation")
    assert annotation
    assert annotation.get_text() == r"a < b \& c"


@pytest.mark.parametrize(
    "text",
    [
        r"\(x + y\)",
        "\\[\nx + y\n\\]",
        "\\begin{align}\nx &= y\n\\end{align}",
        "| a | b |\n|---|---|\n| $x$ | $y$ |",
        "- in a list $x$\n- $y$",
    ],
)
def test_every_form_of_a_formula_is_drawn(text: str) -> None:
    page = rendered(text)
    formulas = page.select(".arithmatex")
    assert formulas
    assert all(formula.select_one(".katex math") for formula in formulas)
    for drawn in page.select(".katex"):
        drawn.decompose()
    assert not re.search(r"[\\$]", page.get_text())


def test_code_and_escaped_dollars_are_left_alone() -> None:
    page = rendered(r"`$x$` costs \$5 and \$6.")
    assert page.get_text() == "$x$ costs $5 and $6."
    assert not page.select(".arithmatex")


def test_a_refused_formula_is_an_error_at_its_page_and_line() -> None:
    with pytest.raises(UndrawnError) as caught:
        rendered("One.\n\nTwo $\\frac{1$ three.\n")
    assert str(caught.value).startswith(
        r"docs/chapters/page.md:3: formula \frac{1: Unexpected end of input"
    )


def test_a_refused_formula_is_reported_at_every_place() -> None:
    other = Path("docs/another.md")
    other.parent.mkdir(parents=True)
    other.write_text("\n$$\n\\nope\n$$\n", encoding="utf-8")
    with pytest.raises(UndrawnError) as caught:
        rendered("\\nope is a macro.\n\n$\\nope$ and\n$$ \\nope $$\n")
    places = [line.split(": ")[0] for line in str(caught.value).splitlines()]
    assert places == [
        "docs/another.md:2",
        "docs/chapters/page.md:3",
        "docs/chapters/page.md:4",
    ]


@pytest.mark.parametrize(
    ("tex", "reason"),
    [
        (r"\nope", "Undefined control sequence: \\nope at character 1"),
        ("a^b^c", "Double superscript at character 4"),
        (r"é", "unicodeTextInMathMode"),
        (r"\href{https://example.org}{x}", "trust"),
    ],
)
def test_katex_is_strict(tex: str, reason: str) -> None:
    with pytest.raises(UndrawnError, match=re.escape(reason)):
        rendered(f"${tex}$")


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


def test_a_formula_in_a_heading_is_refused() -> None:
    with pytest.raises(UndrawnError, match=r"page\.md:2: formula d_k: .* use words"):
        rendered("\n## The width $d_k$\n")


def test_the_worker_answers_many_formulas_in_order() -> None:
    worker = katex.Worker([str(katex.node()), str(katex.WORKER)])
    try:
        for index in range(50):
            assert f"<mn>{index}</mn>" in worker.draw(str(index), display=False)
            with pytest.raises(katex.FormulaError):
                worker.draw("}", display=False)
    finally:
        worker.close()


def test_a_worker_that_dies_is_one_clear_line() -> None:
    worker = katex.Worker(
        [sys.executable, "-c", "import sys; sys.exit('SomeError: no memory')"]
    )
    try:
        with pytest.raises(katex.WorkerError) as caught:
            worker.draw("x", display=False)
    finally:
        worker.close()
    assert str(caught.value) == "KaTeX stopped with status 1: SomeError: no memory"


def test_after_a_death_another_worker_is_started() -> None:
    katex.draw("not_{drawn} + before_{this}", display=False)
    katex._running[0]._process.kill()
    with pytest.raises(katex.WorkerError, match="KaTeX stopped with status"):
        katex.draw("a_{never} + drawn", display=False)
    assert "<math" in katex.draw("a_{never} + drawn", display=False)


def test_without_node_modules_the_line_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    katex.close()
    monkeypatch.setattr(katex, "ROOT", tmp_path)
    with pytest.raises(BuildError, match="node_modules holds no KaTeX: run make setup"):
        rendered("$not_{drawn} + before$")


def test_the_worker_ends_with_the_program() -> None:
    program = (
        "from bookbinder.drawing import katex; katex.draw('x', display=False);"
        "print(katex._running[0]._process.pid)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stderr == ""
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
