"""The losses by position are all there, and belong to what they are called."""

import pytest
from benchmarks.lengths import measure_lengths

from transformer_book import load_record


@pytest.mark.nightly
def test_the_record_has_what_is_measured() -> None:
    quick, record = measure_lengths(quick=True), load_record("lengths")["results"]
    assert quick["size"].keys() == record["size"].keys()
    assert quick["losses"].keys() == record["losses"].keys()
    bins = record["size"]["read_length"] // record["size"]["bin"]
    for losses in record["losses"].values():
        assert [*losses] == ["0", "1", "2"]
        assert {len(each) for each in losses.values()} == {bins}


def test_within_the_trained_length_a_cache_of_it_changes_nothing() -> None:
    losses = load_record("lengths")["results"]["losses"]
    for way in ("cache of 64, 0 sinks", "cache of 64, 4 sinks"):
        for seed, found in losses["plain"].items():
            assert losses[way][seed][:4] == found[:4]
