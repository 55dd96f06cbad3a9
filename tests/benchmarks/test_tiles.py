"""Chosen blocks through FlexAttention: the record of the page on other softmaxes."""

import pytest
from benchmarks.tiles import ASKING, measure_tiles

from transformer_book import load_record


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_the_record_has_what_is_measured() -> None:
    quick, record = measure_tiles(quick=True), load_record("tiles")["results"]
    assert quick["size"] == record["size"]
    for asking in ASKING:
        assert quick["256"][asking].keys() == record["8192"][asking].keys()
        assert quick["256"][asking]["gap"] < 1e-5
        assert all(record[length][asking]["gap"] < 1e-5 for length in [*record][1:])
        # Up to eight blocks, every query reads them all.
        assert quick["256"][asking]["tiles"] == record["1024"][asking]["tiles"] == 1
