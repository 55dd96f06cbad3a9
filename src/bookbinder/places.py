"""Know a file by one name, whatever links lead to it."""

import os
from functools import cache

__all__ = ["real_name"]


@cache
def real_name(file: str) -> str:
    """Return the name of a file without links; code without a file keeps its name.

    Python and Node name a file by the way that led to it, and a checkout may be reached
    by several. So names are compared only after this.
    """
    return file if file.startswith("<") else os.path.realpath(file)
