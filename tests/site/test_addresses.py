"""Chapters are numbered by the navigation, and old addresses lead to the new."""

import re
from pathlib import Path

from bookbinder.publishing.old_addresses import OLD, OLD_SECTIONS

ROOT = Path(__file__).parents[2]


def test_chapters_are_counted_in_the_order_of_the_navigation(
    html: dict[str, str],
) -> None:
    nav = (ROOT / "mkdocs.yml").read_text("utf-8")
    *chapters, template = re.findall(r": (chapters/[\w-]+)\.md", nav)
    numbers = {
        address.strip("/"): title[1]
        for address, page in html.items()
        if (title := re.search(r"<h1\b[^>]*>(\d+)\. ", page))
    }
    expected = {name: str(number) for number, name in enumerate(chapters, start=1)}
    assert numbers == expected
    assert template == "chapters/a-chapter-to-copy"
    rows = re.findall(r'<td[^>]*>(\d+)\. <a href="(chapters/[^"]*)/">', html[""])
    assert {address: number for number, address in rows} == numbers


def test_an_old_address_leads_to_the_page_and_to_its_section(
    built: Path, html: dict[str, str]
) -> None:
    for old, new in OLD.items():
        assert (ROOT / "docs" / old / f"../{new}.md").resolve().is_file()
        page = (built / old / "index.html").read_text("utf-8")
        assert f'content="0; url=../{new}/"' in page
        assert f'href="../{new}/"' in page
    for source, sections in OLD_SECTIONS.items():
        page = html[f"{source.removesuffix('.md')}/"]
        for old, new in sections.items():
            spans = rf'<span id="{old}"></span>(?:<span id="[^"]*"></span>)*'
            assert re.search(rf'{spans}<h2 id="{new}">', page), old
