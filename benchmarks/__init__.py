"""Measure the library and other implementations in one run on one machine.

See ``python -m benchmarks --help``. The other implementations are not part of this
project: they are read from checkouts whose paths you give, and without a path they are
reported as not measured.
"""

import sys
from pathlib import Path

# For machines on which nothing but PyTorch can be installed.
STANDINS = Path(__file__).with_name("standins")
if str(STANDINS) not in sys.path:
    sys.path.append(str(STANDINS))
