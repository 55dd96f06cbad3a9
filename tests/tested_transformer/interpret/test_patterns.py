"""What is recorded is what the pass computed; scores and targets worked by hand."""

import re
from functools import partial

import pytest
import torch

from tested_transformer import merge_heads
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interpret import (
    delimiter_target,
    first_token_target,
    head_scores,
    induction_target,
    previous_token_target,
    record_heads,
    repeated_tokens,
    same_token_target,
    uniform_score,
)
from tested_transformer.surgery import prune_heads

CONFIG = GPTConfig(vocab_size=13, max_seq_len=11, d_model=15, num_heads=3, num_layers=2)


def test_weights_and_outputs_are_those_of_the_pass() -> None:
    model = GPT(CONFIG).eval()
    caught: list[torch.Tensor] = []
    o_proj = model.blocks[1].attention.o_proj
    hook = o_proj.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    tokens = torch.randint(13, (2, 7))
    recording = record_heads(model, tokens)
    hook.remove()
    assert [tuple(output.shape) for output in recording.outputs] == [(2, 3, 7, 5)] * 2
    assert [tuple(weights.shape) for weights in recording.weights] == [(2, 3, 7, 7)] * 2
    (merged,) = caught
    assert torch.equal(merge_heads(recording.outputs[1]), merged)
    logits, weights = model(tokens, return_weights=True)
    assert torch.equal(recording.logits, logits)
    assert all(map(torch.equal, recording.weights, weights))
    assert not recording.logits.requires_grad
    assert not o_proj._forward_pre_hooks


def test_layers_may_have_different_numbers_of_heads() -> None:
    model = prune_heads(GPT(CONFIG).eval(), [(0, 1)])
    outputs = record_heads(model, torch.randint(13, (2, 7))).outputs
    assert [tuple(output.shape) for output in outputs] == [(2, 2, 7, 5), (2, 3, 7, 5)]


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
    two = [weights.repeat(2, 1, 1, 1) for weights in WEIGHTS]
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
    message = re.escape(
        f"weights must have equally many heads in each layer; they have {counts}"
    )
    with pytest.raises(ValueError, match=f"^{message}. Score one layer at a time"):
        head_scores(pruned, TARGET)
    assert head_scores(pruned[1:], TARGET).shape == (1, 1)


def test_all_is_computed_where_the_tokens_and_targets_are() -> None:
    # What is made without being told where would land on the default device.
    with torch.device("meta"):
        assert uniform_score(TARGET) == pytest.approx((1 / 2 + 2 / 3) / 2)
        assert head_scores(WEIGHTS, TARGET).device.type == "cpu"
        for target in (
            previous_token_target,
            first_token_target,
            same_token_target,
            induction_target,
            partial(delimiter_target, delimiters={8, 3}),
        ):
            assert target(TOKENS).device.type == "cpu"


TOKENS = torch.tensor([[5, 8, 5, 5, 3], [1, 2, 3, 1, 2]])


def keys(target: torch.Tensor) -> list[list[list[int]]]:
    return [[row.nonzero().flatten().tolist() for row in matrix] for matrix in target]


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
    expected = [[]] * 5 + [[key] for key in range(1, 6)]
    assert keys(induction_target(tokens))[0] == expected
    assert torch.equal(tokens, repeated_tokens(11, 5, num_sequences=3, seed=7))
    assert not torch.equal(tokens, repeated_tokens(11, 5, num_sequences=3, seed=8))


def test_more_tokens_than_there_are_cannot_be_drawn() -> None:
    message = "^length=12 must lie between 1 and vocab_size=11$"
    with pytest.raises(ValueError, match=message):
        repeated_tokens(11, 12)
