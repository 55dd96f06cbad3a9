"""How fast the library is, beside other implementations, in one run on one machine.

``python -m benchmarks --help`` says how. None of the others is part of this project:
they are read from checkouts whose paths are given, and one that is not there is
reported as not measured.
"""

import sys
from pathlib import Path

# For machines on which nothing can be installed beside PyTorch.
STANDINS = Path(__file__).with_name("standins")
if str(STANDINS) not in sys.path:
    sys.path.append(str(STANDINS))
