"""A reader finds the way: every link, the reference, the tips, the map, the feet."""

import ast
import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urljoin, urlsplit

import pytest
import yaml
from jinja2 import Environment
from mkdocs.config import load_config
from playwright.sync_api import Browser, expect

from bookbinder.page import load_page
from bookbinder.reading.prose import links
from bookbinder.wayfinding.appearances import exports, pages_of
from bookbinder.wayfinding.glossary import terms_of

ROOT = Path(__file__).parents[2]
CHAPTER = "chapters/03-attention-by-hand/"


def articles(built: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(built.rglob("index.html")):
        page = file.read_text("utf-8")
        folder = file.parent.relative_to(built).as_posix()
        yield ("" if folder == "." else f"{folder}/"), page


def targets(page: str, address: str) -> Iterator[tuple[str, str]]:
    """Give the path and the anchor of each link within the site."""
    for link in re.findall(r'<a\b[^>]*?\bhref="?([^" >]*)', page):
        parts = urlsplit(urljoin(f"https://book/{address}", html.unescape(link)))
        if parts.netloc == "book":
            yield parts.path.removeprefix("/"), unquote(parts.fragment)


def ids(page: str) -> set[str]:
    return {html.unescape(name) for name in re.findall(r'\bid="?([^" >]+)', page)}


def test_every_link_of_the_site_leads_somewhere(built: Path) -> None:
    anchors = {address: ids(page) for address, page in articles(built)}
    wrong: list[str] = []
    for address, page in articles(built):
        for path, anchor in targets(page, address):
            if path in anchors:
                well = not anchor or anchor in anchors[path]
            else:
                well = (built / path).is_file() and not anchor
            if not well:
                wrong.append(f"{address}: {path}#{anchor}")
    assert wrong == []


SIGNATURE = re.compile(
    r'<div class="[^"]*doc-signature[^"]*">.*?</div>|<td>\s*<code>.*?</code>\s*</td>',
    re.DOTALL,
)
CODE_CELL = re.compile(r"<td[^>]*>\s*<code>(.*?)</code>\s*</td>", re.DOTALL)


def test_each_name_of_the_library_stands_in_the_reference(built: Path) -> None:
    for module, names in exports(ROOT).items():
        page = (built / "reference" / module / "index.html").read_text("utf-8")
        wanted = {f"tested_transformer.{module}.{name}" for name in names}
        assert wanted - ids(page) == set()
        article = page[page.index("<article") : page.rindex("</article>")]
        text = re.sub(r"<[^>]*>", "", article)
        # Every section of a docstring became a table or a heading of one.
        assert not re.search(r"^\s*(?:Args|Returns|Raises|Attributes): \S", text, re.M)
        assert "``" not in text
        found = "\n".join(SIGNATURE.findall(article))
        signatures = html.unescape(re.sub(r"<[^>]*>", "", found))
        # What is public, all strings in quotes of one kind, and the axes among them.
        assert not re.search(r"(?<![\w.\"])_[A-Za-z]|'", signatures)
        assert not re.search(r'(?:Bool|Float|Int|Integer)\[Tensor, [^"]', signatures)
        # And no sentence of a docstring stands where a type does.
        for cell in CODE_CELL.findall(article):
            ast.parse(
                html.unescape(re.sub(r"<[^>]*>", "", cell)).strip(" *\n"), mode="eval"
            )
        assert ":::" not in text


def test_chapters_and_the_reference_lead_to_each_other(built: Path) -> None:
    found = {address: {*targets(page, address)} for address, page in articles(built)}
    missing: list[str] = []
    for path, shown in pages_of(ROOT).items():
        here = path.removesuffix("index.md").removesuffix(".md")
        here = f"{here}/" if here else ""
        for name in {*shown.listed, *shown.used}:
            there = f"reference/{name.split('.')[1]}/"
            if (here, shown.listed.get(name, "")) not in found[there]:
                missing.append(f"{there} does not lead {name} to {here}")
        for names in shown.listings:
            for name in names[:1]:
                there = f"reference/{name.split('.')[1]}/"
                if (there, name) not in found[here]:
                    missing.append(f"{here} does not lead {name} to {there}")
    assert missing == []


def test_the_tips_say_what_the_glossary_says(built: Path) -> None:
    tips = {term.anchor: term.tip for term in terms_of(ROOT / "docs")}
    seen: set[str] = set()
    for address, page in articles(built):
        for tag in re.findall(r'<a class="?term\b[^>]*>', page):
            anchor = tag.partition("#")[2].partition('"')[0]
            assert f'title="{html.escape(tips[anchor], quote=False)}"' in tag, address
            seen.add(anchor)
    assert len(seen) > len(tips) / 2


@pytest.mark.browser
def test_a_tip_is_shown_to_the_keyboard_and_followed_by_a_touch(
    address: str, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        page.goto(address + CHAPTER)
        term = page.locator("a.term").first
        tip = str(term.get_attribute("title"))
        term.focus()
        tooltip = page.locator(".md-tooltip2--active")
        expect(tooltip).to_have_text(tip, timeout=20_000)
        shown = str(term.get_attribute("aria-describedby"))
        expect(page.locator(f"#{shown}")).to_have_text(tip)
        page.keyboard.press("Enter")
        page.wait_for_url("**/glossary/#*")
    finally:
        page.close()
    phone = browser.new_context(
        has_touch=True, viewport={"width": 360, "height": 800}, is_mobile=True
    )
    try:
        page = phone.new_page()
        page.goto(address + CHAPTER)
        page.locator("a.term").first.tap()
        page.wait_for_url("**/glossary/#*")
    finally:
        phone.close()


FOOT = (ROOT / "theme/partials/comments.html").read_text("utf-8")


def foot(repository: str, page: SimpleNamespace) -> str:
    extra = {"repository": repository, "branch": "trunk"}
    template = Environment(autoescape=True).from_string(FOOT)
    return template.render(config={"extra": extra}, page=page)


def test_below_each_page_a_fork_is_led_to_its_own_repository() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="chapters/06-no-peeking.md"))
    html = foot("https://github.com/someone/book", page)
    edit, report = re.findall(r'href="([^"]*)"', html)
    start = "https://github.com/someone/book"
    assert edit == f"{start}/edit/trunk/docs/chapters/06-no-peeking.md"
    assert report.replace("&amp;", "&") == (
        f"{start}/issues/new?template=mistake.yml&page=docs/chapters/06-no-peeking.md"
    )
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/mistake.yml").read_text())
    assert "page" in [field.get("id") for field in form["body"]]
    assert foot("", page).strip() == ""
    assert foot(start, SimpleNamespace(file=None)).strip() == ""


