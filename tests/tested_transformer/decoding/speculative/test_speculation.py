"""Speculative decoding: the target's own distribution, by enumeration and by draws."""

import math
from itertools import product

import pytest
import torch

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
from transformer_book.outcomes import every_outcome

V = 3


def two_likeliest(logits):
    kept = logits >= logits.topk(2, dim=-1).values[:, -1:]
    return logits.masked_fill(~kept, -torch.inf).softmax(dim=-1)


@pytest.mark.parametrize("num_drafted", [1, 2])
def test_every_text_has_the_targets_probability(num_drafted, make):
    model, prompt, length = make(vocab_size=V), [1, 0, 1], 3
    expected = {}
    for text in product(range(V), repeat=length):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *text]]))[0, len(prompt) - 1 : -1]
        rows = logits.softmax(dim=-1)
        expected[text] = math.prod(rows[i, t].item() for i, t in enumerate(text))
    for drafter in (
        ModelDrafter(make(1, vocab_size=V)),
        ModelDrafter(make(1, vocab_size=V), probabilities=two_likeliest),
        NgramDrafter(V, longest=2),
    ):

        def run(rng, drafter=drafter):
            how = {"max_new_tokens": length, "num_drafted": num_drafted}
            written = speculate(model, prompt, drafter, rng=rng, **how)
            return (*written.tokens,)

        written = every_outcome(run)
        assert sum(written.values()) == pytest.approx(1, abs=1e-12)
        for text, probability in expected.items():
            assert written.get(text, 0.0) == pytest.approx(probability, abs=1e-9)


@pytest.mark.parametrize(
    "kind",
    [
        {"positions": "rotary", "num_kv_heads": 1, "qk_norm": True},
        {"positions": "alibi", "smear": True},
        {"windows": 5},
    ],
    ids=str,
)
def test_greedily_it_writes_what_generate_writes(kind, make):
    model = make(**kind)
    prompt, greedy = [3, 1, 4, 1, 5, 3, 1], Sampling(temperature=0.0)
    (expected,) = generate(model, [prompt], max_new_tokens=17, sampling=greedy)
    likely = greedy.probabilities
    alike = ModelDrafter(make(sharp=0.9, **kind), probabilities=likely)
    for drafter, num_drafted in ((alike, 3), (NgramDrafter(11), 1), (alike, 7)):
        written = speculate(
            model,
            prompt,
            drafter,
            max_new_tokens=17,
            num_drafted=num_drafted,
            probabilities=likely,
        )
        assert written.tokens == expected
        assert sum(written.accepted) + len(written.accepted) == 17
        pairs = zip(written.accepted, written.drafted, strict=True)
        assert all(accepted <= drafted for accepted, drafted in pairs)


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


def test_steps_come_one_by_one_and_mistakes_at_once(make):
    model, how = make(), {"max_new_tokens": 11, "num_drafted": 3}
    drafter = ModelDrafter(make(1))
    whole = speculate(model, [1, 0], drafter, rng=RandomSource(4), **how)
    steps = stream_speculation(model, [1, 0], drafter, rng=RandomSource(4), **how)
    first = next(steps)
    assert first.tokens == whole.tokens[: whole.accepted[0] + 1]
    rest = [*steps]
    assert [t for step in (first, *rest) for t in step.tokens] == whole.tokens
    assert [step.num_drafted for step in (first, *rest)] == whole.drafted
    with pytest.raises(ValueError, match="prompt is empty"):
        stream_speculation(
            model, [], drafter, **how
        )  # not asked for a single token yet


def test_arguments_that_do_not_fit_are_refused(make, as_a_caller):
    for changes, error, message in (
        ({"prompt": [1, -2]}, ValueError, "prompt holds -2; tokens must be at least 0"),
        ({"max_new_tokens": -1}, ValueError, "max_new_tokens=-1 must not be negative"),
        ({"max_new_tokens": 24}, ValueError, "are more than max_seq_len=24"),
        ({"num_drafted": -1}, ValueError, "num_drafted=-1 must not be negative"),
        ({"drafter": None}, TypeError, "drafter must be a Drafter; it is a NoneType"),
        (
            {"probabilities": Sampling()},
            TypeError,
            "probabilities must be a function; it is a Sampling: for a Sampling write",
        ),
    ):
        settings = {"prompt": [1], "drafter": NgramDrafter(11), "max_new_tokens": 2}
        with pytest.raises(error, match=message):
            stream_speculation(make(), **settings | changes)
