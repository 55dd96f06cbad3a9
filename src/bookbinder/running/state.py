"""Give each block a fresh state, whatever the blocks before it have set."""

import os
import sys
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

# Outputs are written with one seed and checked with another, so that a block without a
# seed of its own fails.
WRITTEN, CHECKED = 0, int(os.environ.get("BOOK_SEED", "1"))
# Tensors on pages are small, so more threads only add waiting on a busy machine.
THREADS = int(os.environ.get("BOOK_THREADS", "1"))


@contextmanager
def fresh_state(seed: int = CHECKED) -> Generator[Path]:
    """Set up the state of a newly started interpreter, in an empty folder.

    Everything that a block may change for the next one is reset before and restored
    after: seeds, print options, default dtype and device, threads, autograd, filters of
    warnings, the environment, the import path, the working folder. Shape checks are
    off, so that a block gets the same errors as a reader.
    """
    import jaxtyping

    environment, path, here = dict(os.environ), [*sys.path], Path.cwd()
    checked = jaxtyping.config.jaxtyping_disable
    with tempfile.TemporaryDirectory() as folder:
        as_started(seed, THREADS)
        jaxtyping.config.update("jaxtyping_disable", True)
        os.chdir(folder)
        try:
            # Under pytest each test has its own filters of warnings already.
            with warnings.catch_warnings():
                yield Path(folder)
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = path
            jaxtyping.config.update("jaxtyping_disable", checked)
            as_started(seed, THREADS)


def as_started(seed: int, threads: int) -> None:
    """Set what a run may have changed in this process as a new interpreter has it.

    A notebook holds the source of this function before each run that starts anew, so it
    stands alone.
    """
    import random
    import sys

    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_printoptions(profile="default")
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    # Setting it again imports a compiler, four seconds.
    if torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if matplotlib := sys.modules.get("matplotlib"):
        matplotlib.rc_file_defaults()
