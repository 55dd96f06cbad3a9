"""What ``check_attention`` says of attention in public projects, and of bugs in it.

There are two sets of correct modules. The checks may be improved with what they say of
the learning set; of the held-out set they are only measured. A third list, ``found``,
has modules of which nobody has said that they are correct.
"""

from benchmarks.public.asking import measure_found, measure_public, shortened

__all__ = ["measure_found", "measure_public", "shortened"]
