"""A reader finds the way: every link, the reference, the tips, the map, the feet."""

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urljoin, urlsplit

import pytest
import yaml
from jinja2 import Environment
from mkdocs.config import load_config
from playwright.sync_api import Page, expect

from bookbinder.wayfinding.appearances import exports, pages_of, reference_page
from bookbinder.wayfinding.glossary import read_glossary

ROOT = Path(__file__).parents[2]
CHAPTER = "chapters/fewer-keys/"


def targets(page: str, address: str) -> Iterator[tuple[str, str]]:
    """Return the path and the anchor of each link within the site."""
    for link in {*re.findall(r'<a\b[^>]*?\bhref="?([^" >]*)', page)}:
        parts = urlsplit(urljoin(f"https://book/{address}", unescape(link)))
        if parts.netloc == "book":
            yield parts.path.removeprefix("/"), unquote(parts.fragment)


@pytest.fixture(scope="module")
def ids(html: dict[str, str]) -> dict[str, set[str]]:
    return {
        address: {unescape(name) for name in re.findall(r' id="?([^" >]+)', page)}
        for address, page in html.items()
    }


@pytest.fixture(scope="module")
def links(html: dict[str, str]) -> dict[str, set[tuple[str, str]]]:
    return {address: {*targets(page, address)} for address, page in html.items()}


