"""The files of the library that the site serves, for the live parts of pages."""

import shutil
from pathlib import Path

from transformer_book import JAVASCRIPT, MODELS

# The folder of the scripts in the site; the models must be next to them.
SCRIPTS = "assets/js/gpt"


def add_shipped_files(site: Path) -> None:
    """Copy the scripts and the models into a built site."""
    shutil.copytree(JAVASCRIPT, site / SCRIPTS, dirs_exist_ok=True)
    shutil.copytree(MODELS, site / "assets/models", dirs_exist_ok=True)
