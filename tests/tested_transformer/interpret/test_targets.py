"""Targets worked by hand."""

import pytest
import torch

from tested_transformer.interpret import (
    delimiter_target,
    first_token_target,
    induction_target,
    previous_token_target,
    repeated_tokens,
    same_token_target,
)

TOKENS = torch.tensor([[5, 8, 5, 5, 3], [1, 2, 3, 1, 2]])


def keys(target: torch.Tensor) -> list[list[list[int]]]:
    return [[row.nonzero().flatten().tolist() for row in each] for each in target]


def test_places_are_the_same_for_all_tokens() -> None:
    assert keys(previous_token_target(TOKENS)) == [[[], [0], [1], [2], [3]]] * 2
    assert keys(first_token_target(TOKENS)) == [[[], [0], [0], [0], [0]]] * 2


def test_kinds_go_by_the_tokens() -> None:
    assert keys(same_token_target(TOKENS)) == [
        [[], [], [0], [0, 2], []],
        [[], [], [], [0], [1]],
    ]
    # After the first 5 came 8, after the second the query itself, which does not count.
    assert keys(induction_target(TOKENS)) == [
        [[], [], [1], [1], []],
        [[], [], [], [1], [2]],
    ]
    assert keys(delimiter_target(TOKENS, {8, 3})) == [
        [[], [], [1], [1], [1]],
        [[], [], [], [2], [2]],
    ]


def test_repeated_tokens_have_one_answer_each() -> None:
    tokens = repeated_tokens(11, 5, num_sequences=3, seed=7)
    assert tokens.shape == (3, 10)
    assert torch.equal(tokens[:, :5], tokens[:, 5:])
    assert all(len(set(row.tolist())) == 5 for row in tokens)
    assert len({tuple(row.tolist()) for row in tokens}) == 3
    assert int(tokens.max()) < 11
    wanted = [[]] * 5 + [[key] for key in range(1, 6)]
    assert keys(induction_target(tokens))[0] == wanted
    assert torch.equal(tokens, repeated_tokens(11, 5, num_sequences=3, seed=7))
    assert not torch.equal(tokens, repeated_tokens(11, 5, num_sequences=3, seed=8))


@pytest.mark.parametrize("length", [0, 12])
def test_more_tokens_than_there_are_cannot_be_drawn(length: int) -> None:
    message = f"^length={length} must lie between 1 and vocab_size=11$"
    with pytest.raises(ValueError, match=message):
        repeated_tokens(11, length)
