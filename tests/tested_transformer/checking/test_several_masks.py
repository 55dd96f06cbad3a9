"""Masks beside the one that a layer is called with, and a context that may be given."""

import copy
import re
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.checking import Report, check_attention
from tested_transformer.checking.exhibits import ExchangeableAttention

pytestmark = pytest.mark.usefixtures("as_a_caller")


D_MODEL, HEADS = 20, 5


class Masked(ExchangeableAttention):
    """Attends where all of its masks allow it."""

    def __init__(self, bug: str = "") -> None:
        super().__init__(d_model=D_MODEL, num_heads=HEADS)
        self.bug = bug

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *masks: Tensor | None) -> Tensor:
        q, k, v = (
            self.steps.split(each, HEADS)
            for each in (self.q_proj(q), self.k_proj(k), self.v_proj(v))
        )
        given = [mask.bool() for mask in masks if mask is not None]
        allowed = reduce(torch.logical_and, given) if given else None
        weights = self.weigh(self.steps.score(q, k), allowed)
        return self.o_proj(self.steps.merge(weights @ v))

    def weigh(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        return self.steps.weigh(scores, allowed)


def past(x: Tensor) -> Tensor:
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()


class SeveralMasks(Masked):
    """Hides padding with a mask of keys, unless it ignores that."""

    def attend_with(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, *, causal: bool
    ) -> Tensor:
        shown = None if padding is None or self.bug else padding[:, None, None]
        return self.attend(x, x, x, past(x) if causal else None, mask, shown)


class MaskAndPadding(SeveralMasks):
    def forward(
        self, x: Tensor, mask: Tensor | None = None, padding_mask: Tensor | None = None
    ) -> Tensor:
        return self.attend_with(x, mask, padding_mask, causal=False)


class NeededMaskAndPadding(SeveralMasks):
    def forward(
        self, x: Tensor, mask: Tensor, padding_mask: Tensor | None = None
    ) -> Tensor:
        return self.attend_with(x, mask, padding_mask, causal=False)


class FlagAndPadding(SeveralMasks):
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        pad_mask: Tensor | None = None,
    ) -> Tensor:
        return self.attend_with(x, mask, pad_mask, causal=causal)


class CausalWithTwoMasks(SeveralMasks):
    def forward(
        self, x: Tensor, attn_bias: Tensor | None = None, pad_mask: Any = None
    ) -> Tensor:
        return self.attend_with(x, attn_bias, pad_mask, causal=True)


@pytest.mark.parametrize("make", [*SeveralMasks.__subclasses__()])
def test_each_mask_of_several_has_to_hide_something(
    make: Callable[[str], nn.Module],
) -> None:
    style = "causal" if make is CausalWithTwoMasks else None
    assert check_attention(make(""), style=style).passed
    report = check_attention(make("padding is read"), style=style)
    assert report.state == "not known"
    assert re.search("no form of (padding|pad)_mask that was tried", str(report))


class OneOfTwo(Masked):
    """Uses one mask, and the other only if the first is not given."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, key_mask: Tensor | None = None
    ) -> Tensor:
        keys = None if key_mask is None else key_mask[:, None, None]
        first, second = (mask, keys) if self.bug == "mask first" else (keys, mask)
        if self.bug and first is not None:
            second = None
        return self.attend(x, x, x, first, second)


@pytest.mark.parametrize("bug", ["mask first", "keys first"])
def test_two_masks_have_to_work_together(bug: str) -> None:
    assert check_attention(OneOfTwo()).passed
    report = check_attention(OneOfTwo(bug))
    assert "given mask and key_mask together, it does not hide" in str(report)
    assert report.state == "not known"


class Near(Masked):
    """Attends to the last three tokens, but perhaps not if it is given a mask."""

    def __init__(self, bug: str = "") -> None:
        super().__init__(bug)
        self.window = 3

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        near = past(x).triu(1 - self.window)
        if attn_mask is not None and self.bug:
            near = past(x) if self.bug == "window" else torch.ones_like(near)
        return self.attend(x, x, x, near, attn_mask)


@pytest.mark.parametrize("bug", ["window", "window and triangle"])
def test_a_window_that_a_mask_takes_away_is_missed(bug: str) -> None:
    assert check_attention(Near()).passed
    report = check_attention(Near(bug))
    assert report.state == "not known"
    assert "that hides nothing, its output is another than without" in str(report)


class CausalAlone(Masked):
    """Hides later tokens, but leaves that to a mask if it is given one."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        own = past(x) if attn_mask is None else None
        if self.bug and attn_mask is not None:
            own = torch.ones_like(past(x)).tril(1)
        return self.attend(x, x, x, own, attn_mask)


