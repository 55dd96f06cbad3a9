"""Scores worked by hand."""

import re

import pytest
import torch

from tested_transformer.interpret import head_scores, uniform_score

# One sequence of three tokens, two layers of two heads.
WEIGHTS = [
    torch.tensor(
        [[[[1, 0, 0], [0.75, 0.25, 0], [0.5, 0.25, 0.25]], [[1, 0, 0]] * 3]],
        dtype=torch.float,
    ),
    torch.tensor([[[[1, 0, 0], [0, 1, 0], [0, 0, 1]]] * 2], dtype=torch.float),
]
TARGET = torch.tensor([[[0, 0, 0], [1, 0, 0], [0, 1, 1]]], dtype=torch.bool)


def test_a_score_is_the_mean_weight_on_the_target() -> None:
    scores = head_scores(WEIGHTS, TARGET)
    assert scores.tolist() == [[0.625, 0.5], [0.5, 0.5]]


def test_queries_without_a_target_do_not_count() -> None:
    two = [each.repeat(2, 1, 1, 1) for each in WEIGHTS]
    target = torch.cat([TARGET, torch.zeros_like(TARGET)])
    assert torch.equal(head_scores(two, target), head_scores(WEIGHTS, TARGET))


def test_an_even_head_scores_its_share() -> None:
    assert uniform_score(TARGET) == pytest.approx((1 / 2 + 2 / 3) / 2)
    even = torch.ones(1, 1, 3, 3).tril()
    even = even / even.sum(dim=-1, keepdim=True)
    assert head_scores([even], TARGET).item() == pytest.approx(uniform_score(TARGET))


def test_a_target_without_a_key_is_refused() -> None:
    message = "^target has no key for any query: there is nothing to score$"
    for score in (lambda t: head_scores(WEIGHTS, t), uniform_score):
        with pytest.raises(ValueError, match=message):
            score(torch.zeros(1, 3, 3, dtype=torch.bool))


def test_layers_that_lost_heads_are_scored_one_at_a_time() -> None:
    pruned = [WEIGHTS[0], WEIGHTS[0][:, :1]]
    counts = [WEIGHTS[0].shape[1], 1]
    assert counts[0] > 1
    message = re.escape(f"weights are of layers with {counts} heads")
    with pytest.raises(ValueError, match=f"^{message}.*one layer at a time"):
        head_scores(pruned, TARGET)
    assert head_scores(pruned[1:], TARGET).shape == (1, 1)
