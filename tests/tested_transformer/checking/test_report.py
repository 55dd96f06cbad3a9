"""Right, wrong, or not known: what a report says, and what it may not say."""

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking import Report, Verdict, check_attention
from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.checker import verdicts_on
from tested_transformer.multihead import MultiHeadAttention

pytestmark = pytest.mark.usefixtures("as_a_caller")


def mean_of_the_past(x: Tensor) -> Tensor:
    return x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1)[:, None]


NO_ATTENTION: dict[str, tuple[Any, str]] = {
    "a projection": (nn.Linear(20, 20), "no token reads another, so it may not be at"),
    "an identity": (nn.Identity(), "no token reads another, so it may not be"),
    "zeros": (lambda x: 0 * x, "its output is the same whatever it is given"),
    "a mean of the past": (mean_of_the_past, "not compared with attention: its proj"),
}


@pytest.mark.parametrize("name", NO_ATTENTION)
def test_what_is_no_attention_does_not_pass(name: str) -> None:
    attention, why = NO_ATTENTION[name]
    report = check_attention(attention, d_model=20)
    assert report.state == "not known", str(report)
    assert not report.passed
    assert not report
    first, second, *_ = str(report).splitlines()
    assert first.partition(" is ")[2] == "not known to be right:"
    assert second.startswith(f"  {why}")


def test_a_mean_over_all_tokens_does_not_pass_either() -> None:
    report = check_attention(lambda x: x.mean(1, keepdim=True) + 0 * x, d_model=20)
    assert not report.passed
    assert not check_attention(nn.Linear(20, 20), style="causal", skip=["leak"]).passed


def test_what_was_not_compared_is_not_known() -> None:
    layer = MultiHeadAttention(d_model=20, num_heads=5)
    assert check_attention(layer).state == "right"
    for name in ("output", "gradient"):
        report = check_attention(layer, skip=[name])
        assert report.state == "not known"
        assert report.unknown == (f"{name} was not compared: it was left out",)
    assert check_attention(layer, skip=["permutation"]).passed


def of(**passed: bool | None) -> Report:
    verdicts = (Verdict(name, each, "because") for name, each in passed.items())
    return Report("Layer", "causal", tuple(verdicts))


@pytest.mark.parametrize(
    ("report", "state"),
    [
        (of(output=True, gradient=True), "right"),
        (of(output=True, gradient=True, cache=None), "right"),
        (of(output=True, gradient=True, cache=False), "wrong"),
        (of(output=None, gradient=None, cache=False), "wrong"),
        (of(output=True, gradient=None), "not known"),
        (of(output=None, gradient=True), "not known"),
        (of(leak=True), "not known"),
        (of(), "not known"),
    ],
)
def test_the_state_is_one_of_three(report: Report, state: str) -> None:
    assert report.state == state
    assert report.passed == bool(report) == (state == "right")


def test_what_merges_heads_wrongly_is_not_said_to_have_odd_weights() -> None:
    def merged_by_token(x: Tensor) -> Tensor:
        q = x.unflatten(-1, (5, -1)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).flatten(1).view(x.shape)

    subject = make_subject(merged_by_token, d_model=20, style="both")
    verdicts = verdicts_on(subject, ["permutation", "row sums"])
    assert verdicts[0].reason == (
        "the last row changes with the order of the other tokens"
    )
    report = Report("merged_by_token", "both", verdicts)
    assert report.failed == ["permutation", "row sums"]
    assert (
        "Equal tokens got unequal rows: unless it adds positions, its weights do not "
        "sum to one, or it mixes up heads and tokens."
    ) in str(report).splitlines()


def test_it_says_all_that_it_knows_in_json_too() -> None:
    found = json.loads(json.dumps(check_attention(_sees_one_more).as_dict()))
    assert found["state"] == "wrong"
    assert [*found["likely"]] == ["one-too-far"]
    assert found["checks"][0] == {
        "check": "leak",
        "passed": False,
        "reason": "row 0 moves when token 1 changes",
    }
    report = check_attention(_sees_one_more)
    assert repr(report) == str(report)


def _sees_one_more(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    allowed = torch.ones_like(scores, dtype=torch.bool)
    allowed = allowed.tril(k.shape[-2] - q.shape[-2] + 1) if causal else allowed
    allowed = allowed if mask is None else allowed & mask
    empty = ~allowed.any(dim=-1, keepdim=True)
    filled = scores.masked_fill(~allowed & ~empty, -torch.inf)
    return F.softmax(filled, dim=-1).masked_fill(empty, 0.0) @ v
