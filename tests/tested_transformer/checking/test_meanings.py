"""Masks of both kinds, numbers and True and False, where a layer has code for each."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.checking import check_attention

D_MODEL, HEADS = 20, 5

pytestmark = pytest.mark.usefixtures("as_a_caller")


def masked(scores: Tensor, mask: Tensor | None, bug: str, *, ignores: bool) -> Tensor:
    """Mask scores with either kind of mask, and perhaps a bug in the code for one."""
    if mask is None:
        return scores
    if bug == "numbers are made True and False" and mask.dtype != torch.bool:
        mask = mask.bool()
    if mask.dtype == torch.bool:
        hidden = mask if ignores else ~mask
        hidden = hidden.mT if bug.startswith("turned") else hidden
        scores = 2 * scores if bug == "True and False double scores" else scores
        fills = {"-5 for False": -5.0, "turned, -inf": -torch.inf}
        fill = fills.get(bug, torch.finfo(scores.dtype).min)
        return scores + mask if bug == "True is 1" else scores.masked_fill(hidden, fill)
    scores = 2 * scores if bug == "numbers double scores" else scores
    return scores if bug == "numbers are lost" else scores + mask


class Either(nn.Module):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.num_heads, self.bug = HEADS, bug
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(D_MODEL, D_MODEL) for _ in range(4)
        )

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *masks: Any) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for each in (self.q_proj(q), self.k_proj(k), self.v_proj(v))
        )
        scores = q @ k.mT * q.shape[-1] ** -0.5
        for mask in masks:
            ignores = isinstance(self, LikePyTorchs)
            scores = masked(scores, mask, self.bug, ignores=ignores)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class WithAMask(Either):
    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        return self.attend(x, x, x, attn_mask)


class WithAFlag(Either):
    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        if is_causal:
            attn_mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return self.attend(x, x, x, attn_mask)


class LikePyTorchs(Either):
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        padding = None if key_padding_mask is None else key_padding_mask[:, None, None]
        return self.attend(query, key, value, attn_mask, padding), None


def function(bug: str = "") -> Callable[..., Tensor]:
    def attention(
        q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        scores = q @ k.mT * q.shape[-1] ** -0.5
        return masked(scores, mask, bug, ignores=False).softmax(-1) @ v

    return attention


class PaddingApart(LikePyTorchs):
    """Only its ``attn_mask`` has code for both kinds."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *masks: Any) -> Tensor:
        lowest = torch.finfo(q.dtype).min
        attn_mask, padding = masks
        if padding is not None:
            padding = torch.zeros(padding.shape).to(q).masked_fill(padding, lowest)
        return super().attend(q, k, v, attn_mask, padding)


@pytest.mark.parametrize("make", [WithAMask, WithAFlag, PaddingApart, function])
def test_a_bug_in_the_code_for_one_kind_of_mask_is_found(
    make: Callable[..., Any],
) -> None:
    assert check_attention(make()).passed
    report = check_attention(make("numbers are lost"))
    assert report.state == "wrong"
    assert report.likely[0].name == "no-causal-mask", str(report)
    report = check_attention(make("-5 for False"))
    assert report.state == "wrong"
    assert report.likely[0].name == "minus-five", str(report)


@pytest.mark.parametrize("make", [WithAMask, WithAFlag, PaddingApart, function])
@pytest.mark.parametrize("kind", ["numbers", "True and False"])
def test_both_kinds_of_mask_have_to_give_the_right_output(
    make: Callable[..., Any], kind: str
) -> None:
    report = check_attention(make(f"{kind} double scores"))
    assert report.state == "wrong", str(report)


@pytest.mark.parametrize("bug", ["turned", "turned, -inf"])
def test_a_mask_that_hides_a_token_from_itself_is_not_causal(bug: str) -> None:
    report = check_attention(WithAMask(bug))
    assert report.state == "wrong"
    assert "only numbers make it causal" in str(report)


@pytest.mark.parametrize("make", [WithAMask, WithAFlag, function])
def test_numbers_may_be_ones_and_zeros(make: Callable[..., Any]) -> None:
    report = check_attention(make("numbers are made True and False"))
    assert report.passed, str(report)


class OneKindAtATime(LikePyTorchs):
    """Joins its two masks to one, of numbers only if ``attn_mask`` is."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *masks: Any) -> Tensor:
        attn_mask, padding = masks
        if attn_mask is None or padding is None:
            joined = padding if attn_mask is None else attn_mask
        elif attn_mask.dtype == torch.bool:
            joined = attn_mask | padding
        else:
            joined = attn_mask.masked_fill(padding, torch.finfo(q.dtype).min)
        return super().attend(q, k, v, joined)


@pytest.mark.parametrize(
    ("bug", "state"), [("", "right"), ("numbers double scores", "wrong")]
)
def test_both_kinds_of_a_mask_like_pytorchs_have_to_give_the_right_output(
    bug: str, state: str
) -> None:
    assert check_attention(OneKindAtATime(bug)).state == state


def test_both_kinds_are_asked_in_single_precision_if_one_is() -> None:
    class Single(WithAMask):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, *masks: Any) -> Tensor:
            return super().attend(q, k, v, *masks).float().to(q)

    assert check_attention(Single()).passed
    report = check_attention(Single("numbers double scores"))
    assert report.state == "wrong"
    assert "finite differences" not in report.failed  # no float32 passes it


def test_the_report_says_which_kind_is_right() -> None:
    report = str(check_attention(WithAMask("-5 for False")))
    assert (
        "In attn_mask, only numbers make it causal: numbers are added to the scores."
        in report
    )
    report = str(check_attention(WithAFlag("numbers are lost")))
    assert "In attn_mask, only True and False hide padding." in report


def test_who_only_passes_numbers_can_say_so() -> None:
    layer = WithAMask("True is 1")
    report = check_attention(layer)
    assert report.state == "not known"
    assert "give mask_means='add' if masks are always numbers" in str(report)
    assert check_attention(layer, mask_means="add").passed


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        ("-5 for False", "minus-five"),
        ("turned", "inverted-mask"),
        ("True is 1", "added-ones"),
    ],
)
def test_a_bug_in_masks_is_named_beside_a_flag_that_is_right(
    bug: str, name: str
) -> None:
    class Flagged(Either):
        def forward(
            self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
        ) -> Tensor:
            later = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1).to(x)
            return self.attend(x, x, x, later if is_causal else None, attn_mask)

    assert check_attention(Flagged()).passed
    report = check_attention(Flagged(bug))
    assert report.likely[0].name == name, str(report)


def test_a_masked_layer_that_cannot_compute_in_float64_is_given_its_mask() -> None:
    class Single(Either):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            q, k, v = (
                each(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for each in (self.q_proj, self.k_proj, self.v_proj)
            )
            scores = q @ k.mT * q.shape[-1] ** -0.5
            scores = scores if mask is None else scores.masked_fill(mask == 0, -1e4)
            weights = scores.softmax(dim=-1, dtype=torch.float32)
            return self.out_proj((weights @ v).transpose(1, 2).flatten(2))

    report = check_attention(Single(), skip=["dtypes", "huge scores"])
    assert report.passed, str(report)
