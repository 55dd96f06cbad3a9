"""Measure ``check_attention`` on attention from public projects, and on bugs in it.

There are three sets of correct modules. The learning set may be used to improve the
checks; the held-out set measured them for a time before it was looked into; the unseen
set was chosen later, by others, who did not know the checks, and only measures them. A
further list, ``found``, has modules that nobody has shown to be correct.
"""

from benchmarks.public.asking import measure_found, measure_public, shortened

__all__ = ["measure_found", "measure_public", "shortened"]
