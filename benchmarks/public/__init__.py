"""Measure ``check_attention`` on attention from public projects, and on bugs in it.

There are three sets of correct modules. The learning set may be used to improve the
checks. The held-out set and, later, the unseen set, which others chose, measured them
before they were looked into. A further list, ``found``, has modules that nobody has
shown to be correct.
"""

from benchmarks.public.asking import measure_found, measure_public, shortened

__all__ = ["measure_found", "measure_public", "shortened"]
