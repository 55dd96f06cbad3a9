"""What the checker catches, what it lets pass, and what it says of either."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.attention_check.layers import Plain, Stepped, call, pieces, plain_reference
from torch import Tensor, nn

from attention_check import (
    CHECKS,
    Reference,
    adapter,
    assert_attention,
    assert_causal,
    check_attention,
)


def checked(layer: Any, call: Callable[..., Any] | None = None, **settings: Any):
    """Check a layer with the projections of ``Plain``."""
    plain = call or (lambda layer, x: layer(x))
    return check_attention(
        layer,
        call=plain,
        like=plain_reference(layer, **settings.pop("like", {})),
        **settings,
    )


# Leaks that short texts do not show, and leaks that padding wakes.


def test_a_leak_that_begins_late_is_found() -> None:
    class Late(Plain):
        def allow(self, length: int) -> Tensor:
            return super().allow(length) | (torch.arange(length) >= 59)

    report = checked(Late())
    assert report.state == "wrong"
    assert "leak" in report.failed
    assert "in 67 tokens" in str(report)
    assert checked(Late(), lengths=(7,)).state == "right"


class Padded(Plain):
    """A layer that takes padding, and does with it what ``use`` does."""

    def __init__(self, use: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.use, self.real = use, torch.ones(())

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        self.real = lengths
        return super().forward(x)

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        mask = mask[None, None]
        if self.real is not None:
            mask = self.use(mask, self.real)
        empty = ~mask.any(dim=-1, keepdim=True)
        scores = scores.masked_fill(~(mask | empty), float("-inf"))
        return scores.softmax(dim=-1) * ~empty


def with_lengths(layer: Padded, x: Tensor, *, real: Tensor | None = None) -> Tensor:
    return layer(x, lengths=real)


# What a query that is padding reads does not matter, so two bugs look alike.
ALIKE = {"padding-ignored", "padding-on-the-wrong-axis"}


@pytest.mark.parametrize(
    ("use", "state", "names"),
    [
        (lambda mask, real: mask & real[:, None, None], "right", set()),
        (lambda mask, real: mask, "wrong", ALIKE),
        (lambda mask, real: mask & ~real[:, None, None], "wrong", set()),
        (lambda mask, real: mask & real[:, None, :, None], "wrong", ALIKE),
        (lambda mask, real: real[:, None, None], "wrong", set()),
    ],
    ids=["right", "ignored", "inverted", "of queries", "no longer causal"],
)
def test_padding_is_passed_whatever_its_argument_is_called(
    use: Callable[..., Tensor], state: str, names: set[str]
) -> None:
    report = checked(Padded(use), with_lengths)
    assert (report.state, {*report.names}) == (state, names), str(report)


def test_an_argument_that_no_call_passes_is_named() -> None:
    layer = Padded(lambda mask, real: mask)
    report = checked(layer)
    assert report.state == "right"
    assert report.never_passed == ["lengths"]
    assert "Never passed: lengths." in str(report)
    alone = check_attention(layer)
    assert (alone.state, bool(alone)) == ("cannot tell", False)
    assert "        # lengths=...,\n" in alone.adapter


# Scales, and other published variants, are settings.


@pytest.mark.parametrize(
    ("score", "setting", "phrase"),
    [
        (lambda q, k: q @ k.mT / 6, {"scale": 1 / 6}, "scale 0.1667"),  # muP
        (lambda q, k: q @ k.mT, {"scale": 1.0}, "scale 1"),  # T5
        (
            lambda q, k: (
                q @ k.mT * torch.arange(1, 1 + k.shape[2])[:, None].log() / 6**0.5
            ),
            {"scale": lambda n: n.log() / 6**0.5},
            "a scale of its own",
        ),
    ],
)
def test_a_published_scale_is_a_setting_and_asked_about_without_it(
    score: Callable[..., Tensor], setting: dict[str, Any], phrase: str
) -> None:
    layer = Plain()
    layer.score = score
    report = checked(layer, like=setting, skip=["half precision"])
    assert report.state == "right", str(report)
    assert phrase in str(report).splitlines()[0]
    assert check_attention(layer).state == "cannot tell"


def test_softmax_plus_one_is_a_setting() -> None:
    class PlusOne(Plain):
        def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
            exps = scores.exp() * mask
            return exps / (1 + exps.sum(dim=-1, keepdim=True))

    report = checked(PlusOne(), like={"sink": 0.0}, skip=["huge scores"])
    assert "softmax plus one" in str(report).splitlines()[0]
    assert report.state == "right", str(report)


def test_a_wrong_scale_is_measured() -> None:
    layer = Plain()
    layer.score = lambda q, k: q @ k.mT / 4
    report = checked(layer)
    assert report.names == ("scale",)
    first = str(report).splitlines()[0]
    assert first.endswith("the factor of the scores is 0.25 instead of 0.4082.")


# Batches, caches, modes.


def test_a_mixed_batch_is_told_first() -> None:
    class Mixed(Plain):
        def score(self, q: Tensor, k: Tensor) -> Tensor:
            return super().score(q, k.roll(1, dims=0))

    report = checked(Mixed())
    assert report.names == ("batch",)
    assert "sequence 0 has another output in a batch than alone" in str(report)


def test_a_limit_takes_the_headline_from_no_bug() -> None:
    class Both(Plain):
        def score(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.mT

        def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
            return scores.masked_fill(~mask, -1e9).softmax(dim=-1)

    report = checked(Both())
    assert (report.state, report.names) == ("wrong", ("no-scale",))
    assert "half precision" in report.failed


def test_a_limit_is_right_within_its_reach() -> None:
    class Filled(Plain):
        def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
            return scores.masked_fill(~mask, -1e9).softmax(dim=-1)

    report = checked(Filled())
    assert (report.state, report.names) == ("within limits", ("beyond-half",))
    assert report
    first, second = str(report).splitlines()[:2]
    assert first.startswith("Filled is right within limits: causal; whole, gradients")
    assert "float16: " in second


class Cached(Plain):
    """A layer with a cache in its arguments, which exchanges keys and values."""

    def __init__(self, *, exchanged: bool) -> None:
        super().__init__()
        self.exchanged = exchanged

    def forward(self, x: Tensor, past: Any = None, use_cache: bool = False) -> Any:
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if past is not None:
            old = past[::-1] if self.exchanged else past
            k, v = (torch.cat(both, dim=2) for both in zip(old, (k, v), strict=True))
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        mask = mask.tril(k.shape[2] - q.shape[2])
        y = self.weigh(self.score(q, k), mask) @ v
        y = self.o_proj(y.transpose(1, 2).flatten(2))
        return (y, (k, v)) if use_cache else y


def read(layer: Cached, parts: list[Tensor]) -> list[Tensor]:
    past, outputs = None, []
    for part in parts:
        output, past = layer(part, past, use_cache=True)
        outputs.append(output)
    return outputs


def test_a_cache_is_read_in_pieces() -> None:
    assert checked(Cached(exchanged=False), pieces=read).covered[2] == "in pieces"
    wrong = Cached(exchanged=True)
    assert checked(wrong).never_passed == ["past", "use_cache"]
    assert check_attention(wrong).state == "cannot tell"
    report = checked(wrong, pieces=read)
    assert report.names == ("keys-and-values-exchanged-in-the-cache",)
    assert report.failed == ["cache"]


def test_dropout_with_a_literal_is_caught() -> None:
    class Dropping(Plain):
        def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
            return F.dropout(super().weigh(scores, mask), 0.1)

    report = checked(Dropping())
    assert report.failed == ["modes"]
    assert "dropout-with-a-literal" in report.names
    assert "evaluating, it drops with a probability of 0.1" in str(report)


def test_what_writes_into_its_input_or_keeps_a_state_is_told() -> None:
    class Writing(Plain):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            x.data.zero_()
            return y

    class Keeping(Plain):
        count = 0

        def score(self, q: Tensor, k: Tensor) -> Tensor:
            self.count += 1
            return super().score(q, k) * self.count

    for layer, phrase in ((Writing(), "writes into"), (Keeping(), "has two outputs")):
        report = checked(layer)
        assert (report.state, report.names) == ("wrong", ("modes",)), str(report)
        assert phrase in str(report).splitlines()[0]


# The layer stays as it is, and what would hide a bug is drawn again.


def test_the_layer_is_copied() -> None:
    layer = Stepped(None, "own").float().train()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    state = torch.get_rng_state()
    check_attention(layer, call=call, like=layer.right, pieces=pieces, lengths=(7,))
    assert layer.training
    assert layer.wq.weight.dtype == torch.float32
    assert layer.own.q is layer.right.q is layer.wq
    assert torch.equal(torch.get_rng_state(), state)
    assert all(
        torch.equal(tensor, before[n]) for n, tensor in layer.state_dict().items()
    )
    assert not layer._forward_pre_hooks


def test_constant_parameters_hide_nothing() -> None:
    class Lost(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) - self.o_proj.bias

    layer = Lost()
    nn.init.zeros_(layer.o_proj.bias)
    nn.init.zeros_(layer.o_proj.weight)
    assert checked(layer).names == ("no-bias-of-the-output",)
    right = Plain()
    nn.init.zeros_(right.o_proj.weight)
    assert checked(right).state == "right"


def test_single_precision_inside_is_right_and_told() -> None:
    class Single(Plain):
        def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
            return super().weigh(scores.float(), mask).to(scores.dtype)

    report = checked(Single())
    assert report.state == "right", str(report)
    assert "It computes in float32, and was checked so." in report.notes


def test_a_gradient_that_is_cut_off_is_wrong() -> None:
    class Cut(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).detach()

    report = checked(Cut())
    assert (report.state, report.names) == ("wrong", ())
    assert "gradient" in report.failed


def test_a_function_of_ones_own_is_a_reference() -> None:
    layer = Plain()

    def slow(layer: Plain, x: Tensor) -> Tensor:
        rows = [Plain.forward(layer, x[:, : t + 1])[:, -1] for t in range(x.shape[1])]
        return torch.stack(rows, dim=1)

    def plain(layer: Plain, x: Tensor) -> Tensor:
        return layer(x)

    report = check_attention(layer, call=plain, like=slow, causal=True)
    assert report.state == "right", str(report)
    off = check_attention(
        layer, call=plain, like=lambda layer, x: slow(layer, 1.01 * x), causal=True
    )
    assert {"output", "gradient"} <= {*off.failed}
    assert off.counterexample is not None
    assert off.counterexample.length == 1


def test_an_adapter_is_registered_for_a_class() -> None:
    class Known(Plain):
        def forward(self, x: Tensor, upside: int) -> Tensor:
            return upside * super().forward(x)

    assert check_attention(Known()).state == "cannot tell"

    @adapter.register
    def _(layer: Known) -> dict[str, Any]:
        return {"call": lambda layer, x: layer(x, 1), "like": plain_reference(layer)}

    assert check_attention(Known()).state == "right"


# Errors.


def test_bad_input_gets_one_clear_error() -> None:
    def masked(layer: Any, x: Tensor, *, mask: Any) -> Tensor:
        return layer(x)

    keywords = "call has the parameter mask; keyword-only parameters may be causal, re"
    shapes = r"Plain returns \(3, 7, 23\) for x of \(3, 7, 24\)"
    for attention, settings, error, message in (
        (3, {}, TypeError, "attention must be callable; it is a int"),
        (Plain, {}, TypeError, "Plain is a class: make a layer of it"),
        (Plain(), {"call": 3}, TypeError, "call must be callable; it is a int"),
        (Plain(), {"pieces": 3}, TypeError, "pieces must be callable; it is a int"),
        (Plain(), {"skip": ["odd"]}, ValueError, r"skip=\['odd'\] must be among leak,"),
        (Plain(), {"call": masked}, TypeError, keywords),
        (Plain(), {"call": lambda f, x: f(x)[..., 1:]}, ValueError, shapes),
        (Plain(), {"call": lambda f, x: f(x, 4)}, ValueError, "Plain cannot be called"),
        (Plain(), {"call": lambda f, x: 3}, ValueError, "Plain returns no tensor: int"),
    ):
        with pytest.raises(error, match=message):
            check_attention(attention, **settings)


def test_a_report_is_true_if_nothing_is_wrong_and_can_be_asserted() -> None:
    layer = Plain()
    assert checked(layer)
    assert_attention(layer)
    layer.score = lambda q, k: (q @ k.mT).abs()
    report = checked(layer)
    assert not report
    assert report.as_dict()["state"] == "wrong"
    assert report.as_dict()["checks"]["output"]["passed"] is False
    with pytest.raises(
        AssertionError, match="Plain: cannot tell, since what it should"
    ):
        assert_attention(layer)
    with pytest.raises(AssertionError, match="Plain is WRONG: output: causal: up to"):
        assert_attention(layer, call=lambda x, y: x(y), like=plain_reference(layer))


def test_gradients_of_weights_are_compared_too() -> None:
    class Detached(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight.detach(), self.bias)

    def q(layer: Any, x: Tensor) -> Tensor:
        return F.linear(x, layer.q_proj.weight, layer.q_proj.bias)

    layer = Plain()
    parts = {"k": layer.k_proj, "v": layer.v_proj, "o": layer.o_proj}
    like = Reference(q=q, **parts, num_heads=4, causal=True)
    assert check_attention(layer, like=like).state == "right"
    layer.q_proj = Detached(24, 24)
    assert [*check_attention(layer, like=like).failed] == ["gradient"]


def test_a_function_of_heads_is_asked_about_keys_from_elsewhere() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (tensor[..., : q.shape[-2], :] for tensor in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    report = check_attention(attend, causal=False)
    assert [*report.failed] == ["output", "gradient"]
    assert "both sides, another context: up to" in str(report)
    unknown = check_attention(lambda a, b, c: a, causal=False)
    assert "    causal=False,\n" in unknown.adapter


def test_a_context_may_be_wider_or_narrower() -> None:
    class Across(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.o = nn.Linear(24, 24), nn.Linear(24, 24)
            self.k, self.v = nn.Linear(10, 24), nn.Linear(10, 24)

        def forward(self, x: Tensor, *, context: Tensor) -> Tensor:
            sources = (self.q(x), self.k(context), self.v(context))
            q, k, v = (y.unflatten(-1, (4, -1)).transpose(1, 2) for y in sources)
            y = F.scaled_dot_product_attention(q, k, v)
            return self.o(y.transpose(1, 2).flatten(2))

    layer = Across()
    like = Reference(q=layer.q, k=layer.k, v=layer.v, o=layer.o, num_heads=4)
    how = {"call": lambda layer, x, *, context: layer(x, context=context)}
    report = check_attention(layer, like=like, d_context=10, causal=False, **how)
    assert report.state == "right", str(report)


def test_a_skipped_check_is_not_asked() -> None:
    report = checked(Plain(), skip=["modes"])
    (verdict,) = (verdict for verdict in report.verdicts if verdict.check == "modes")
    assert (verdict.passed, verdict.reason) == (None, "skipped")
    assert [verdict.check for verdict in report.verdicts] == [*CHECKS]


def test_a_model_of_tokens_is_asserted_to_be_causal() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.attention = nn.Embedding(11, 24), Plain()

        def forward(self, tokens: Tensor) -> Tensor:
            return self.attention(self.embed(tokens))

    model = Model()
    assert_causal(model, vocab_size=11)
    assert_causal(Plain(), d_model=24)
    late = Model()
    late.attention.allow = lambda length: (
        torch.ones(length, length).bool().tril(length // 20)
    )
    with pytest.raises(AssertionError, match="not causal: evaluating, of 67 tokens, a"):
        assert_causal(late, vocab_size=11)
    assert_causal(late, vocab_size=11, lengths=(7, 19))
    with pytest.raises(AssertionError, match="not causal: evaluating, of 7 tokens, a"):
        assert_causal(model, vocab_size=11, call=lambda model, x: model(x).flip(1))
    model.train()
    model.attention.allow = lambda length: (
        torch.ones(length, length).bool().tril(int(model.training))
    )
    with pytest.raises(ValueError, match="give vocab_size for a model of tokens, or"):
        assert_causal(model)
