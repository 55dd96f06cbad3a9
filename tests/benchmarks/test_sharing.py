"""The ways to share keys whose times are compared compute one thing."""

import pytest
import torch
from benchmarks.sharing import WAYS, inputs, measure_sharing

from tested_transformer import attention_with_weights
from transformer_book import load_record


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("num_queries", [1, 5])
def test_each_way_is_the_open_attention(way: str, num_queries: int) -> None:
    q, k, v = inputs(4, num_queries, 5)
    exact, _ = attention_with_weights(q, k, v, causal=True)
    output = WAYS[way](q, k, v, causal=num_queries > 1)
    torch.testing.assert_close(output, exact)


def test_the_record_has_what_is_measured() -> None:
    quick, record = measure_sharing(quick=True), load_record("sharing")["results"]
    assert quick.keys() == record.keys()
    for part in ("a step", "grouped, by heads of keys", "a prompt", "bytes"):
        assert quick[part].keys() == record[part].keys()
    assert record["bytes"]["32"] == 2 * 32 * 64 * 2048 * 4
