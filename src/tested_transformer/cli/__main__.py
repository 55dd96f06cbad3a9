"""``python -m tested_transformer.cli``, now ``python -m tested_transformer``."""

import sys
import warnings

from tested_transformer.cli import main

if __name__ == "__main__":
    warnings.warn(
        "python -m tested_transformer.cli is now python -m tested_transformer",
        FutureWarning,
        stacklevel=1,
    )
    sys.exit(main())
