"""Whatever a drafter guesses, the texts are the model's; and what each one guesses."""

import math
from itertools import product

import pytest
import torch

from tested_transformer.attentions import ChosenKeys, Latent
from tested_transformer.decoding import (
    ChainDrafter,
    ChainedGPT,
    HeadDrafter,
    ModelDrafter,
    MultiTokenGPT,
    NgramDrafter,
    RandomSource,
    Sampling,
    TreeDrafter,
    generate,
    speculate,
)
from transformer_book.outcomes import every_outcome

V = 11


def with_heads(kind, model):
    """Return a model with two further heads, which guess otherwise than its own."""
    heads = kind(model, num_tokens=3).eval()
    with torch.no_grad():
        for parameter in heads.further.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return heads


# Each is made for a model, with a smaller one at hand.
DRAFTERS = {
    "n-grams": lambda model, small, **how: NgramDrafter(model.config.vocab_size),
    "a model": lambda model, small, **how: ModelDrafter(small, **how),
    "a tree": lambda model, small, **how: TreeDrafter(small, (2, 1), **how),
    "the likeliest": lambda model, small, **how: TreeDrafter(
        small, (2, 2), likeliest=True, **how
    ),
    "heads": lambda model, small, **how: HeadDrafter(
        with_heads(MultiTokenGPT, model), **how
    ),
    "chained heads": lambda model, small, **how: ChainDrafter(
        with_heads(ChainedGPT, model), **how
    ),
}


def two_likeliest(logits):
    kept = logits >= logits.topk(2, dim=-1).values[:, -1:]
    return logits.masked_fill(~kept, -torch.inf).softmax(dim=-1)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        # A tree drawn from three tokens has too many outcomes.
        *((name, {}) for name in DRAFTERS if name != "a tree"),
        *product(["a model", "a tree"], [{"probabilities": two_likeliest}]),
    ],
)
def test_every_text_has_the_models_probability(name, how, make):
    model, prompt, length, size = make(vocab_size=3), [1, 0, 1], 3, 3
    drafter = DRAFTERS[name](model, make(1, vocab_size=3), **how)

    def run(rng):
        settings = {"max_new_tokens": length, "num_drafted": 2, "rng": rng}
        return (*speculate(model, prompt, drafter, **settings).tokens,)

    outcomes = every_outcome(run)
    assert sum(outcomes.values()) == pytest.approx(1, abs=1e-12)
    for text in product(range(size), repeat=length):
        with torch.no_grad():
            rows = model(torch.tensor([[*prompt, *text]]))[0, 2:-1].softmax(dim=-1)
        expected = math.prod(rows[i, token].item() for i, token in enumerate(text))
        assert outcomes.get(text, 0.0) == pytest.approx(expected, abs=1e-9)


ANY = [
    {},
    {"positions": "rotary", "num_kv_heads": 1, "qk_norm": True},
    {"attention": Latent(latent_dim=7), "positions": "rotary"},
    {"attention": ChosenKeys(keys_per_query=3), "positions": "rotary"},
]
# Where a token lies in the cache counts, so they cannot read trees.
IN_A_ROW = [{"positions": "alibi", "smear": True}, {"windows": 5, "tie_head": False}]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *product(["a tree", "the likeliest"], ANY),
        *product(["a model", "heads", "chained heads"], [ANY[1], *IN_A_ROW]),
        ("n-grams", IN_A_ROW[0]),
    ],
)
def test_greedily_it_writes_what_generate_writes(name, kind, make):
    model, prompt = make(**kind), [3, 1, 4, 1, 5, 3, 1]
    greedy = Sampling(temperature=0.0)
    (expected,) = generate(model, [prompt], max_new_tokens=17, sampling=greedy)
    how = {"probabilities": greedy.probabilities}
    drafter = DRAFTERS[name](model, make(sharp=0.9, **kind), **how)
    for num_drafted in (1, 7):
        sizes = {"max_new_tokens": 17, "num_drafted": num_drafted}
        written = speculate(model, prompt, drafter, **sizes, **how)
        assert written.tokens == expected
        assert sum(written.accepted) + len(written.accepted) == 17
        pairs = zip(written.accepted, written.drafted, strict=True)
        assert all(accepted <= drafted for accepted, drafted in pairs)
        if "heads" in name:  # which have read nothing at first
            assert written.drafted[0] == 0
            assert max(written.drafted) == min(num_drafted, 2)


def test_n_grams_are_looked_up_as_transformers_does():
    from transformers.generation import candidate_generator

    for longest in (1, 2, 3):
        theirs = candidate_generator.PromptLookupCandidateGenerator(
            num_output_tokens=5, max_matching_ngram_size=longest, max_length=99
        )
        ours = NgramDrafter(4, longest=longest)
        for length in range(2, 30):
            text = torch.randint(4, (1, length))
            candidates, _ = theirs.get_candidates(text)
            draft = ours.draft(text[0].tolist(), 5, RandomSource(0))
            assert draft.tokens == candidates[0, length:].tolist()
            assert draft.probabilities.argmax(-1).tolist() == draft.tokens
            assert draft.probabilities.sum(-1).eq(1).all()


def test_a_drafter_for_another_model_is_refused(make):
    foreign_heads = "the drafter's heads are on another model: pass its gpt"
    has = "the drafter's model has"
    for drafter, message in (
        (NgramDrafter(V + 1), "the drafter has vocab_size=12; it must be that of "),
        (ModelDrafter(make(vocab_size=V + 1)), f"{has} vocab_size=12; it"),
        (ModelDrafter(make(max_seq_len=23)), f"{has} max_seq_len=23; it "),
        (DRAFTERS["heads"](make(), None), foreign_heads),
        (DRAFTERS["chained heads"](make(), None), foreign_heads),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            speculate(make(), [1], drafter, max_new_tokens=2)
    with pytest.raises(ValueError, match="shortest=3 must lie between 1 and longest=2"):
        NgramDrafter(V, longest=2, shortest=3)
    with pytest.raises(ValueError, match="vocab_size=0 must be positive"):
        NgramDrafter(0)
