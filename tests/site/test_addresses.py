"""Chapters are numbered by the navigation, and old addresses lead to the new."""

import re
from pathlib import Path

from bookbinder.publishing.old_addresses import OLD, OLD_SECTIONS, add_old_addresses

ROOT = Path(__file__).parents[2]


def numbered(built: Path, chapter: str) -> str:
    page = (built / "chapters" / chapter / "index.html").read_text("utf-8")
    heading = re.search(r"<h1[^>]*>(?:(\d+)\. )?", page)
    assert heading
    return heading[1] or ""


def test_chapters_are_counted_in_the_order_of_the_navigation(built: Path) -> None:
    nav = re.findall(
        r": chapters/([\w-]+)\.md", (ROOT / "mkdocs.yml").read_text("utf-8")
    )
    *chapters, template = nav
    assert [numbered(built, name) for name in chapters] == [
        str(number) for number, _ in enumerate(chapters, start=1)
    ]
    assert template == "a-chapter-to-copy"
    assert numbered(built, template) == ""


def test_an_old_address_leads_to_the_page(tmp_path: Path) -> None:
    add_old_addresses(tmp_path)
    for old, new in OLD.items():
        assert (ROOT / "docs" / old / f"../{new}.md").resolve().is_file()
        page = (tmp_path / old / "index.html").read_text("utf-8")
        assert f'content="0; url=../{new}/"' in page
        assert f'href="../{new}/"' in page


def test_an_old_anchor_leads_to_its_section(html: dict[str, str]) -> None:
    for source, sections in OLD_SECTIONS.items():
        page = html[f"{source.removesuffix('.md')}/"]
        for old, new in sections.items():
            spans = rf'<span id="{old}"></span>(?:<span id="[^"]*"></span>)*'
            assert re.search(rf'{spans}<h2 id="{new}">', page), old
