"""The shortest sequence that shows a mistake, checked by asking for it again."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.checking import (
    EXHIBITS,
    ExchangeableAttention,
    Exhibit,
    Steps,
    check_attention,
)
from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.counterexample import find_counterexample
from tested_transformer.checking.subject import Subject
from tested_transformer.masks import causal_mask

pytestmark = pytest.mark.usefixtures("as_a_caller")


def subject_of(exhibit: Exhibit | None) -> Subject:
    steps = Steps() if exhibit is None else exhibit.steps
    layer = ExchangeableAttention(d_model=20, num_heads=5, steps=steps)
    return make_subject(layer).without_dropout()


def test_what_is_right_has_none() -> None:
    assert find_counterexample(subject_of(None)) is None


# In one token alone there is no other to be confused with, and it has a weight of 1.
LENGTHS = {
    "one-too-far": 2,
    "no-causal-mask": 2,
    "no-scale": 2,
    "softmax-twice": 2,
    "keys-for-values": 1,
    "without-itself": 1,
    "inverted-mask": 1,
}


@pytest.mark.parametrize("name", LENGTHS)
def test_no_shorter_sequence_shows_it(name: str) -> None:
    subject = subject_of(EXHIBITS[name])
    found = find_counterexample(subject)
    assert found is not None
    assert found.x.shape == (1, LENGTHS[name], 20)
    got = subject.run(found.x, causal=found.way == "causal")
    assert got[0, found.token, found.feature].item() == found.came
    (right,) = subject.oracles()
    wanted = right(found.x, causal=found.way == "causal")
    assert wanted[0, found.token, found.feature].item() == pytest.approx(found.wanted)
    assert abs(found.came - found.wanted) > 1e-3


def test_a_single_head_is_named() -> None:
    def unmasked_third(scores: Tensor, mask: Tensor | None) -> Tensor:
        weights = Steps().weigh(scores, mask)
        third = scores[:, 2:3].softmax(dim=-1)
        return torch.cat([weights[:, :2], third, weights[:, 3:]], dim=1)

    found = find_counterexample(
        subject_of(Exhibit(function=unmasked_third, step="weigh"))
    )
    assert found is not None
    assert found.head == 2
    assert str(found).endswith("; head 2 alone is wrong")
    everywhere = find_counterexample(subject_of(EXHIBITS["no-scale"]))
    assert everywhere is not None
    assert everywhere.head is None


def peek(x: Tensor) -> Tensor:
    allowed = causal_mask(x.shape[1]) | (torch.arange(x.shape[1]) == 2)
    return (0.1 * x @ x.mT).masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ x


@pytest.mark.parametrize(("function", "tokens"), [(peek, 3), (lambda x: x.flip(1), 2)])
def test_without_an_oracle_the_future_is_changed(
    function: Callable[[Tensor], Tensor], tokens: int
) -> None:
    found = find_counterexample(make_subject(function, d_model=20))
    assert found is not None
    assert (found.x.shape[1], found.token) == (tokens, 0)
    assert f", with token {tokens - 1} changed " in str(found)
    assert find_counterexample(make_subject(nn.Identity(), d_model=20)) is None


def test_it_says_which_token_what_came_and_what_was_wanted() -> None:
    found = find_counterexample(subject_of(EXHIBITS["keys-for-values"]))
    assert str(found).startswith("smallest case, causal: of 1 token, token 0 gets ")
    assert f"{found.came:.4g} in feature {found.feature}, attention gives " in str(
        found
    )


def test_what_attends_to_both_sides_may_read_the_next_token() -> None:
    def first_mask_for_all(x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        scores = 0.1 * x @ x.mT
        if padding_mask is not None:
            scores = scores.masked_fill(padding_mask[:1, None], -1e4)
        return scores.softmax(dim=-1) @ x

    report = check_attention(first_mask_for_all, d_model=20, style="both")
    assert report.failed == ["padding"], str(report)
    assert report.counterexample is None
