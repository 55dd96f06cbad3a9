"""Modules and functions that the museum has never seen, right ones and broken ones.

They are written as the field writes them: stacked projections and a buffer, separate
projections, functions in the manner of SDPA, and wrappers around PyTorch's layer.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.attention import attention_with_weights
from tested_transformer.cache import DenseCache
from tested_transformer.checking import (
    EXHIBITS,
    assert_attention,
    assert_causal,
    check_attention,
)
from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.checker import judge
from tested_transformer.checking.exhibits.layer import with_steps
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.kernels import fused_attention
from tested_transformer.multihead import MultiHeadAttention

D_MODEL, HEADS = 20, 5


class Stacked(nn.Module):
    """One projection for all three, a triangle in a buffer, dropout in two places."""

    def __init__(self, *, diagonal: int = 0, merge: str = "right", cut: str = "three"):
        super().__init__()
        self.c_attn = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.c_proj = nn.Linear(D_MODEL, D_MODEL)
        self.attn_dropout = nn.Dropout(0.1)
        self.resid_dropout = nn.Dropout(0.1)
        self.n_head, self.merge, self.cut = HEADS, merge, cut
        triangle = torch.tril(torch.ones(16, 16), diagonal)
        self.register_buffer("bias", triangle.view(1, 1, 16, 16))

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.size()
        stacked = self.c_attn(x)
        if self.cut == "three":
            q, k, v = (
                each.view(b, t, self.n_head, -1).transpose(1, 2)
                for each in stacked.split(d, dim=2)
            )
        else:
            shape = (b, t, self.n_head, 3, -1)
            q, k, v = stacked.view(shape).permute(3, 0, 2, 1, 4)
        att = (q @ k.transpose(-2, -1)) * k.size(-1) ** -0.5
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        if self.merge == "right":
            y = y.transpose(1, 2)
        return self.resid_dropout(self.c_proj(y.contiguous().view(b, t, d)))


class Separate(nn.Module):
    """Separate projections, the upper triangle as a boolean buffer."""

    def __init__(self, *, scale: str = "head", fill: float = -torch.inf) -> None:
        super().__init__()
        self.num_heads, self.scale, self.fill = HEADS, scale, fill
        self.W_query = nn.Linear(D_MODEL, D_MODEL, bias=False)
        self.W_key = nn.Linear(D_MODEL, D_MODEL, bias=False)
        self.W_value = nn.Linear(D_MODEL, D_MODEL, bias=False)
        self.out_proj = nn.Linear(D_MODEL, D_MODEL)
        upper = torch.triu(torch.ones(16, 16), diagonal=1)
        self.register_buffer("mask", upper, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (
            project(x).view(b, t, self.num_heads, -1).transpose(1, 2)
            for project in (self.W_query, self.W_key, self.W_value)
        )
        scores = q @ k.transpose(2, 3)
        scores.masked_fill_(self.mask.bool()[:t, :t], self.fill)
        width = {"head": k.shape[-1], "model": d}[self.scale]
        weights = torch.softmax(scores / width**0.5, dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).contiguous().view(b, t, d))


class Fused(nn.Module):
    """As a tutorial has it: causal while training, or always."""

    def __init__(self, *, always: bool, dropout: float = 0.0, eager: bool = False):
        super().__init__()
        self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.proj = nn.Linear(D_MODEL, D_MODEL)
        self.heads, self.always = HEADS, always
        self.dropout, self.eager = dropout, eager

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            dropout_p=self.dropout if self.training or self.eager else 0.0,
            is_causal=self.always or self.training,
        )
        return self.proj(y.transpose(1, 2).flatten(2))


class Wrapped(nn.Module):
    """Around PyTorch's layer: passes its masks on, or forgets one."""

    def __init__(self, forget: str = "") -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)
        self.forget = forget
        self.embed_dim = D_MODEL

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
    ) -> Tensor:
        masks = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask}
        masks.pop(self.forget, None)
        return self.inner(query, key, value, need_weights=False, **masks)[0]


