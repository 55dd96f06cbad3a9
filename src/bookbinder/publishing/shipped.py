"""Add files of the library to the site, for the live parts of pages.

With MkDocs, a hook in ``mkdocs.yml`` adds them to every build, including previews. For
other engines, ``publish`` adds them.
"""

import shutil
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

from transformer_book import JAVASCRIPT, MODELS

__all__ = ["SCRIPTS", "add_shipped_files", "on_post_build"]

# The folder of the scripts in the site; the models must be next to them.
SCRIPTS = "assets/js/gpt"


def add_shipped_files(site: Path) -> None:
    """Copy the scripts and the models into a built site."""
    shutil.copytree(JAVASCRIPT, site / SCRIPTS, dirs_exist_ok=True)
    shutil.copytree(MODELS, site / "assets/models", dirs_exist_ok=True)


def on_post_build(config: MkDocsConfig) -> None:
    """Copy the files after MkDocs has built the site."""
    add_shipped_files(Path(config.site_dir))
