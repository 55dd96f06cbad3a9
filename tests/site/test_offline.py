"""The archive of the book, opened from a disk: no server, and nothing missing."""

import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bookbinder.publishing.offline import ARCHIVE


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disk")
    with zipfile.ZipFile(built / ARCHIVE) as packed:
        packed.extractall(folder)
        (top,) = {name.split("/")[0] for name in packed.namelist()}
    return folder / top


def test_every_link_of_every_page_names_a_file_that_is_there(unpacked: Path) -> None:
    pages = sorted(unpacked.rglob("*.html"))
    missing = [
        (page.relative_to(unpacked).as_posix(), link)
        for page in pages
        for link in re.findall(r'\s(?:href|src)="([^"#?]+)', page.read_text("utf-8"))
        if ":" not in link and not page.parent.joinpath(link).is_file()
    ]
    assert len(pages) > 30
    assert missing == []


@pytest.mark.browser
def test_a_page_opens_from_a_disk_leads_on_and_searches(
    unpacked: Path, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(request.url))
    page.on("console", lambda message: problems.append(message.text))
    try:
        page.goto((unpacked / "index.html").as_uri())
        page.locator("article a", has_text="No peeking").first.click()
        page.wait_for_url("**/no-peeking/index.html")
        # The script of the theme has taken hold, and keeps the margins in place.
        page.wait_for_function("() => window.component$")
        page.locator(".md-footer__link--next").click()
        page.wait_for_url("**/shapes-that-lie/index.html")
        assert "Shapes that lie" in page.locator("h1").inner_text()
        page.locator(".md-search__input").click()
        page.keyboard.type("key_padding_mask")
        page.locator(".md-search-result__link").first.click(timeout=20_000)
        page.wait_for_url("file://*/**/index.html?h=*")
        assert "key_padding_mask" in page.locator("article").inner_text()
    finally:
        page.close()
    assert problems == []
