"""Speculative decoding: the target's own distribution, by enumeration and by draws."""

import pytest

from tested_transformer.decoding import (
    ModelDrafter,
    NgramDrafter,
    RandomSource,
    Sampling,
    Speculation,
    generate,
    speculate,
    stream_speculation,
)


def test_without_a_draft_it_draws_what_generate_draws(make):
    model, sampling = make(), Sampling(temperature=1.3, top_p=0.9)
    (expected,) = generate(model, [[3, 1]], max_new_tokens=9, sampling=sampling, seed=5)
    written = speculate(
        model,
        [3, 1],
        NgramDrafter(11),
        max_new_tokens=9,
        num_drafted=0,
        probabilities=sampling.probabilities,
        rng=RandomSource(5),
    )
    assert written.tokens == expected
    assert written.tokens_per_call == 1.0
    assert written.acceptance == 0.0


def test_acceptance_counts_verified_drafts_alone(make):
    written = Speculation(tokens=[0] * 9, drafted=[4, 4, 0, 2], accepted=[3, 0, 0, 2])
    assert (written.tokens_per_call, written.acceptance) == (9 / 4, 5 / 7)
    nothing = Speculation(tokens=[], drafted=[], accepted=[])
    assert (nothing.tokens_per_call, nothing.acceptance) == (0.0, 0.0)
    # A draft from the model itself always stays, without its dropout.
    model = make(dropout=0.5).train()
    written = speculate(
        model, [3, 1], ModelDrafter(model), max_new_tokens=20, rng=RandomSource(0)
    )
    assert written.accepted == [4, 4, 4, 4]
    assert (written.tokens_per_call, written.acceptance) == (5, 1)
    assert model.blocks[0].dropout.training


def test_steps_come_one_by_one(make):
    model, how = make(), {"max_new_tokens": 11, "num_drafted": 3}
    drafter = ModelDrafter(make(1))
    full = speculate(model, [1, 0], drafter, rng=RandomSource(4), **how)
    steps = stream_speculation(model, [1, 0], drafter, rng=RandomSource(4), **how)
    first = next(steps)
    assert first.tokens == full.tokens[: full.accepted[0] + 1]
    rest = [*steps]
    assert [t for step in (first, *rest) for t in step.tokens] == full.tokens
    assert [step.num_drafted for step in (first, *rest)] == full.drafted


def test_arguments_that_do_not_fit_are_refused_at_once(make, as_a_caller):
    for changes, error, message in (
        ({"prompt": []}, ValueError, "prompt is empty"),
        ({"max_new_tokens": -1}, ValueError, "max_new_tokens=-1 must not be negative"),
        ({"max_new_tokens": 24}, ValueError, "are more than max_seq_len=24"),
        ({"num_drafted": -1}, ValueError, "num_drafted=-1 must not be negative"),
        ({"drafter": None}, TypeError, "drafter must be a Drafter; it is a NoneType"),
        (
            {"probabilities": Sampling()},
            TypeError,
            "must be a function; it is a Sampli",
        ),
    ):
        settings = {"prompt": [1], "drafter": NgramDrafter(11), "max_new_tokens": 2}
        with pytest.raises(error, match=message):
            stream_speculation(make(), **settings | changes)
