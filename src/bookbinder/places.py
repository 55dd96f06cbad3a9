"""Where things are: the packages that pages show, and files whatever links lead to."""

import os
from functools import cache

# The library, the material of the book, and the checker beside it.
PACKAGES = ("tested_transformer", "transformer_book", "attention_check")


@cache
def real_name(file: str) -> str:
    """Return the name of a file without links; code without a file keeps its name.

    Python and Node name a file by the way that led to it, and a checkout may be reached
    by several. So names are compared only after this.
    """
    return file if file.startswith("<") else os.path.realpath(file)
