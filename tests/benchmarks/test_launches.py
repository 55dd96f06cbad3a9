"""Operations are counted as they are, and do not grow in silence."""

import torch
from benchmarks.launches import READERS, counted, training_pass, written_token

from tested_transformer.attentions import ATTENTIONS
from transformer_book import load_record

RECORD = load_record("launches")["results"]


def test_views_are_no_operations_and_reading_a_number_is_a_wait() -> None:
    x = torch.ones(3, 5)

    def run() -> None:
        y = x.t()[1:].unsqueeze(0) + 1  # two views and a sum
        float(y[0, 0, 0])  # three views and a wait

    counts = counted(run)
    assert (counts.operations, counts.waits) == (2, 1)
    # It reads and writes 12 numbers, and the wait reads one.
    assert counts.bytes == 4 * (2 * 12 + 1)


def test_a_pass_takes_no_more_than_was_recorded_and_hardly_more_if_it_is_long() -> None:
    for name in ATTENTIONS:
        counts = counted(training_pass(name, 256))
        # A new way to attend has no record until the next measurement.
        if name in RECORD["training pass of a layer"]:
            recorded = RECORD["training pass of a layer"][name]["256"]
            assert counts.operations <= recorded["operations"], name
            assert counts.waits <= recorded["waits"], name
            assert counts.bytes <= 1.01 * recorded["bytes"], name
        # A loop over blocks or chunks has four times as many.
        long = counted(training_pass(name, 1024))
        assert long.operations <= 1.3 * counts.operations, name


def test_a_written_token_takes_no_more_than_was_recorded() -> None:
    for name in READERS:
        counts = counted(written_token(name, 256))
        assert counts.operations <= RECORD["written token"][name]["operations"], name
        assert counts.waits == 0, name
