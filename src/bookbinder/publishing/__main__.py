"""``python -m bookbinder.publishing SITE``: finish a newly built site."""

import argparse
import sys
from pathlib import Path

from bookbinder.publishing.book import load_book
from bookbinder.publishing.notebooks import gather_notebooks
from bookbinder.publishing.publish import publish


def main() -> None:
    """Run the command line; the exit status is 1 if the site cannot be finished."""
    parser = argparse.ArgumentParser(
        prog="python -m bookbinder.publishing", description=__doc__
    )
    parser.add_argument("site", type=Path, metavar="SITE")
    parser.add_argument("--pdf", action="store_true", help="print its parts, too")
    parser.add_argument(
        "--notebooks", type=Path, metavar="FOLDER", help="gather the notebooks here"
    )
    options = parser.parse_args()
    root = Path(__file__).resolve().parents[3]
    try:
        book = load_book(root)
        publish(options.site, root, book, pdf=options.pdf)
        if options.notebooks:
            gather_notebooks(options.site, book, options.notebooks)
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
