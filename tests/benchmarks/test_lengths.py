"""The losses by position are all there, and belong to what they are called."""

from transformer_book import load_record


def test_within_the_trained_length_a_cache_of_it_changes_nothing() -> None:
    losses = load_record("lengths")["results"]["losses"]
    for way in ("cache of 64, 0 sinks", "cache of 64, 4 sinks"):
        for seed, plain in losses["plain"].items():
            assert losses[way][seed][:4] == plain[:4]
