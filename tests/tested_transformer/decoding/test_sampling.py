"""Probabilities worked out by hand, and draws that follow them."""

import math

import pytest
import torch

from tested_transformer.decoding.sampling import (
    RandomSource,
    Sampling,
    draw,
    penalize_repetition,
    resolve_seed,
    sampling_probabilities,
)

# The likeliest is neither first nor last, and two are equally likely.
P = torch.tensor([0.1, 0.4, 0.1, 0.25, 0.15])
LOGITS = P.log() + 3.0


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


BY_HAND: list[tuple[dict[str, float], list[float]]] = [
    ({}, [0.1, 0.4, 0.1, 0.25, 0.15]),
    # p ** 2 over the sum of squares, which is 0.265
    ({"temperature": 0.5}, [0.01, 0.16, 0.01, 0.0625, 0.0225]),
    ({"temperature": 0.0}, [0, 1, 0, 0, 0]),
    ({"temperature": 1e-300}, [0, 1, 0, 0, 0]),
    ({"top_k": 1}, [0, 1, 0, 0, 0]),
    # Of two equal ones the lower id stays.
    ({"top_k": 4}, [0.1, 0.4, 0, 0.25, 0.15]),
    ({"top_k": 99}, [0.1, 0.4, 0.1, 0.25, 0.15]),
    ({"top_p": 0.39}, [0, 1, 0, 0, 0]),
    # The token that passes the sum is the last to stay.
    ({"top_p": 0.41}, [0, 0.4, 0, 0.25, 0]),
    ({"top_p": 0.82}, [0.1, 0.4, 0, 0.25, 0.15]),
    ({"min_p": 0.3}, [0, 0.4, 0, 0.25, 0.15]),
    ({"min_p": 0.5}, [0, 0.4, 0, 0.25, 0]),
    ({"min_p": 1.0}, [0, 1, 0, 0, 0]),
    # Of the three that top-k leaves, the first has 0.5: with 0.55 there are two.
    ({"top_k": 3, "top_p": 0.55}, [0, 0.4, 0, 0.25, 0]),
    # The temperature comes first: squared, 0.0225 is less than 0.3 of 0.16.
    ({"temperature": 0.5, "min_p": 0.3}, [0, 0.16, 0, 0.0625, 0]),
    ({"temperature": 2.0, "top_k": 2}, [0, 0.4**0.5, 0, 0.5, 0]),
]


def test_by_hand():
    for settings, weights in BY_HAND:
        shares = [weight / sum(weights) for weight in weights]
        (probabilities,) = Sampling(**settings).probabilities(LOGITS[None])
        assert probabilities.tolist() == pytest.approx(shares, abs=1e-6), settings


def test_a_sum_that_is_met_exactly_is_enough_and_one_cuts_nothing_off():
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()
    kept = sampling_probabilities(logits, top_p=0.75) > 0
    assert kept.tolist() == [True, True, False, False]
    # The first is 1 up to rounding, and the others are not nothing.
    logits = torch.tensor([0.0, -20.0, -21.0])
    torch.testing.assert_close(
        sampling_probabilities(logits, top_p=1.0), logits.softmax(-1), rtol=1e-5, atol=0
    )


def test_rows_do_not_meet():
    rows = torch.stack([LOGITS, LOGITS.flip(0), torch.zeros(5)])
    settings = {"temperature": 0.7, "top_k": 4, "top_p": 0.8, "min_p": 0.2}
    together = sampling_probabilities(rows.view(3, 1, 5), **settings)
    for row, alone in zip(rows, together[:, 0], strict=True):
        torch.testing.assert_close(sampling_probabilities(row, **settings), alone)
    # The likeliest of the last row has 0.2, less than 0.6 of the likeliest elsewhere.
    assert (sampling_probabilities(rows, min_p=0.6) > 0).sum(-1).tolist() == [2, 2, 5]
    greedy = sampling_probabilities(rows, temperature=0.0)
    assert greedy.tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
    # A whole row may be so far below another that its distance, divided by a small
    # temperature, is infinite.
    apart = torch.stack([LOGITS, LOGITS - 1e4])
    first, second = sampling_probabilities(apart, temperature=1e-36).tolist()
    assert first == second == [0, 1, 0, 0, 0]


