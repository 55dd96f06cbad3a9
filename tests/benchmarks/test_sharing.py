"""The ways to share keys whose times are compared compute one thing."""

import torch
from benchmarks.sharing import WAYS, inputs

from tested_transformer import attention_with_weights


def test_each_way_is_the_open_attention() -> None:
    for num_queries in (1, 5):
        q, k, v = inputs(4, num_queries, 5)
        exact, _ = attention_with_weights(q, k, v, causal=True)
        for way in WAYS.values():
            output = way(q, k, v, causal=num_queries > 1)
            torch.testing.assert_close(output, exact)
