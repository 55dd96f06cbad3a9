"""``python -m bookbinder.publishing SITE``: finish a newly built site."""

import argparse
import sys
from pathlib import Path

from bookbinder.publishing.book import load_book
from bookbinder.publishing.publish import publish

parser = argparse.ArgumentParser(prog="python -m bookbinder.publishing")
parser.add_argument("site", type=Path, metavar="SITE")
parser.add_argument("--pdf", action="store_true", help="print pages, too")
options = parser.parse_args()
root = Path(__file__).resolve().parents[3]
try:
    publish(options.site, root, load_book(root), pdf=options.pdf)
except (OSError, ValueError, RuntimeError) as error:
    sys.exit(str(error))
