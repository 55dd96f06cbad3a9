"""Which drafted tokens stay: by enumeration and by hand; trees are in test_drafters."""

from itertools import product

import pytest
import torch

from tested_transformer.decoding import (
    RandomSource,
    expected_tokens,
    left_over,
    verify,
)
from transformer_book.outcomes import every_outcome

V = 3


@pytest.mark.parametrize("k", [0, 1, 2, 4])
def test_verify_alone_gives_the_targets_distribution(k):
    # Rows that depend on the place alone, with zeros on either side.
    generator = torch.Generator().manual_seed(0)
    draft, target = torch.rand(2, k + 1, V, generator=generator, dtype=torch.float64)
    draft[0, 2], target[0, 0] = 0, 0
    draft = draft[:k] / draft[:k].sum(-1, keepdim=True)
    target = target / target.sum(-1, keepdim=True)

    def run(rng):
        drafted = [rng.draw(row) for row in draft]
        return (*verify(drafted, draft, target, rng),)

    outcomes = every_outcome(run)
    for place in range(k + 1):
        reached = {o: p for o, p in outcomes.items() if len(o) > place}
        for token in range(V):
            share = sum(p for o, p in reached.items() if o[place] == token)
            expected = target[place, token].item() * sum(reached.values())
            assert share == pytest.approx(expected, abs=1e-12)


def test_it_accepts_the_overlap_of_both_distributions():
    p, q = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]], dtype=torch.float64)

    def run(rng):
        return len(verify([rng.draw(q)], q[None], torch.stack([p, p]), rng))

    result = every_outcome(run)
    assert result[2] == pytest.approx(0.1 + 0.3 + 0.2)
    rest = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(left_over(p, q), rest)
    torch.testing.assert_close(left_over(p, p), p)


def test_the_formula_counts_what_a_fair_game_gives():
    for acceptance, k in product((0.0, 0.3, 0.8, 1.0), (0, 1, 3)):
        p = torch.tensor([acceptance, 1 - acceptance], dtype=torch.float64)
        q = torch.tensor([1.0, 0.0], dtype=torch.float64)

        def run(rng, p=p, q=q, k=k):
            return len(verify([0] * k, q.expand(k, 2), p.expand(k + 1, 2), rng))

        mean = sum(length * share for length, share in every_outcome(run).items())
        assert expected_tokens(acceptance, k) == pytest.approx(mean)


def test_what_does_not_fit_is_refused(as_a_caller):
    one, two = torch.tensor([[1.0, 0.0, 0.0]]), torch.full((2, 3), 1 / 3)
    few = "1 drafted tokens need as many rows of draft and one more row of target; "
    for call, message in (
        (
            lambda rng: verify([1], one, two, rng),
            r"drafted\[0\]=1 has no probability in",
        ),
        (lambda rng: verify([0], one, one, rng), f"{few}they have 1 and 1$"),
        (
            lambda rng: expected_tokens(1.5, 2),
            r"acceptance=1\.5 must lie between 0 and ",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            call(RandomSource(0))
