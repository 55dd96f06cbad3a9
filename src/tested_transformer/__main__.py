"""``python -m tested_transformer``: the command, also for torchrun."""

import sys

from tested_transformer.cli import main

if __name__ == "__main__":
    sys.exit(main())
