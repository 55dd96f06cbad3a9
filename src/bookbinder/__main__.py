"""``python -m bookbinder``: the commands for contributors, called through make.

``outputs [PAGE ...]`` updates outputs and pictures, ``page PAGE`` checks one page, and
``chapter NAME`` starts one. Slow imports happen where they are needed.
"""

import argparse
import sys
from pathlib import Path

from bookbinder.running.figures import draw_as_the_book
from bookbinder.running.importing import change_imports
from bookbinder.running.recording import watch_sections

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 if anything is left to fix."""
    parser = argparse.ArgumentParser(prog="python -m bookbinder", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    outputs = commands.add_parser("outputs", help="update the outputs of pages")
    outputs.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    page = commands.add_parser("page", help="say what is wrong with a page")
    page.add_argument("page", type=Path, metavar="PAGE")
    chapter = commands.add_parser("chapter", help="start a chapter")
    chapter.add_argument("name", metavar="NAME", help="its title")
    chapter.add_argument("--question", default="", help="what it answers")
    options = parser.parse_args(arguments)
    draw_as_the_book()
    if options.command == "outputs":
        return _outputs([page.resolve() for page in options.pages])
    if options.command == "page":
        return _page(options.page.resolve())
    return _chapter(options.name, options.question)


def _outputs(pages: list[Path]) -> int:
    from bookbinder.outputs import refresh

    failed = False
    for page in pages or sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        if page.is_file():
            difference, problems = refresh(page, ROOT)
            sys.stdout.write(difference)
        else:
            problems = [f"{page}: no such page"]
        for problem in problems:
            print(problem, file=sys.stderr)
        failed = failed or bool(problems)
    return int(failed)


def _page(page: Path) -> int:
    if not page.is_file():
        print(f"page: wanted PAGE=docs/..., a page that is there, not {page}")
        return 2
    from bookbinder.check import check

    problems = check(page, ROOT)
    print(*problems or [f"{page.name}: nothing is wrong"], sep="\n")
    return int(bool(problems))


def _chapter(name: str, question: str) -> int:
    from bookbinder.chapter import ChapterError, begin

    try:
        print(*begin(ROOT, name, question=question), sep="\n")
    except ChapterError as error:
        print(f"chapter: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    change_imports(watch_sections)
    sys.exit(main())
