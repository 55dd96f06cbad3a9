from pathlib import Path

from bookbinder.publishing.book import load_book

ROOT = Path(__file__).parents[3]


def test_pages_come_in_the_order_of_the_navigation(root: Path) -> None:
    (root / "docs" / "apart.md").write_text("# Apart\n", "utf-8")
    book = load_book(root)
    assert [
        (leaf.part, leaf.title, leaf.folder, leaf.name) for leaf in book.leaves
    ] == [
        ("", "Home", "", "index"),
        ("I. Sums", "Sums", "chapters/01-sums", "01-sums"),
        ("", "Verified", "verified", "verified"),
        ("", "Apart", "apart", "apart"),
    ]
    assert (book.name, book.license) == ("The Book", "Free.")


def test_every_page_of_the_book_is_there_once() -> None:
    sources = [leaf.source for leaf in load_book(ROOT).leaves]
    files = {file.relative_to(ROOT / "docs") for file in (ROOT / "docs").rglob("*.md")}
    assert sorted(sources) == sorted(file.as_posix() for file in files)
    names = [leaf.name for leaf in load_book(ROOT).leaves]
    assert len(set(names)) == len(names)
