"""``python -m bookbinder.publishing SITE``: finish a site that was just built."""

import argparse
import sys
from pathlib import Path

from bookbinder.publishing.book import load_book
from bookbinder.publishing.notebooks import gather_notebooks
from bookbinder.publishing.publish import publish


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 if the site cannot be finished."""
    parser = argparse.ArgumentParser(
        prog="python -m bookbinder.publishing", description=__doc__
    )
    parser.add_argument("site", type=Path, metavar="SITE")
    parser.add_argument("--pdf", action="store_true", help="print the book, too")
    parser.add_argument(
        "--notebooks", type=Path, metavar="FOLDER", help="gather the notebooks here"
    )
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[3]
    try:
        publish(options.site, root, archive=True, pdf=options.pdf)
        if options.notebooks:
            gather_notebooks(options.site, load_book(root), options.notebooks)
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
