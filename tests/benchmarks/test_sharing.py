"""The ways to share keys whose times are compared compute one thing."""

import pytest
import torch
from benchmarks.sharing import WAYS, inputs

from tested_transformer import attention_with_weights


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("num_queries", [1, 5])
def test_each_way_is_the_open_attention(way: str, num_queries: int) -> None:
    q, k, v = inputs(4, num_queries, 5)
    exact, _ = attention_with_weights(q, k, v, causal=True)
    output = WAYS[way](q, k, v, causal=num_queries > 1)
    torch.testing.assert_close(output, exact)
