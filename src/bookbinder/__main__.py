"""``python -m bookbinder``: what a contributor calls, through make.

``outputs [PAGE ...]`` renews outputs and pictures, ``page PAGE`` checks one page and
``chapter NAME`` begins one. What takes long to import is imported where it is needed.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 if anything is left to mend."""
    parser = argparse.ArgumentParser(prog="python -m bookbinder", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    outputs = commands.add_parser("outputs", help="renew the outputs of pages")
    outputs.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    page = commands.add_parser("page", help="say what is wrong with a page")
    page.add_argument("page", type=Path, metavar="PAGE")
    page.add_argument("--watch", action="store_true", help="each time it is saved")
    chapter = commands.add_parser("chapter", help="begin a chapter")
    chapter.add_argument("name", metavar="NAME", help="its title")
    chapter.add_argument("--question", default="", help="what it answers")
    chapter.add_argument("--module", default="", help="a new module of the library")
    options = parser.parse_args(arguments)
    if options.command == "outputs":
        return _outputs(options.pages)
    if options.command == "page":
        return _page(options.page.resolve(), watched=options.watch)
    return _chapter(options.name, options.question, options.module)


def _outputs(pages: list[Path]) -> int:
    from bookbinder.outputs import refresh
    from bookbinder.running.figures import draw_as_the_book

    draw_as_the_book()
    failed = False
    everywhere = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in [page.resolve() for page in pages] or sorted(everywhere):
        if not page.is_file():
            print(f"{page}: no such page", file=sys.stderr)
            failed = True
            continue
        difference, problems = refresh(page, ROOT)
        sys.stdout.write(difference)
        for problem in problems:
            print(problem, file=sys.stderr)
        failed = failed or bool(problems)
    return int(failed)


def _page(page: Path, *, watched: bool) -> int:
    if not page.is_file():
        print(f"page: wanted PAGE=docs/..., a page that is there, not {page}")
        return 2
    from bookbinder.contributing.checking import Checker
    from bookbinder.contributing.watching import restart, watch
    from bookbinder.warming import warm_up

    warm_up(ROOT)
    checker = Checker(ROOT)
    if watched:
        try:
            watch(page, checker, sys.stdout, again=restart)
        except KeyboardInterrupt:
            return 0
    problems = checker.check(page)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{page.name}: nothing is wrong")
    return int(bool(problems))


def _chapter(name: str, question: str, module: str) -> int:
    from bookbinder.contributing.beginning import ChapterError, begin

    try:
        written = begin(ROOT, name, question=question, module=module)
    except ChapterError as error:
        print(f"chapter: {error}", file=sys.stderr)
        return 1
    for line in written:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
