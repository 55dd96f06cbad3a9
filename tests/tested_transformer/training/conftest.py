"""A model that trains in milliseconds, and a text for it."""

import pytest
import torch

from tested_transformer.gpt import GPT, GPTConfig

V, T, D, H, L = 11, 7, 12, 3, 2


@pytest.fixture
def make_model():
    def make(**settings):
        torch.manual_seed(5)
        tiny = {
            "vocab_size": V,
            "max_seq_len": T,
            "d_model": D,
            "num_heads": H,
            "num_layers": L,
        }
        return GPT(GPTConfig(**{**tiny, **settings}))

    return make


@pytest.fixture
def tokens():
    """A walk round the circle of tokens, 1 or 2 ahead: there is something to learn."""
    steps = torch.randint(1, 3, (997,), generator=torch.Generator().manual_seed(3))
    return steps.cumsum(0) % V


@pytest.fixture(autouse=True)
def _one_thread():
    """Make sums come out the same twice, and small ones fast."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
