"""Prompts and stop sequences: which are refused, and what each refusal says."""

import re

import numpy
import pytest
import torch

from tested_transformer.decoding.prompts import (
    checked_prompt,
    checked_prompts,
    checked_stops,
    validate_count,
    validate_length,
)
from tested_transformer.gpt import GPTConfig

V = 13


@pytest.mark.usefixtures("as_a_caller")
def test_token_ids_are_any_kind_of_integers():
    for prompt in ((3, 0, 12), iter([3, 0, 12]), numpy.array([3, 0, 12])):
        assert checked_prompt(prompt, V) == [3, 0, 12]
    tensor = torch.tensor([[3, 0, 12], [1, 2, 4]])
    assert checked_prompt(tensor[0], V) == [3, 0, 12]
    assert checked_prompts(tensor, V) == tensor.tolist()
    assert checked_prompts((iter(row) for row in tensor), V) == tensor.tolist()
    stops = checked_stops(iter([tensor[0], [5]]))
    assert stops == [(3, 0, 12), (5,)]
    assert {type(token) for stop in stops for token in stop} == {int}


LIST = "must be a list of token ids; it is"
RANGE = "tokens must be at least 0 and less than vocab_size=13"


@pytest.mark.usefixtures("as_a_caller")
def test_what_is_no_prompt_or_stop_is_named():
    bools, row = torch.ones(2).bool(), torch.tensor([1, 2])
    for check, wrong, error, message in (
        (checked_prompt, [], ValueError, "prompt is empty: it needs at least one tok"),
        (checked_prompt, [1, V], ValueError, f"prompt holds 13; {RANGE}"),
        (checked_prompt, [-1], ValueError, f"prompt holds -1; {RANGE}"),
        (checked_prompt, "ab", TypeError, f"prompt {LIST} 'ab': for text write tokeni"),
        (checked_prompt, [[1, 2]], TypeError, f"prompt {LIST} [[1, 2]]"),
        (checked_prompt, [1.5], TypeError, f"prompt {LIST} [1.5]"),
        (checked_prompt, bools, TypeError, f"prompt {LIST} tensor([True, True])"),
        (checked_prompts, [], ValueError, "prompts is empty: pass at least one prompt"),
        (checked_prompts, [[1], []], ValueError, "prompts[1] is empty: it needs at "),
        (checked_prompts, [1], TypeError, f"prompts[0] {LIST} 1: for one sequence wri"),
        (checked_prompts, "ab", TypeError, "prompts must be a list of prompts; it is "),
        (checked_prompts, row, ValueError, "prompts must be token ids of shape (B, T"),
        (checked_stops, "ab", TypeError, "stop must be a list of sequences of token i"),
        (checked_stops, [1], TypeError, f"stop[0] {LIST} 1: for one sequence write [s"),
    ):
        sizes = () if check is checked_stops else (V,)
        with pytest.raises(error, match=f"^{re.escape(message)}"):
            check(wrong, *sizes)


@pytest.mark.usefixtures("as_a_caller")
def test_a_count_is_an_int_and_not_negative():
    validate_count(num_drafted=0)
    with pytest.raises(ValueError, match=r"^num_drafted=-1 must not be negative$"):
        validate_count(num_drafted=-1)
    with pytest.raises(TypeError, match=r"^max_new_tokens=2\.0 must be an int$"):
        validate_count(max_new_tokens=2.0)


def test_prompt_and_answer_fill_the_context_at_most():
    config = GPTConfig(vocab_size=V, max_seq_len=7)
    validate_length(config, [1, 2], 5)
    for length, hint in ((2, "write at most 5"), (8, "shorten the prompt")):
        message = (
            f"{length} tokens of prompt and max_new_tokens=6 are more than "
            f"max_seq_len=7: {hint}"
        )
        with pytest.raises(ValueError, match=f"^{message}$"):
            validate_length(config, [1] * length, 6)
