"""Eviction by masks, compared with caches from which keys are really dropped."""

import pytest
import torch
from torch import Tensor

from tested_transformer import attention_with_weights
from transformer_book.eviction import RULES, SINKS, Evicting, kept_keys

B, H, T, D = 2, 3, 13, 5


def drop_keys(
    q: Tensor, k: Tensor, v: Tensor, rule: str, count: int, start: int
) -> tuple[Tensor, list[list[int]]]:
    """Read token by token with a cache that is a list of one head, and drop keys."""
    cache, totals, outputs, held = list[int](), dict[int, float](), [], []
    for t in range(len(q)):
        cache.append(t)
        totals[t] = 0.0
        while t >= start and len(cache) > count:
            recent = count // 2 if rule == "heavy hitters and recent" else 1
            may_go = cache[:-recent]
            if rule == "sinks and recent":
                goes = next(s for s in cache if s >= SINKS)
            else:
                # A key that came at s has been read by t - s queries before this one.
                ages = {s: t - s if rule == "mean weights" else 1 for s in may_go}
                goes = min(may_go, key=lambda s: totals[s] / ages[s])
            cache.remove(goes)
        output, weights = attention_with_weights(q[t : t + 1], k[cache], v[cache])
        for s, weight in zip(cache, weights[0].tolist(), strict=True):
            totals[s] += weight
        outputs.append(output)
        held.append([*cache])
    return torch.cat(outputs), held


@pytest.mark.parametrize("start", [0, 9])
@pytest.mark.parametrize("rule", RULES[:4])
def test_masks_equal_keys_that_are_really_dropped(rule, start):
    q, k, v = torch.randn(3, B, H, T, D, dtype=torch.float64)
    attend = Evicting(rule=rule, count=6, start=start)._attend
    outputs, weights = attend(q, k, v, q[:, 0], in_the_open=True, causal=True)
    for b in range(B):
        for h in range(H):
            expected, held = drop_keys(q[b, h], k[b, h], v[b, h], rule, 6, start)
            torch.testing.assert_close(outputs[b, h], expected)
            read = [row.nonzero().flatten().tolist() for row in weights[b, h]]
            assert read == held


@pytest.mark.parametrize("rule", RULES)
def test_each_query_reads_as_many_keys_as_it_may_and_its_own(rule):
    kept = kept_keys(torch.randn(B, H, T, T), rule=rule, count=6)
    assert kept.sum(dim=-1).eq((torch.arange(T) + 1).clamp(max=6)).all()
    assert kept.diagonal(dim1=2, dim2=3).all()
    assert not kept.triu(1).any()


@pytest.mark.parametrize("rule", RULES[:-1])
def test_an_evicted_key_never_comes_back(rule):
    kept = kept_keys(torch.randn(B, H, T, T), rule=rule, count=6)
    back = kept[:, :, 1:] & ~kept[:, :, :-1]
    assert not (back & torch.ones(T - 1, T).tril().bool()).any()


def test_the_best_afterwards_are_those_with_the_largest_scores():
    scores = torch.randn(1, 1, T, T)
    kept = kept_keys(scores, rule="best afterwards", count=6)
    for t in range(6, T):
        best = {*scores[0, 0, t, :t].topk(5).indices.tolist(), t}
        assert {*kept[0, 0, t].nonzero().flatten().tolist()} == best


def test_random_keys_differ_between_heads_unless_alike_and_keep_no_age():
    alike = kept_keys(torch.zeros(400, 2, T, T), rule="random, alike", count=6)
    assert torch.equal(alike[:, 0], alike[:, 1])
    assert (alike[0] != alike[1]).any()
    kept = kept_keys(torch.zeros(400, 2, T, T), rule="random", count=6)[:, :, -1]
    assert (kept[:, 0] != kept[:, 1]).any()
    shares = kept[..., :-1].float().mean(dim=(0, 1))
    assert (shares - 5 / 12).abs().max() < 0.08


def test_what_does_not_fit():
    scores = torch.randn(B, H, T, T)
    with pytest.raises(ValueError, match=r"^start=-1 must not be negative$"):
        kept_keys(scores, rule="random", count=6, start=-1)
    with pytest.raises(ValueError, match="rule='oldest'"):
        kept_keys(scores, rule="oldest", count=6)
    with pytest.raises(ValueError, match="count=0"):
        kept_keys(scores, rule="random", count=0)
