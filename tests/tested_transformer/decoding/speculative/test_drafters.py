"""Drafters: what they propose, and which models they do not fit."""

import pytest
import torch

from tested_transformer.decoding import (
    ModelDrafter,
    NgramDrafter,
    RandomSource,
    speculate,
)

V = 11


def test_n_grams_are_looked_up_as_transformers_does():
    from transformers.generation.candidate_generator import (
        PromptLookupCandidateGenerator,
    )

    generator = torch.Generator().manual_seed(0)
    for longest in (1, 2, 3):
        theirs = PromptLookupCandidateGenerator(
            num_output_tokens=5, max_matching_ngram_size=longest, max_length=99
        )
        ours = NgramDrafter(4, longest=longest)
        for length in range(2, 30):
            text = torch.randint(4, (1, length), generator=generator)
            found, _ = theirs.get_candidates(text)
            draft = ours.draft(text[0].tolist(), 5, RandomSource(0))
            assert draft.tokens == found[0, length:].tolist()
            assert draft.probabilities.argmax(-1).tolist() == draft.tokens
            assert draft.probabilities.sum(-1).eq(1).all()


def test_a_drafter_for_another_model_is_refused(make):
    for drafter, message in (
        (
            NgramDrafter(V + 1),
            "drafter has vocab_size=12; it must be that of ",
        ),
        (ModelDrafter(make(vocab_size=V + 1)), "drafter's model has vocab_size=12; it"),
        (ModelDrafter(make(max_seq_len=23)), "drafter's model has max_seq_len=23; it "),
    ):
        with pytest.raises(ValueError, match=f"^the {message}"):
            speculate(make(), [1], drafter, max_new_tokens=2)


def test_lengths_of_n_grams_are_positive_and_in_order():
    with pytest.raises(ValueError, match="shortest=3 must lie between 1 and longest=2"):
        NgramDrafter(V, longest=2, shortest=3)
    with pytest.raises(ValueError, match="vocab_size=0 must be positive"):
        NgramDrafter(0)
