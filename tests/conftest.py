"""What every test may ask for. PyTorch is imported where it is first needed, so that
a test run says at once that it has begun.
"""

from collections.abc import Iterator

import hypothesis
import pytest

# A machine may be busy, and a test that fails must fail again: no deadline, no chance.
hypothesis.settings.register_profile("book", deadline=None, derandomize=True)
hypothesis.settings.load_profile("book")


@pytest.fixture(autouse=True)
def _seed() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture
def as_a_caller() -> Iterator[None]:
    """Switch the shape checks of the test run off, to meet the library's own errors."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