def sdpa_like(order: str = "right") -> Callable[..., Tensor]:
    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        scores = query @ key.mT / query.shape[-1] ** 0.5
        if is_causal:
            attn_mask = torch.ones_like(scores, dtype=torch.bool).tril()
        if attn_mask is None:
            return scores.softmax(-1) @ value
        if order == "late":
            return (scores.softmax(-1) * attn_mask) @ value
        if order == "inverted":
            attn_mask = ~attn_mask
        attn_mask = attn_mask.expand_as(scores)
        empty = ~attn_mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~attn_mask, -torch.inf).masked_fill(empty, 0.0)
        return scores.softmax(-1).masked_fill(empty, 0.0) @ value

    return attention


def einsum(slip: bool = False) -> Callable[..., Any]:
    letters = "bhte,bhsd->bhts" if slip else "bhtd,bhsd->bhts"

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Any:
        scores = torch.einsum(letters, q, k) * q.shape[-1] ** -0.5
        if mask is None:
            weights = scores.softmax(-1)
        else:
            exps = (scores - scores.amax(-1, keepdim=True)).exp() * mask
            weights = exps / exps.sum(-1, keepdim=True).clamp_min(1e-300)
        return torch.einsum("bhts,bhsd->bhtd", weights, v), weights

    return attend


# Shapes are checked in the other tests; these call an attention hundreds of times.
pytestmark = pytest.mark.usefixtures("as_a_caller")

