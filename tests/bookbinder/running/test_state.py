"""Each block starts as in a new interpreter, and leaves it as it was."""

import os
import random
import sys
from pathlib import Path

import jaxtyping
import matplotlib
import numpy as np
import pytest
import torch

from bookbinder.running.state import WRITTEN, fresh_state


def observed() -> dict[str, object]:
    """Look at everything that one block could change for the next."""
    return {
        "seed": torch.initial_seed(),
        "random": (random.random(), torch.rand(1).item()),
        "numpy": np.random.rand(),
        "line": matplotlib.rcParams["lines.linewidth"],
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "printed": str(torch.tensor([1 / 3, 1e9])),
        "environment": os.environ.get("BOOK"),
        "path": [*sys.path],
        "files": os.listdir(),
        "checked": jaxtyping.config.jaxtyping_disable,
    }


def disturb() -> None:
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    matplotlib.rcParams["lines.linewidth"] = 77
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    torch.set_printoptions(precision=1, sci_mode=True)
    os.environ["BOOK"] = "open"
    sys.path.insert(0, "nowhere")
    Path("left.txt").write_text("behind")
    jaxtyping.config.update("jaxtyping_disable", False)


def test_nothing_a_block_does_reaches_the_next_or_the_other_tests() -> None:
    before, here = dict(os.environ), Path.cwd()

    def disturb_and_fail() -> None:
        with fresh_state():
            disturb()
            raise ZeroDivisionError

    with fresh_state():
        first = observed()
    with pytest.raises(ZeroDivisionError):
        disturb_and_fail()
    assert (dict(os.environ), Path.cwd()) == (before, here)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert not jaxtyping.config.jaxtyping_disable
    with fresh_state():
        assert observed() == first


def test_what_draws_without_a_seed_draws_other_numbers_than_the_outputs() -> None:
    with fresh_state():
        here = torch.rand(1).item(), random.random()
    with fresh_state(WRITTEN):
        written = torch.rand(1).item(), random.random()
    assert here[0] != written[0]
    assert here[1] != written[1]
