"""``python -m tested_transformer.cli``, as torchrun starts it."""

import sys

from tested_transformer.cli import main

if __name__ == "__main__":
    sys.exit(main())
