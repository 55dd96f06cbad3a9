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


def own_distribution(model, prompt, length):
    """Return the probability of each text of some tokens after a prompt: the oracle."""
    written = {}
    for text in product(range(V), repeat=length):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *text]]))[0, len(prompt) - 1 : -1]
        rows = logits.softmax(dim=-1)
        written[text] = math.prod(rows[i, t].item() for i, t in enumerate(text))
    return written


def two_likeliest(logits):
    kept = logits >= logits.topk(2, dim=-1).values[:, -1:]
    return logits.masked_fill(~kept, -torch.inf).softmax(dim=-1)


DRAFTERS = {
    "another model": lambda make: ModelDrafter(make(1, vocab_size=V)),
    "the model itself": lambda make: ModelDrafter(make(0, vocab_size=V)),
    "one that cuts a tail off": lambda make: ModelDrafter(
        make(1, vocab_size=V), probabilities=two_likeliest
    ),
    "n-grams": lambda make: NgramDrafter(V, longest=2),
}


@pytest.mark.parametrize("num_drafted", [1, 2])
@pytest.mark.parametrize("name", DRAFTERS)
def test_every_text_has_the_targets_probability(name, num_drafted, make):
    model, prompt, length = make(vocab_size=V), [1, 0, 1], 3
    drafter = DRAFTERS[name](make)

    def run(rng):
        how = {"max_new_tokens": length, "num_drafted": num_drafted}
        written = speculate(model, prompt, drafter, rng=rng, **how)
        return (*written.tokens,)

    written = every_outcome(run)
    expected = own_distribution(model, prompt, length)
    assert sum(written.values()) == pytest.approx(1, abs=1e-12)
    for text, probability in expected.items():
        assert written.get(text, 0.0) == pytest.approx(probability, abs=1e-9)


@pytest.mark.nightly
def test_draws_are_the_targets_own_by_chi_square(make):
    """A right program fails this once in a million seeds: 8 degrees, limit 42.70."""
    model, prompt, count = make(vocab_size=V), [1, 0, 1], 500
    drafter = ModelDrafter(make(1, vocab_size=V))
    expected = own_distribution(model, prompt, 2)
    counts = dict.fromkeys(expected, 0)
    for seed in range(count):
        how = {"max_new_tokens": 2, "num_drafted": 2, "rng": RandomSource(seed)}
        counts[(*speculate(model, prompt, drafter, **how).tokens,)] += 1
    statistic = sum(
        (counts[text] - count * p) ** 2 / (count * p) for text, p in expected.items()
    )
    half = 42.70 / 2
    tail = math.exp(-half) * sum(half**i / math.factorial(i) for i in range(4))
    assert tail == pytest.approx(1e-6, rel=0.02)
    assert statistic < 42.70


KINDS = [
    {},
    {"positions": "rotary", "num_kv_heads": 1, "qk_norm": True},
    {"positions": "alibi", "smear": True},
    {"windows": 5},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("num_drafted", [1, 3, 7])
def test_greedily_it_writes_what_generate_writes(kind, num_drafted, make):
    model = make(**kind)
    prompt, greedy = [3, 1, 4, 1, 5, 3, 1], Sampling(temperature=0.0)
    (expected,) = generate(model, [prompt], max_new_tokens=17, sampling=greedy)
    drafters = {
        "model": ModelDrafter(
            make(sharp=0.9, **kind),
            probabilities=greedy.probabilities,
        ),
        "n-grams": NgramDrafter(11),
    }
    for drafter in drafters.values():
        written = speculate(
            model,
            prompt,
            drafter,
            max_new_tokens=17,
            num_drafted=num_drafted,
            probabilities=greedy.probabilities,
        )
        assert written.tokens == expected
        assert sum(written.accepted) + len(written.accepted) == 17
        assert all(
            a <= d for a, d in zip(written.accepted, written.drafted, strict=True)
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


def test_a_draft_from_the_model_itself_always_stays(make):
    model = make()
    written = speculate(
        model, [3, 1], ModelDrafter(model), max_new_tokens=20, rng=RandomSource(0)
    )
    assert written.accepted == [4, 4, 4, 4]
    assert written.tokens_per_call == 5
    assert written.acceptance == 1


def test_dropout_is_off_and_comes_back(make):
    model = make(dropout=0.5)
    expected = speculate(
        model, [3, 1], NgramDrafter(11), max_new_tokens=9, rng=RandomSource(1)
    )
    model.train()
    written = speculate(
        model, [3, 1], NgramDrafter(11), max_new_tokens=9, rng=RandomSource(1)
    )
    assert written == expected
    assert model.training
    assert model.blocks[0].dropout.training


def test_acceptance_counts_verified_drafts_alone():
    written = Speculation(tokens=[0] * 9, drafted=[4, 4, 0, 2], accepted=[3, 0, 0, 2])
    assert written.tokens_per_call == 9 / 4
    assert written.acceptance == 5 / 7


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


def test_nothing_written_is_no_token_a_pass(make):
    written = speculate(make(), [1], NgramDrafter(11), max_new_tokens=0)
    assert (written.tokens, written.tokens_per_call, written.acceptance) == (
        [],
        0.0,
        0.0,
    )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
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
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused(
    changes, error, message, make, as_a_caller
):
    settings = {"prompt": [1], "drafter": NgramDrafter(11), "max_new_tokens": 2}
    with pytest.raises(error, match=message):
        stream_speculation(make(), **settings | changes)
