"""What is read of a sequence, and how several lie side by side."""

from tested_transformer.decoding.readers import fit, pad_left


def test_what_outgrows_the_context_keeps_its_last_half():
    for length, longest, kept in ((7, 7, 7), (8, 7, 4), (9, 8, 4), (3, 1, 1)):
        tokens = list(range(length))
        fitted = fit(tokens, longest)
        assert fitted == tokens[-kept:]
        assert fitted is not tokens


def test_all_end_together():
    tokens, positions, mask = pad_left([[5, 6], [1, 2, 3, 4], [7]])
    assert tokens.tolist() == [[0, 0, 5, 6], [1, 2, 3, 4], [0, 0, 0, 7]]
    assert positions.tolist() == [[0, 0, 0, 1], [0, 1, 2, 3], [0, 0, 0, 0]]
    assert mask.shape == (3, 1, 1, 4)
    assert mask[:, 0, 0].tolist() == [
        [False, False, True, True],
        [True] * 4,
        [False, False, False, True],
    ]
    tokens, positions, mask = pad_left([[5, 6], [1, 2]])
    assert (tokens.tolist(), positions, mask) == ([[5, 6], [1, 2]], None, None)


def test_sequences_are_laid_out_where_they_are_asked_for():
    for contexts in ([[1, 2], [3]], [[1, 2], [3, 4]]):
        laid_out = [x for x in pad_left(contexts, device="meta") if x is not None]
        assert {tensor.device.type for tensor in laid_out} == {"meta"}