def text_of(markup: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", markup))


def test_every_link_of_the_site_leads_somewhere(
    links: dict[str, set[tuple[str, str]]], ids: dict[str, set[str]], built: Path
) -> None:
    wrong: list[str] = []
    for address, ways in links.items():
        for path, anchor in ways:
            there = path in ids or (built / path).is_file()
            if not there or (anchor and anchor not in ids.get(path, ())):
                wrong.append(f"{address}: {path}#{anchor}")
    assert wrong == []


@pytest.mark.browser
def test_boxes_of_the_map_and_of_the_decision_lead_on_by_keys(
    html: dict[str, str], page: Page, address: str
) -> None:
    page.goto(f"{address}map/")
    boxes = page.locator("figure.diagram").get_by_role("link")
    ways = boxes.evaluate_all("links => links.map((link) => link.href.baseVal)")
    chapters = {f for f, text in html.items() if re.search(r"<h1\b[^>]*>\d+\. ", text)}
    assert chapters <= {way.removeprefix("../") for way in ways}
    boxes.filter(has_text="No peeking").focus()
    page.keyboard.press("Tab")
    expect(boxes.filter(has_text="Shapes that lie")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/shapes-that-lie/")
    page.goto(f"{address}which-attention/")
    boxes = page.locator("figure.diagram").get_by_role("link")
    expect(boxes).to_have_count(5)
    box = boxes.filter(has_text="boolean mask").locator("rect")
    box.click(position={"x": 4, "y": 4})
    page.wait_for_url("**/#causal-mask-and-padding-mask")


def test_a_wrong_address_leads_to_pages_that_are_there(
    html: dict[str, str], built: Path
) -> None:
    page = (built / "404.html").read_text("utf-8").partition("<article")[2]
    ways = {path for path, _ in targets(page.partition("</article>")[0], "")}
    assert {"", "map/", "which-attention/", "glossary/"} <= ways <= html.keys()


def test_the_page_of_questions_has_those_of_every_chapter(
    html: dict[str, str], links: dict[str, set[tuple[str, str]]]
) -> None:
    questions = {
        (address, slug)
        for address, page in html.items()
        if re.search(r"<h1\b[^>]*>\d+\. ", page)
        for part in re.findall(
            r'<h2 id="?questions-and-answers\b.*?(?=<h2\b|</article>)', page, re.DOTALL
        )
        for slug in re.findall(r'<h3 id="?([^" >]+)', part)
    }
    assert len(questions) > 50
    assert questions <= links["questions/"]
    for address, slug in questions:
        contents = html[address].partition('class="md-sidebar__inner"')[2]
        assert f'href="#{slug}" class="md-nav__link"' not in contents


SIGNATURE = re.compile(r'<div class="[^"]*doc-signature[^"]*">.*?</div>', re.DOTALL)


@cache
def reference_to(module: str, name: str = "") -> str:
    """Return the address of a module's page, or of that of a name in it."""
    return f"{reference_page(module, name).removesuffix('.md')}/"


def test_each_name_of_the_library_stands_in_the_reference(
    html: dict[str, str], ids: dict[str, set[str]]
) -> None:
    for module, names in exports(ROOT).items():
        for name in names:
            assert f"{module}.{name}" in ids[reference_to(module, name)]
        for address in {reference_to(module, name) for name in names}:
            page = html[address]
            article = page[page.index("<article") : page.rindex("</article>")]
            text = text_of(article)
            # Every section of a docstring became a table or a heading of one.
            sections = r"^\s*(?:Args|Returns|Raises|Attributes): \S"
            assert not re.search(sections, text, re.M)
            assert "``" not in text
            assert ":::" not in text
            # What is public, and the axes of tensors in quotes.
            shown = text_of("\n".join(SIGNATURE.findall(article)))
            assert not re.search(r"(?<![\w.\"])_[A-Za-z]", shown), module
            assert not re.search(r"(?:Bool|Float|Int)\[Tensor, [^\"]", shown), module


def test_chapters_and_the_reference_lead_to_each_other(
    links: dict[str, set[tuple[str, str]]],
) -> None:
    missing: list[str] = []
    for path, shown in pages_of(ROOT).items():
        here = path.removesuffix("index.md").removesuffix(".md")
        here = f"{here}/" if here else ""
        for name in {*shown.listed, *shown.used}:
            module, _, own = name.rpartition(".")
            there = reference_to(module, own)
            if (here, shown.listed.get(name, "")) not in links[there]:
                missing.append(f"{there} does not lead {name} to {here}")
        for module, name in shown.listings:
            own = name.rpartition(".")[2]
            if (reference_to(module, own), name) not in links[here]:
                missing.append(f"{here} does not lead {name} to {module}")
    assert missing == []


def test_the_tips_say_what_the_glossary_says(html: dict[str, str]) -> None:
    terms = read_glossary((ROOT / "docs/glossary.md").read_text("utf-8"))
    tips = {term.anchor: term.tip for term in terms}
    seen: set[str] = set()
    for page in html.values():
        for tag in re.findall(r'<a class="?term\b[^>]*>', page):
            anchor = tag.partition("#")[2].partition('"')[0]
            assert (
                unescape(tag.partition('title="')[2].rpartition('"')[0]) == tips[anchor]
            )
            seen.add(anchor)
    assert len(seen) > len(tips) / 2


@pytest.mark.browser
def test_a_tip_is_shown_to_the_keyboard(page: Page, address: str) -> None:
    page.goto(address + CHAPTER)
    page.wait_for_function("() => window.component$")
    term = page.locator("a.term").first
    tip = str(term.get_attribute("title"))
    term.focus()
    expect(page.locator(".md-tooltip2--active")).to_have_text(tip, timeout=20_000)
    shown = str(term.get_attribute("aria-describedby"))
    expect(page.locator(f"#{shown}")).to_have_text(tip)
    page.keyboard.press("Enter")
    page.wait_for_url("**/glossary/#*")


@pytest.mark.browser
@pytest.mark.browser_context_args(has_touch=True, is_mobile=True)
def test_a_term_is_followed_by_a_touch(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(address + CHAPTER)
    page.locator("a.term").first.tap()
    page.wait_for_url("**/glossary/#*")


LINE = (ROOT / "theme/partials/this-page.html").read_text("utf-8")


def line(repository: str, page: SimpleNamespace) -> str:
    extra = {"repository": repository, "branch": "trunk"}
    template = Environment(autoescape=True).from_string(LINE)
    return template.render(config={"extra": extra}, page=page)


def test_above_each_page_a_fork_is_led_to_its_own_repository(
    monkeypatch: pytest.MonkeyPatch, html: dict[str, str]
) -> None:
    start = "https://github.com/someone/book"
    file = SimpleNamespace(src_uri="chapters/no-peeking.md")
    page = SimpleNamespace(file=file, meta={"minutes": 20})
    edit, report = re.findall(r'href="([^"]*)"', line(start, page))
    assert edit == f"{start}/edit/trunk/docs/chapters/no-peeking.md"
    assert report.replace("&amp;", "&") == (
        f"{start}/issues/new?template=mistake.yml&page=docs/chapters/no-peeking.md"
    )
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/mistake.yml").read_text())
    assert "page" in [field.get("id") for field in form["body"]]
    assert "20 min" in line("", page)
    assert "<a " not in line("", page)
    # The environment says where it lies: the theme would ask its host from each page.
    monkeypatch.setenv("REPO_URL", start)
    config = load_config(str(ROOT / "mkdocs.yml"))
    assert config["extra"]["repository"] == start
    assert not config["repo_url"]
    # The line stands above the heading, but on the home page below everything.
    for address in ("map/", CHAPTER):
        assert '<nav class="this-page"' in html[address].partition("<h1")[0]
    assert re.search(r"<span>\d\d min</span>", html[CHAPTER])
    assert html[""].index('<nav class="this-page"') > html[""].index("<h2")
    assert "/edit/" not in html["map/"]