RIGHT = {
    "stacked": Stacked,
    "stacked, heads first": lambda: Stacked(cut="heads"),
    "separate": Separate,
    "fused": lambda: Fused(always=True, dropout=0.1),
    "wrapped": Wrapped,
    "like SDPA": sdpa_like,
    "SDPA": lambda: F.scaled_dot_product_attention,
    "ours, open": lambda: attention_with_weights,
    "ours, fused": lambda: fused_attention,
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    report = check_attention(RIGHT[name]())
    assert report.failed == [], str(report)
    assert report.passed
    asked = {each.check for each in report.verdicts if each.passed}
    assert asked >= {"leak", "prefix", "permutation", "output", "gradient", "row sums"}
    assert report.likely == ()


VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "open": ({"fused": False}, {}),
    "fused, dropout": ({"dropout": 0.1}, {}),
    "grouped": ({"num_kv_heads": 1}, {}),
    "open and grouped": ({"fused": False, "num_kv_heads": 1}, {}),
    "no bias": ({"bias": False}, {}),
    "bf16": ({}, {"dtype": torch.bfloat16}),
    "fp32, open": ({"fused": False}, {"dtype": torch.float32}),
    "wide heads": ({"head_dim": 6}, {}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_of_the_library_passes(name: str) -> None:
    made, asked = VARIANTS[name]
    layer = MultiHeadAttention(d_model=D_MODEL, num_heads=HEADS, **made)
    report = check_attention(layer, **asked)
    assert report.failed == [], str(report)
    skipped = [each.check for each in report.verdicts if each.passed is None]
    assert skipped == (["finite differences"] if asked else [])


# PyTorch's own, which looks for a gradient wherever a program is given a tensor.
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_it_passes_too() -> None:
    """As programs without a break, which are then run as they are.

    A compiler for C++ may be missing, and takes its time.
    """
    torch.compiler.reset()
    programs: list[torch.fx.GraphModule] = []

    def backend(program: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        programs.append(program)
        return program.forward

    compiled = torch.compile(
        fused_attention, backend=backend, fullgraph=True, dynamic=True
    )
    # Each combination of mask, flag and gradient is a program of its own.
    with torch._dynamo.config.patch(recompile_limit=64):
        report = check_attention(compiled, skip=["dtypes"])
    assert report.failed == [], str(report)
    assert [each.check for each in report.verdicts if each.passed is None] == ["modes"]
    assert len(programs) >= 6


def test_a_compiled_layer_is_called_as_what_it_was_made_of() -> None:
    layer = MultiHeadAttention(d_model=D_MODEL, num_heads=HEADS)
    subject = make_subject(torch.compile(layer, backend="eager"))
    assert (subject.style, subject.width, subject.pads) == ("ours", D_MODEL, True)


def test_pytorchs_layer_fails_one_check_and_passes_the_others() -> None:
    for first in (False, True):
        layer = nn.MultiheadAttention(D_MODEL, HEADS, dropout=0.1, batch_first=first)
        report = check_attention(layer)
        assert report.failed == ["empty rows"]
        assert [each.name for each in report.likely] == ["nan-in-empty-rows"]


BROKEN: dict[str, tuple[Callable[[], Any], set[str], list[str]]] = {
    "one diagonal too far": (
        lambda: Stacked(diagonal=1),
        {"leak", "honest loss", "prefix", "output", "gradient", "huge scores"},
        ["one-too-far"],
    ),
    "merged without transpose": (
        lambda: Stacked(merge="wrong", cut="heads"),
        {"leak", "prefix", "permutation", "row sums", "output"},
        ["merge-without-transpose"],
    ),
    "scaled by the width": (
        lambda: Separate(scale="model"),
        {"output", "gradient"},
        ["scaled-by-width"],
    ),
    "filled with -1e9": (lambda: Separate(fill=-1e9), {"dtypes"}, ["beyond-half"]),
    "causal while training": (
        lambda: Fused(always=False),
        {"leak", "modes", "output"},
        ["only-while-training"],
    ),
    "drops while evaluating": (
        lambda: Fused(always=True, dropout=0.3, eager=True),
        {"modes"},
        ["dropout-while-evaluating"],
    ),
    "padding forgotten": (
        lambda: Wrapped(forget="key_padding_mask"),
        {"padding"},
        ["padding-ignored"],
    ),
    "mask forgotten": (
        lambda: Wrapped(forget="attn_mask"),
        {"leak", "honest loss", "prefix"},
        ["no-causal-mask"],
    ),
    "mask after softmax": (
        lambda: sdpa_like("late"),
        {"leak", "row sums", "padding", "output", "cache"},
        ["mask-after-softmax"],
    ),
    "inverted": (
        lambda: sdpa_like("inverted"),
        {"padding", "cache"},
        ["inverted-mask"],
    ),
    "a letter of einsum": (lambda: einsum(slip=True), {"output", "gradient"}, []),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_fails_by_name(name: str) -> None:
    make, failing, likely = BROKEN[name]
    report = check_attention(make())
    assert set(report.failed) >= failing, str(report)
    assert [each.name for each in report.likely] == likely, str(report)


def test_a_report_names_the_mistake_and_where_it_is_shown() -> None:
    lines = str(check_attention(Stacked(diagonal=1))).splitlines()
    assert lines[:2] == [
        "Stacked is WRONG: the mask ends one diagonal too late, so each token sees the "
        "next.",
        "  as in chapters/the-bug-museum/#one-too-far",
    ]
    assert lines[2].startswith("  smallest case, causal: of 2 tokens, token 0 gets ")
    assert lines[3:5] == [
        "Called in the style 'causal', 6 of 12 checks passed:",
        "  leak                FAILED     row 0 moves when token 1 changes",
    ]


def test_what_is_handed_over_is_left_as_it_was() -> None:
    layer = Stacked()
    before = {name: each.clone() for name, each in layer.state_dict().items()}
    check_attention(layer)
    after = layer.state_dict()
    assert all(torch.equal(after[name], each) for name, each in before.items())
    assert layer.training
    assert layer.attn_dropout.p == 0.1
    assert layer.c_attn.weight.dtype == torch.float32
    assert all(each.grad is None for each in layer.parameters())


@pytest.mark.parametrize(
    "ask", [check_attention, assert_causal, lambda layer: judge(make_subject(layer))]
)
def test_the_caller_draws_on_as_if_nothing_had_been_asked(
    ask: Callable[[nn.Module], object],
) -> None:
    layer = Stacked()
    torch.manual_seed(5)
    expected = torch.rand(7)
    torch.manual_seed(5)
    got = torch.rand(3)
    ask(layer)
    assert torch.equal(torch.cat([got, torch.rand(4)]), expected)


def test_what_is_reported_does_not_hang_on_the_seed_of_the_caller() -> None:
    class Rarely(nn.Module):
        """Adds a large number to what it gives, at one call in ten."""

        def forward(self, x: Tensor) -> Tensor:
            return x + 1e3 * (torch.rand(()) < 0.1)

    asked: list[str] = []
    for seed in range(6):
        torch.manual_seed(seed)
        try:
            asked.append(str(check_attention(Rarely(), d_model=D_MODEL)))
        except (TypeError, ValueError) as error:
            asked.append(str(error))
    assert len(set(asked)) == 1


class Odd(nn.Module):
    """Gives, or does, what attention should not."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.proj = what, nn.Linear(D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Any:
        match self.what:
            case "tuple":
                return None, 3
            case "list":
                return [x.tolist()]
            case "shape":
                return self.proj(x)[..., 1:]
            case "writes":
                with torch.no_grad():
                    x.mul_(2)
                return self.proj(x)
            case "chance":
                return self.proj(x) + torch.rand(())
            case _:
                raise RuntimeError("out of order")


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("tuple", TypeError, "Odd returns a tuple"),
        ("list", TypeError, "Odd returns a list"),
        ("shape", ValueError, r"Odd returns \(2, 5, 19\) for x of \(2, 5, 20\): att"),
        ("writes", ValueError, "Odd writes into the x that it is given"),
        ("chance", ValueError, "Odd gives two outputs for one input: switch off its"),
        (
            "raise",
            ValueError,
            "Odd cannot be called with x of .* style 'causal'",
        ),
    ],
)
def test_what_is_no_attention_is_refused_and_not_judged(
    what: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_attention(Odd(what))


def test_a_function_that_does_odd_things_is_refused() -> None:
    def writes(q, k, v, mask=None, causal=False):
        output, _ = attention_with_weights(q, k, v, mask=mask, causal=causal)
        with torch.no_grad():
            k.zero_()
        return output

    def narrow(q, k, v, mask=None, causal=False):
        return q[..., 1:]

    def drops(q, k, v, mask=None, causal=False):
        return F.dropout(v, 0.5)

    with pytest.raises(ValueError, match="writes into the k it is given"):
        check_attention(writes)
    with pytest.raises(ValueError, match=r"gives \(3, 4, 7, 5\) for q of \(3, 4, 7, 6"):
        check_attention(narrow)
    with pytest.raises(ValueError, match="drops gives two outputs for one input"):
        check_attention(drops)


@pytest.mark.parametrize(
    ("attention", "options", "error", "message"),
    [
        (
            lambda a, b, c, d: a,
            {},
            TypeError,
            r"cannot infer how to call <lambda>\(a, b, c, d\): give style=, one of",
        ),
        (
            Stacked(),
            {"style": "other"},
            ValueError,
            "style='other' must be one of ours, sdpa, mha, mask, causal, both",
        ),
        (
            lambda x: x,
            {},
            ValueError,
            "the width of <lambda> is not known: give d_model",
        ),
        (
            Stacked(),
            {"skip": ["leaks"]},
            ValueError,
            r"skip=\['leaks'\] are not among the checks: leak, ",
        ),
    ],
)
def test_what_cannot_be_called_is_refused(
    attention: Any, options: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_attention(attention, **options)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a function or a module, not int"):
        make_subject(3)


def test_a_function_of_features_and_an_oracle_of_ones_own() -> None:
    layer = Separate()
    report = check_attention(
        lambda x: layer(x), d_model=D_MODEL, dtype=torch.float64, oracle=layer.double()
    )
    verdicts = {each.check: each for each in report.verdicts}
    assert report.passed
    assert verdicts["output"].passed
    assert verdicts["dtypes"].passed

    wrong = check_attention(Stacked(), oracle=Separate().eval().double())
    assert wrong.failed == ["output", "gradient"]


def test_a_cache_of_ones_own_can_be_read() -> None:
    def pieces(layer: MultiHeadAttention, x: Tensor, sizes: Any) -> Tensor:
        cache = DenseCache(*(x.new_zeros(len(x), 5, 7, 4) for _ in range(2)))
        cut = x.split([*sizes], dim=1)
        return torch.cat([layer(each, causal=True, cache=cache) for each in cut], dim=1)

    def forgets(layer: MultiHeadAttention, x: Tensor, sizes: Any) -> Tensor:
        return torch.cat([layer(each, causal=True) for each in x.split([*sizes], 1)], 1)

    layer = MultiHeadAttention(d_model=D_MODEL, num_heads=HEADS)
    assert check_attention(layer, pieces=pieces).passed
    report = check_attention(layer, pieces=forgets)
    assert report.failed == ["cache"]
    (verdict,) = [each for each in report.verdicts if each.passed is False]
    assert verdict.reason == (
        "row 3 changes when the sequence is read in pieces of (3, 1, 2, 1)"
    )


def test_causal_or_not_is_one_line_in_a_test() -> None:
    assert_causal(Stacked())
    assert_causal(F.scaled_dot_product_attention)
    assert_causal(MultiHeadAttention(d_model=D_MODEL, num_heads=HEADS))
    for wrong in (Stacked(diagonal=1), Fused(always=False), Separate(fill=-1e4)):
        with pytest.raises(AssertionError, match="FAILED"):
            assert_causal(wrong)
    unmasked = MultiHeadAttention(d_model=D_MODEL, num_heads=HEADS)
    for wrong in (lambda x: unmasked(x), lambda x: x + x.mean(dim=1, keepdim=True)):
        with pytest.raises(AssertionError, match="attends to both sides: a later"):
            assert_causal(wrong, d_model=D_MODEL)


def test_a_whole_model_is_causal_or_not() -> None:
    config = GPTConfig(vocab_size=11, max_seq_len=7, d_model=12, num_heads=3)
    model = GPT(config)
    assert_causal(model, vocab_size=11)
    for name in ("block-summaries", "only-while-training", "mask-after-softmax"):
        with pytest.raises(AssertionError, match="GPT is WRONG: "):
            assert_causal(with_steps(model, EXHIBITS[name].steps), vocab_size=11)


def test_right_or_not_is_one_line_in_a_test() -> None:
    assert_attention(Stacked())
    with pytest.raises(AssertionError, match="Stacked is WRONG: the mask ends one"):
        assert_attention(Stacked(diagonal=1))
    with pytest.raises(AssertionError, match="Linear is not known to be right"):
        assert_attention(nn.Linear(4, 4))
    with pytest.raises(AssertionError, match="its output is the same whatever"):
        assert_causal(lambda x: 0 * x, d_model=4)


class Forgetful(nn.Module):
    """A layer whose mask is lost on a path that only training with dropout takes."""

    def __init__(self, *, forgets: bool) -> None:
        super().__init__()
        self.num_heads, self.dropout, self.forgets = 5, 0.1, forgets
        self.qkv, self.proj = nn.Linear(20, 60), nn.Linear(20, 20)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (5, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        p = self.dropout if self.training else 0.0
        causal = not (self.forgets and p > 0)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=causal)
        return self.proj(y.transpose(1, 2).flatten(2))


def test_a_mask_lost_in_training_with_dropout_is_missed() -> None:
    assert check_attention(Forgetful(forgets=False))
    report = check_attention(Forgetful(forgets=True))
    assert report.failed == ["modes"]
    assert "training with dropout, the past moves when the last token" in str(report)
