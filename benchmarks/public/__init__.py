"""What ``check_attention`` says of attention in public projects, and of bugs in it.

There are two sets. The checks may be improved with what they say of the learning set;
of the held-out set they are only measured.
"""

from benchmarks.public.asking import measure_public, shortened

__all__ = ["measure_public", "shortened"]