def test_that_a_causal_layer_uses_only_the_mask_it_is_given_is_said() -> None:
    report = check_attention(CausalAlone())
    assert report.passed, str(report)
    assert report.notes == (
        "Given attn_mask, it hides later tokens only if the mask does.",
    )
    report = check_attention(CausalAlone("one token too far"))
    assert report.state == "not known"
    assert "it hides some of the later tokens, but not all" in str(report)


@pytest.mark.parametrize("flag", ["is_causal", "causal"])
def test_that_a_flag_does_nothing_beside_a_mask_is_said(flag: str) -> None:
    class Flagged(Masked):
        def attend_with(self, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
            own = past(x) if causal and (mask is None or not self.bug) else None
            return self.attend(x, x, x, own, mask)

    class IsCausal(Flagged):
        def forward(
            self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
        ) -> Tensor:
            return self.attend_with(x, attn_mask, is_causal)

    class Causal(Flagged):
        def forward(
            self, x: Tensor, attn_mask: Tensor | None = None, causal: bool = False
        ) -> Tensor:
            return self.attend_with(x, attn_mask, causal)

    make = IsCausal if flag == "is_causal" else Causal
    assert check_attention(make()).notes == ()
    report = check_attention(make("flag is ignored"))
    assert report.passed
    assert report.notes == (
        f"Given attn_mask, it ignores {flag}: the mask has to hide later tokens.",
    )


def test_the_meaning_of_a_padding_mask_is_said() -> None:
    class Ignored(FlagAndPadding):
        def attend_with(self, x: Tensor, *masks: Tensor | None, causal: bool) -> Tensor:
            mask, padding = masks
            kept = None if padding is None else ~padding
            return super().attend_with(x, mask, kept, causal=causal)

    for make, meaning in (FlagAndPadding, "may attend"), (Ignored, "ignore"):
        report = check_attention(make())
        assert report.passed, str(report)
        assert report.notes == (f"In pad_mask, True means {meaning}.",)


@pytest.mark.parametrize("bug", ["keys for queries", "transposed"])
def test_a_mask_may_have_any_number_of_axes_that_the_layer_has_code_for(
    bug: str,
) -> None:
    class AnyAxes(Masked):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            if mask is not None and mask.ndim == 2:
                mask = mask[:, None, None]
                mask = mask.mT if self.bug == "keys for queries" else mask
            elif mask is not None and mask.ndim == 3:
                mask = mask[:, None]
                mask = mask.mT if self.bug == "transposed" else mask
            return self.attend(x, x, x, mask)

    assert check_attention(AnyAxes()).passed
    report = check_attention(AnyAxes(bug))
    assert report.state == "not known"
    axes = "5" if bug == "keys for queries" else "5, 5"
    assert f"in mask, a mask of (7, {axes}) does another thing than" in str(report)


def test_a_mask_may_be_a_flag() -> None:
    class Flagged(Masked):
        def forward(self, x: Tensor, causal_mask: bool = False) -> Tensor:
            return self.attend(x, x, x, past(x) if causal_mask else None)

    assert check_attention(Flagged()).passed


class NearBothSides(Masked):
    """Attends to two tokens on each side, but perhaps not if it is given a mask."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        near = ~torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(-3)
        keys = None if attention_mask is None else attention_mask[:, None, None]
        lost = self.bug and keys is not None
        return self.attend(x, x, x, None if lost else near & near.mT, keys)


def test_a_window_to_both_sides_that_a_mask_takes_away_is_missed() -> None:
    said = "without attention_mask its output is that of neither a causal mask nor"
    assert said not in str(check_attention(NearBothSides()))
    report = check_attention(NearBothSides("lost"))
    assert report.state == "not known"
    assert said in str(report)


def test_an_unusual_meaning_of_a_second_mask_is_said() -> None:
    class Ignores(Masked):
        def forward(
            self, x: Tensor, mask: Tensor | None = None, key_mask: Any = None
        ) -> Tensor:
            keys = None if key_mask is None else ~key_mask[:, None, None]
            return self.attend(x, x, x, mask, keys)

    report = check_attention(Ignores())
    assert report.state == "not known"
    assert "in key_mask, True means ignore: give mask_means='ignore'" in str(report)


def test_two_masks_of_a_causal_layer_have_to_give_one_output() -> None:
    class TwoOfKeys(Masked):
        def forward(
            self, x: Tensor, pad_mask: Any = None, real_mask: Any = None
        ) -> Tensor:
            given = [each for each in (pad_mask, real_mask) if each is not None]
            keys = [each[:, None, None] for each in given]
            if self.bug and real_mask is not None and not real_mask.all():
                x = 2 * x
            return self.attend(x, x, x, past(x), *keys)

    assert check_attention(TwoOfKeys(), style="causal").passed
    report = check_attention(TwoOfKeys("doubles"), style="causal")
    assert report.state == "wrong", str(report)
    assert report.failed == ["padding"]


def test_the_mask_of_a_context_that_is_not_given_may_hide_nothing() -> None:
    class Reads(Masked):
        def forward(
            self,
            x: Tensor,
            context: Tensor | None = None,
            mask: Tensor | None = None,
            context_mask: Tensor | None = None,
        ) -> Tensor:
            read = x if context is None else context
            return self.attend(x, read, read, mask if context is None else context_mask)

    assert check_attention(Reads()).passed


class Crossing(Masked):
    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        read = x if context is None else context
        keys, values = (x if each == self.bug else read for each in ("keys", "values"))
        return self.attend(read if self.bug == "queries" else x, keys, values)


@pytest.mark.parametrize("bug", ["queries", "keys", "values"])
def test_a_context_that_need_not_be_given_is_given(bug: str) -> None:
    assert check_attention(Crossing(), style="both").passed
    report = check_attention(Crossing(bug), style="both")
    assert report.state == "not known"
    assert "given context, it does not compute attention to that alone" in str(report)


def test_a_mask_that_is_cut_along_its_first_axes_is_called_with_two() -> None:
    class Cut(Masked):
        def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
            length = x.shape[1]
            mask = None if attn_mask is None else attn_mask[:length, :length]
            return self.attend(x, x, x, mask)

    assert check_attention(Cut()).passed


class WithASink(Masked):
    def weigh(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        sink = torch.zeros_like(scores[..., :1])
        scores = scores.masked_fill(~allowed, -torch.inf)
        return torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, x, x, past(x))


class InFrames(Masked):
    """Tokens see all of their frame of two, and earlier frames."""

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.arange(x.shape[1]) // 2
        later = 1 if self.bug else 0
        return self.attend(x, x, x, frames[:, None] + later >= frames)


def beside_its_oracle(layer: Masked, **options: Any) -> Report:
    oracle = copy.deepcopy(layer).double().eval()
    return check_attention(layer, oracle=oracle, **options)


def test_a_layer_may_fail_what_its_oracle_fails() -> None:
    report = beside_its_oracle(WithASink(), style="causal")
    assert report.passed, str(report)
    report = beside_its_oracle(InFrames(), style="both")
    assert report.passed, str(report)


def test_an_oracle_that_sees_later_tokens_may_have_a_bug() -> None:
    report = beside_its_oracle(InFrames(), style="causal")
    assert report.state == "not known"
    assert "the oracle sees later tokens, too: give style='both'" in str(report)


class OnlyWhileEvaluating(Masked):
    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, x, x, None if self.training else past(x))


class PaddingHiddenFromRowsAlone(Masked):
    def forward(
        self, x: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        turned = None if mask is None else mask.mT
        return self.attend(x, x, x, past(x) if causal else None, turned)


def test_an_oracle_of_features_excuses_nothing_else() -> None:
    layer = OnlyWhileEvaluating()
    report = beside_its_oracle(layer, style="causal")
    assert report.failed == ["modes"], str(report)
    layer = PaddingHiddenFromRowsAlone()
    oracle = partial(copy.deepcopy(layer).double(), causal=True)
    assert "padding" in check_attention(layer, oracle=oracle).failed


class Keeps(Masked):
    """Writes its keys into a cache, as Llama's layer does, or into a list."""

    def __init__(self, bug: str = "") -> None:
        super().__init__(bug)
        self.kept, self.list = torch.zeros(64, HEADS, 64, D_MODEL // HEADS), []

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        q, k, v = (
            self.steps.split(each(x), HEADS)
            for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        self.kept = self.kept.to(k)
        self.kept[: len(x), :, : x.shape[1]] = k
        k = self.kept[: len(x), :, : x.shape[1]]
        if self.bug == "list":
            self.list.append(k.square().mean())
        q = 2 * q if self.bug == "scale" else q
        weights = self.weigh(self.steps.score(q, k), past(x) if causal else None)
        return self.o_proj(self.steps.merge(weights @ v)) + 0 * sum(self.list)


def test_a_layer_may_write_into_its_cache() -> None:
    report = check_attention(Keeps())
    assert report.passed, str(report)
    report = check_attention(Keeps("scale"))
    assert [each.name for each in report.likely] == ["no-scale"]


def test_a_layer_that_keeps_a_graph_is_refused_with_one_error() -> None:
    with pytest.raises(ValueError, match="keep tensors from an earlier call"):
        check_attention(Keeps("list"))
