"""``python -m bookbinder outputs [PAGE ...]``: renew outputs and pictures."""

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 if a page could not be renewed."""
    parser = argparse.ArgumentParser(prog="python -m bookbinder", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    outputs = commands.add_parser("outputs", help="renew the outputs of pages")
    outputs.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[2]
    from bookbinder.outputs import refresh
    from bookbinder.running.figures import draw_as_the_book

    draw_as_the_book()

    pages = [page.resolve() for page in options.pages]
    failed = False
    everywhere = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    for page in pages or sorted(everywhere):
        if not page.is_file():
            print(f"{page}: no such page", file=sys.stderr)
            failed = True
            continue
        difference, problems = refresh(page, root)
        sys.stdout.write(difference)
        for problem in problems:
            print(problem, file=sys.stderr)
        failed = failed or bool(problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