def test_of_equals_the_first_wins_and_what_cannot_be_stays_so():
    equal = torch.zeros(3, dtype=torch.bfloat16)
    greedy = sampling_probabilities(equal, temperature=0.0)
    assert (greedy.tolist(), greedy.dtype) == ([1, 0, 0], torch.float32)
    assert sampling_probabilities(equal, top_k=2).tolist() == [0.5, 0.5, 0]
    logits = torch.tensor([1.0, -math.inf, 1.0])
    for settings in ({}, {"temperature": 3.0}, {"top_p": 0.99}, {"min_p": 0.0}):
        assert sampling_probabilities(logits, **settings).tolist() == [0.5, 0, 0.5]


def test_draws_follow_the_probabilities():
    for settings in ({}, {"top_p": 0.7, "min_p": 0.1}):
        probabilities = sampling_probabilities(LOGITS, **settings)
        drawn = draw(probabilities.expand(8000, 5), generators(7) * 8000)
        counts = drawn.bincount(minlength=5).float()
        assert counts[probabilities == 0].sum() == 0
        counts, expected = (
            counts[probabilities > 0],
            8000 * probabilities[probabilities > 0],
        )
        # With 4 degrees of freedom at most: more than 18.5 in one of 1,000 runs.
        assert ((counts - expected) ** 2 / expected).sum() < 18.5


def test_each_row_has_its_own_luck():
    probabilities = torch.rand(3, 41).softmax(-1)
    together = [
        draw(probabilities, g).tolist() for g in [generators(3, 4, 5)] for _ in "abcd"
    ]
    for row, seed in enumerate((3, 4, 5)):
        (own,) = generators(seed)
        alone = [draw(probabilities[row : row + 1], [own]).item() for _ in "abcd"]
        assert alone == [tokens[row] for tokens in together]


def test_repetition_costs_on_either_side_of_zero():
    logits = torch.tensor([[2.0, -2.0, 0.0, 3.0], [1.0, -1.0, 0.5, -4.0]])
    seen = torch.tensor([[True, True, True, False], [False, False, True, True]])
    assert penalize_repetition(logits, seen, 2.0).tolist() == [
        [1.0, -4.0, 0.0, 3.0],
        [1.0, -1.0, 0.25, -8.0],
    ]
    assert torch.equal(penalize_repetition(logits, seen, 1.0), logits)


def test_settings_out_of_range_are_named():
    for name, values, requirement in (
        ("temperature", (-0.5, math.nan, math.inf), "0 or more, and finite"),
        ("top_k", (0,), "at least 1"),
        ("top_p", (0.0, 1.01, math.nan), "more than 0 and at most 1"),
        ("min_p", (-0.1, 1.5), "lie between 0 and 1"),
        ("repetition_penalty", (0.0, math.nan, math.inf), "more than 0, and finite"),
    ):
        for value in values:
            message = f"^{name}={value} must (be )?{requirement}$"
            with pytest.raises(ValueError, match=message):
                Sampling(**{name: value})
            if name != "repetition_penalty":
                with pytest.raises(ValueError, match=message):
                    sampling_probabilities(LOGITS, **{name: value})


def test_decisions_repeat_for_a_seed_and_what_is_certain_is_certain():
    first, again, other = (
        [source.accepts(0.5) for _ in range(50)]
        for source in map(RandomSource, (5, 5, 6))
    )
    assert first == again != other
    assert all(RandomSource(seed).accepts(1.0) for seed in range(50))
    assert not any(RandomSource(seed).accepts(0.0) for seed in range(50))


def test_seeds_that_nobody_gives_differ():
    assert len({resolve_seed(None) for _ in range(100)}) == 100
    assert resolve_seed(7) == 7
