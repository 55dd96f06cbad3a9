"""Attention modules of public projects, bugs in them, and what the checks say of both.

Each set is a folder with a TOML file for each module, whose keys are those of
``Module``. The learning set may be used to improve the checks. Every other set measured
them before it was looked into. ``found`` has modules that nobody has shown to be
correct, and no bugs.

No code of the projects is here. To measure, give a folder with a checkout of each, at
its commit and named ``owner+name``. ``python -m benchmarks.corpus FOLDER`` verifies the
modules and their bugs.
"""

from benchmarks.corpus.asking import found, public, shortened

__all__ = ["found", "public", "shortened"]
