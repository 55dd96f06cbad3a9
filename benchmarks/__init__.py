"""How fast the library is, beside other implementations, in one run on one machine.

``python -m benchmarks --help`` says how. None of the others is part of this project:
they are read from checkouts whose paths are given, and one that is not there is
reported as not measured.
"""