def test_the_repository_is_known_from_the_environment_alone(
    monkeypatch: pytest.MonkeyPatch, built: Path
) -> None:
    config = str(ROOT / "mkdocs.yml")
    monkeypatch.delenv("REPO_URL", raising=False)
    assert load_config(config)["extra"]["repository"] == ""
    assert "book-foot" not in (built / "map/index.html").read_text("utf-8")
    monkeypatch.setenv("REPO_URL", "https://github.com/someone/book")
    monkeypatch.setenv("REPO_BRANCH", "trunk")
    extra = load_config(config)["extra"]
    assert extra["repository"] == "https://github.com/someone/book"
    assert extra["branch"] == "trunk"
    # With this the theme would ask the host about the repository, from each page.
    assert not load_config(config)["repo_url"]
    workflow = (ROOT / ".github/workflows/check.yml").read_text("utf-8")
    assert "REPO_URL: ${{ github.server_url }}/${{ github.repository }}\n" in workflow


BOX = re.compile(
    r'^    (?P<part>[IVX]+)\["`\*\*(?P<title>.+?)\*\*<br/>(?P<rest>.+)`"\]$'
)
ARROW = re.compile(r"^    (?P<of>[IVX]+) --> (?P<to>[IVX]+)$")


def test_the_map_has_every_part_and_its_arrows_are_links_of_the_book() -> None:
    lines = (ROOT / "docs/map.md").read_text("utf-8").split("\n")
    boxes = {m["part"]: m for line in lines if (m := BOX.match(line))}
    nav = load_config(str(ROOT / "mkdocs.yml"))["nav"]
    parts: dict[str, dict[str, str]] = {}
    for entry in nav:
        for title, inside in entry.items():
            number, _, name = title.partition(". ")
            if number in boxes:
                parts[number] = {k: v for each in inside for k, v in each.items()}
                assert boxes[number]["title"] == name
                assert boxes[number]["rest"].split("<br/>") == [*parts[number]]
    assert parts.keys() == boxes.keys()
    arrows = [m for line in lines if (m := ARROW.match(line))]
    assert len(arrows) > len(parts)
    for arrow in arrows:
        of, to = parts[arrow["of"]].values(), parts[arrow["to"]].values()
        assert led(of, to) | led(to, of), f"{arrow['of']} and {arrow['to']}: no link"


def led(pages: Iterable[str], others: Iterable[str]) -> set[str]:
    """Give those of the pages that others lead to."""
    told = {
        Path(link.target.partition("#")[0]).name
        for path in others
        for link in links(load_page(ROOT / "docs" / path, ROOT))
    }
    return {Path(path).name for path in pages} & told
