"""Small models with weights large enough for them to have an opinion."""

import pytest
import torch

from tested_transformer.gpt import GPT, GPTConfig


@pytest.fixture
def make():
    def make(seed=0, *, vocab_size=11, sharp=1.0, **changes):
        torch.manual_seed(seed)
        sizes = {"d_model": 12, "num_heads": 3, "num_layers": 2, "max_seq_len": 24}
        config = GPTConfig(vocab_size=vocab_size, **{**sizes, **changes})
        model = GPT(config, dtype=torch.float64).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += sharp * 0.3 * torch.randn_like(parameter)
        return model

    return make
