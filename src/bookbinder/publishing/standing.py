"""Build the book from any folder, as a hook of MkDocs.

The extensions and snippets name files from the top of the repository, for MkDocs tells
an extension neither its configuration nor its page. So the build stands there, wherever
``mkdocs build -f`` was called.
"""

import os

from mkdocs.config.defaults import MkDocsConfig

__all__ = ["on_config"]


def on_config(config: MkDocsConfig) -> None:
    """Go to the folder of the configuration before anything is read."""
    os.chdir(os.path.dirname(os.path.abspath(config.config_file_path)))
