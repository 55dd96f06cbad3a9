"""A part runs beside the sequence, and a norm stands before it or after the sum."""

import pytest
import torch
from torch import nn

from tested_transformer.layers import AddNorm

# By hand: (1, 2, 3, 2) has the mean 2 and the variance 1/2, and so has twice of it
# a variance of 2: layer norm gives (-1, 0, 1, 0) times the root of 2 for both.
X = torch.tensor([[[1.0, 2.0, 3.0, 2.0]]])
NORMED = torch.tensor([[[-1.0, 0.0, 1.0, 0.0]]]) * 2**0.5


def test_post_norm_norms_the_sum_of_both():
    seen = []
    add = AddNorm(d_model=4)
    made = add(X, lambda x: seen.append(x) or x)
    torch.testing.assert_close(made, NORMED, rtol=0, atol=1e-4)
    assert torch.equal(seen[0], X)


def test_pre_norm_norms_what_the_part_reads_alone():
    seen = []
    add = AddNorm(d_model=4, norm_first=True)
    made = add(X, lambda x: seen.append(x) or 10 * x)
    torch.testing.assert_close(seen[0], NORMED, rtol=0, atol=1e-4)
    torch.testing.assert_close(made, X + 10 * NORMED, rtol=0, atol=1e-3)


@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_acts_on_what_is_added_and_never_on_what_passes(norm_first: bool):
    add = AddNorm(d_model=4, dropout=1.0, norm_first=norm_first)
    passed = X if norm_first else NORMED
    torch.testing.assert_close(add(X, torch.exp), passed, rtol=0, atol=1e-4)
    assert not torch.allclose(add.eval()(X, torch.exp), passed, atol=1e-2)


def test_settings_reach_the_norm():
    assert isinstance(AddNorm(d_model=4, norm="rms").norm, nn.RMSNorm)
    assert AddNorm(d_model=4).norm.bias is not None
    assert AddNorm(d_model=4, bias=False).norm.bias is None
    with pytest.raises(ValueError, match=r"^norm='batch' must be one of layer, rms$"):
        AddNorm(d_model=4, norm="batch")
