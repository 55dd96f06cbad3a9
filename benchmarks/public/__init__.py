"""Measure ``check_attention`` on attention from public projects, and on bugs in it.

There are two sets of correct modules. The learning set may be used to improve the
checks; the held-out set only measures them. A third list, ``found``, has modules that
nobody has shown to be correct.
"""

from benchmarks.public.asking import measure_found, measure_public, shortened

__all__ = ["measure_found", "measure_public", "shortened"]
