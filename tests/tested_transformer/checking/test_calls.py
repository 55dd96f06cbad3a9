"""Calls as people write them: masks of every meaning, weights beside the output, ..."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.attentions import ChosenBlocks
from tested_transformer.checking import Report, check_attention
from tested_transformer.multihead import MultiHeadAttention

D_MODEL, HEADS = 20, 5

pytestmark = pytest.mark.usefixtures("as_a_caller")


def split(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


class Base(nn.Module):
    """Four projections, and what is done between them."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(D_MODEL, D_MODEL) for _ in range(4)
        )
        self.options = options

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, scores_of: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        q, k, v = split(self.q_proj(q)), split(self.k_proj(k)), split(self.v_proj(v))
        weights = scores_of(q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2)), weights


def triangle(scores: Tensor) -> Tensor:
    upper = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(upper, -torch.inf)


class Added(Base):
    def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Any:
        return self.attend(*[hidden_states] * 3, lambda scores: scores + attention_mask)


class Forbidden(Base):
    def forward(self, x: Tensor, src_mask: Tensor | None = None) -> Tensor:
        def masked(scores: Tensor) -> Tensor:
            if src_mask is None:
                return scores
            scores = scores.masked_fill(src_mask, -torch.inf)
            return scores.masked_fill((scores == -torch.inf).all(-1, True), 0.0)

        return self.attend(x, x, x, masked)[0]


class Square(Base):
    def forward(self, x: Tensor, tgt_mask: Tensor) -> Tensor:
        assert tgt_mask.ndim == 2
        allowed = tgt_mask == 1
        return self.attend(x, x, x, lambda s: s.masked_fill(~allowed, -torch.inf))[0]


class Required(Base):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        empty = ~mask.any(-1, keepdim=True)
        return self.attend(
            x, x, x, lambda s: s.masked_fill(~mask & ~empty, -torch.inf)
        )[0]


class WithWeights(Base):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.attend(x, x, x, triangle)


class ThreeTimes(Base):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attend(q, k, v, triangle)[0]


class BothSides(Base):
    def forward(self, x: Tensor) -> Tensor:
        scale = self.options.get("scale", 1.0)
        return self.attend(x, x, x, lambda scores: scale * scores)[0]


class TimeFirst(Base):
    batch_first = False

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output, weights = self.attend(*[x.transpose(0, 1)] * 3, triangle)
        return output.transpose(0, 1), weights


class SinglePrecision(Base):
    def forward(self, x: Tensor) -> Tensor:
        def scores_of(scores: Tensor) -> Tensor:
            return triangle(scores).float().log_softmax(dim=-1).to(scores.dtype)

        return self.attend(x, x, x, scores_of)[0]


def heads_without_mask(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = triangle(q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)
    return weights @ v, weights


def heads_last(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = True, scale: float = 1.0
) -> Tensor:
    """Takes (B, T, H, d_k) and returns it."""
    scores = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5 * scale
    length, past = k.shape[1], k.shape[1] - q.shape[1]
    if causal:
        later = torch.ones(length, length, dtype=torch.bool).triu(1)[past:]
        scores = scores.masked_fill(later, -torch.inf)
    return torch.einsum("bhts,bshd->bthd", scores.softmax(dim=-1), v)


class MaskAndIsCausal(Base):
    """Has the name of a mask of one style, and that of the flag of the other."""

    def forward(
        self, x: Tensor, mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        def masked(scores: Tensor) -> Tensor:
            lowest = torch.finfo(scores.dtype).min
            scores = triangle(scores) if is_causal else scores
            return scores if mask is None else scores.masked_fill(~mask, lowest)

        return self.attend(x, x, x, masked)[0]


RIGHT: dict[str, tuple[Callable[[], Any], dict[str, Any], str, str]] = {
    "added": (Added, {}, "mask", "In attention_mask, numbers are added to the scores"),
    "true is ignore": (
        *(Forbidden, {"mask_means": "ignore"}, "mask"),
        "In src_mask, True means ignore",
    ),
    "two axes": (Square, {}, "mask", "In tgt_mask, True means may attend"),
    "required": (Required, {}, "ours", ""),
    "weights too": (WithWeights, {}, "causal", ""),
    "q, k, v": (ThreeTimes, {}, "causal", ""),
    "function of heads": (lambda: heads_without_mask, {}, "causal", ""),
    "heads last": (lambda: heads_last, {"heads_first": False}, "ours", ""),
    "names of two styles": (MaskAndIsCausal, {}, "sdpa", ""),
    "both, said": (BothSides, {"style": "both"}, "both", ""),
    "sequence first": (TimeFirst, {}, "causal", ""),
    "float32 inside": (SinglePrecision, {}, "causal", "It computes in float32 inside"),
}


def verdict(report: Report, name: str) -> tuple[bool | None, str]:
    (found,) = [each for each in report.verdicts if each.check == name]
    return found.passed, found.reason


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes_however_it_is_called(name: str) -> None:
    make, options, style, note = RIGHT[name]
    report = check_attention(make(), **options)
    assert report.passed, str(report)
    assert report.style == style
    assert "".join(report.notes).startswith(note)
    assert bool(report.notes) == bool(note)


def test_what_attends_to_both_sides_is_not_known_until_somebody_says_so() -> None:
    report = check_attention(BothSides())
    assert (report.state, report.style, report.failed) == ("not known", "both", [])
    assert "give style='both' if that is meant" in str(report).splitlines()[1]
    assert verdict(report, "leak") == (None, "attends to both sides")
    causal = check_attention(BothSides(), style="causal")
    assert "leak" in causal.failed
    assert causal.likely[0].name == "no-causal-mask"
    wrong = check_attention(BothSides(scale=HEADS**-0.5), style="both")
    assert wrong.failed == ["output", "gradient"]
    assert [each.name for each in wrong.likely] == ["scaled-by-width"]


def test_what_has_a_triangle_should_be_causal() -> None:
    for name, value in (("bias", torch.ones(1, 1, 64, 64).tril()), ("odd", None)):
        layer = BothSides()
        layer.register_buffer(name, value)
        layer.is_causal = value is None
        report = check_attention(layer)
        assert report.style == "causal"
        assert "leak" in report.failed
    layer = BothSides()
    layer.is_causal = False
    assert check_attention(layer).passed


def test_who_knows_what_a_mask_means_can_say_it() -> None:
    assert check_attention(Required(), mask_means="attend").passed
    turned = check_attention(Required(), mask_means="ignore")
    assert turned.state == "wrong"
    assert "the mask is inverted" in str(turned).splitlines()[0]
    with pytest.raises(ValueError, match="mask_means='true' must be one of"):
        check_attention(Required(), mask_means="true")


def test_the_sequence_may_come_first_without_an_attribute() -> None:
    layer = TimeFirst()
    report = check_attention(layer, batch_first=True)
    assert report.state == "wrong"
    assert check_attention(lambda x: layer(x), batch_first=False).passed


def test_one_more_slip_is_caught_in_each_call() -> None:
    class Scaled(Added):
        def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Any:
            def scores_of(scores: Tensor) -> Tensor:
                return 2.0 * scores + attention_mask  # times the root of 4

            return self.attend(*[hidden_states] * 3, scores_of)

    report = check_attention(Scaled())
    assert [each.name for each in report.likely] == ["no-scale"]
    for heads_first in (False, None):
        report = check_attention(
            partial(heads_last, scale=2.0), d_model=16, heads_first=heads_first
        )
        assert [each.name for each in report.likely] == ["no-scale"]


def test_a_function_that_attends_over_heads_is_not_known_until_that_is_said() -> None:
    report = check_attention(heads_last)
    assert (report.state, report.failed) == ("not known", [])
    assert "give heads_first=False if it takes that" in str(report)
    assert check_attention(heads_last, heads_first=True).state == "wrong"
    with pytest.raises(ValueError, match="heads_first=True is for a function of heads"):
        check_attention(Required(), heads_first=True)


def test_a_function_may_be_causal_and_nothing_else() -> None:
    def always(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
        assert causal
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        return heads_last(q, k, v).transpose(1, 2)

    report = check_attention(always)
    assert report.passed, str(report)

    def doubled(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return heads_without_mask(q * q.shape[-1] ** 0.5, k, v)

    assert check_attention(doubled).failed == ["output", "gradient"]


SIZES = {
    "hidden_size": D_MODEL,
    "num_attention_heads": HEADS,
    "intermediate_size": 30,
    "num_hidden_layers": 1,
    "vocab_size": 11,
}


@pytest.mark.parametrize("way", ["eager", "sdpa"])
def test_berts_layer_is_right_and_with_a_slip_wrong(way: str) -> None:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertSelfAttention

    config = BertConfig(**SIZES)
    config._attn_implementation = way
    layer = BertSelfAttention(config)
    report = check_attention(layer)
    assert report.passed, str(report)
    assert [verdict(report, x)[0] for x in ("padding", "empty rows")] == [True, True]
    layer.scaling = 1.0
    assert [each.name for each in check_attention(layer).likely] == ["no-scale"]


@pytest.mark.parametrize("way", ["eager", "sdpa"])
def test_llamas_layer_needs_an_adapter_of_three_lines(way: str) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention

    config = LlamaConfig(**SIZES, num_key_value_heads=1, head_dim=4)
    config._attn_implementation = way
    layer = LlamaAttention(config, 0)

    def called(x: Tensor, attention_mask: Tensor) -> Tensor:
        still = torch.ones_like(x[:1, :, :4])  # positions that turn nothing
        return layer(x, (still, 0 * still), attention_mask)[0]

    report = check_attention(called)
    assert report.passed, str(report)
    turning = torch.arange(64.0)[None, :, None] * torch.tensor([1.0, 0.1, 1.0, 0.1])

    def turned(x: Tensor, attention_mask: Tensor) -> Tensor:
        cos, sin = (f(turning[:, : x.shape[1]]).to(x) for f in (torch.cos, torch.sin))
        return layer(x, (cos, sin), attention_mask)[0]

    report = check_attention(turned)
    assert report.passed, str(report)
    assert report.form == "rotary positions (halves, base 100)"
    layer.scaling = 1.0
    assert check_attention(called).failed == ["output", "gradient"]


TRANSFORMERS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "Llama": ("llama", "LlamaAttention", "LlamaConfig", {"num_key_value_heads": 2}),
    "GPT-NeoX": ("gpt_neox", "GPTNeoXAttention", "GPTNeoXConfig", {}),
    "Qwen 3": (
        *("qwen3", "Qwen3Attention", "Qwen3Config"),
        {"num_key_value_heads": 2, "head_dim": 6},
    ),
    "Gemma 3": (
        *("gemma3", "Gemma3Attention", "Gemma3TextConfig"),
        {"num_key_value_heads": 2, "head_dim": 6, "query_pre_attn_scalar": 7},
    ),
    "OPT": ("opt", "OPTAttention", "OPTConfig", {}),
    "BERT": ("bert", "BertSelfAttention", "BertConfig", {}),
}


@pytest.mark.parametrize(
    "way", ["eager", pytest.param("sdpa", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_layers_of_transformers_are_right_as_they_are(name: str, way: str) -> None:
    """Most read both sides if they are given no mask, and say ``is_causal``."""
    model, layer, config, options = TRANSFORMERS[name]
    there = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2}
    made = getattr(importlib.import_module(f"transformers.models.{model}"), config)(
        **sizes, **options, attn_implementation=way
    )
    attention = getattr(there, layer)(made, *[] if name == "BERT" else [0])
    report = check_attention(attention)
    assert report, str(report)
    assert {"leak", "padding"} <= {x.check for x in report.verdicts if x.passed}
    if name in ("Llama", "Qwen 3"):  # and wrong with a slip
        attention.scaling = 1.0
        wrong = check_attention(attention)
        assert [each.name for each in wrong.likely] == ["no-scale"]


def nanochats(layer: nn.Module, *, causal: bool = True) -> Callable[..., Tensor]:
    """Return its attention, with norms, positions and zeros at the end."""

    def turn(x: Tensor) -> Tensor:
        angle = torch.arange(x.shape[-2])[:, None] / 100 ** torch.arange(0, 1, 0.5)
        one, other = x.chunk(2, dim=-1)
        cos, sin = angle.cos().to(x), angle.sin().to(x)
        return torch.cat([one * cos + other * sin, other * cos - one * sin], dim=-1)

    def called(x: Tensor) -> Tensor:
        q, k, v = (
            split(each(x)) for each in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        q, k = (1.2 * F.rms_norm(turn(each), (q.shape[-1],)) for each in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return layer.o_proj(y.transpose(1, 2).flatten(2))

    return called


@pytest.mark.nightly
def test_nanochats_layer_as_it_begins_is_never_passed() -> None:
    layer = Base()
    nn.init.zeros_(layer.o_proj.weight)
    nn.init.zeros_(layer.o_proj.bias)
    for skip in ((), ("permutation",)):
        right = check_attention(nanochats(layer), skip=skip)
        assert right.state == "not known", str(right)
        assert "it has positions or a window of an" in right.unknown[0]
        leaky = check_attention(nanochats(layer, causal=False), skip=skip)
        assert leaky.state == "not known"
        assert "it attends to both sides" in leaky.unknown[0]
    assert not layer.o_proj.weight.any()


def test_positions_excuse_no_more_than_they_explain() -> None:
    class Turning(Base):
        """Positions are added to the features, and a key too many is read."""

        def forward(self, x: Tensor) -> Tensor:
            places = torch.arange(x.shape[1])[:, None].to(x) / 10
            diagonal = self.options.get("diagonal", 1)
            upper = torch.ones(x.shape[1], x.shape[1]).triu(diagonal).bool()

            def hidden(scores: Tensor) -> Tensor:
                return scores.masked_fill(upper, -torch.inf)

            return self.attend(x + places, x + places, x, hidden)[0]

    layer = Turning()
    assert check_attention(layer).unknown == (
        "not compared with attention: the order of the past matters: it has positions "
        "or a window of an unknown kind (give oracle=), or a bug in which keys and "
        "values a head reads",
    )
    assert "leak" in check_attention(Turning(diagonal=2)).failed
    wrong = check_attention(layer, oracle=lambda x: 2 * x)
    assert {"output", "gradient"} <= {*wrong.failed}


class Reading(nn.Module):
    """One sequence reads another, as in the middle of a decoder."""

    def __init__(self, *, keys_of: int = 1) -> None:
        super().__init__()
        self.heads, self.keys_of = HEADS, keys_of
        self.to_q, self.to_out = (
            nn.Linear(D_MODEL, D_MODEL),
            nn.Linear(D_MODEL, D_MODEL),
        )
        self.to_kv = nn.Linear(D_MODEL, 2 * D_MODEL)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        k, v = self.to_kv((x, context)[self.keys_of]).chunk(2, dim=-1)
        q, k, v = map(split, (self.to_q(x), k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(y.transpose(1, 2).flatten(2))


def test_what_reads_another_sequence_is_given_one() -> None:
    report = check_attention(Reading())
    assert (report.state, report.style) == ("right", "both"), str(report)
    wrong = check_attention(Reading(keys_of=0))  # it reads itself
    assert wrong.failed == ["output", "gradient"]
    assert "output: cross: " in str(wrong).splitlines()[0]


class Rotated(nn.Module):
    """Positions in a table, a mask of keys in numbers, and the output in a list."""

    def __init__(self, *, halves: bool, keys: bool = True) -> None:
        super().__init__()
        self.n_heads, self.halves, self.keys = 3, halves, keys
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(24, 24) for _ in range(4))

    def turn(self, x: Tensor, table: Any) -> Tensor:
        if self.halves:
            one, other = x.chunk(2, dim=-1)
            cos, sin = (each.chunk(2, dim=-1)[0][:, None] for each in table)
            return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)
        pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * table).flatten(-2).to(x)

    def forward(
        self,
        x: Tensor,
        start_pos: int,
        freqs: Any,
        past_key_value: Any,
        attention_mask: Tensor | None = None,
    ) -> list[Tensor | None]:
        q, k, v = (
            each(x).unflatten(-1, (3, -1)).transpose(1, 2)
            for each in (self.wq, self.wk, self.wv)
        )
        assert start_pos == 0
        assert past_key_value is None
        q, k = self.turn(q, freqs), self.turn(k, freqs) if self.keys else k
        scores = (q @ k.mT / 8**0.5).masked_fill(
            torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e30
        )
        if attention_mask is not None:
            scores = scores + (1.0 - attention_mask[:, None, None]) * -1e30
        y = scores.softmax(dim=-1) @ v
        return [self.wo(y.transpose(1, 2).flatten(2)), None]


@pytest.mark.parametrize("halves", [True, False])
def test_what_a_layer_wants_beside_its_features_is_made_for_it(halves: bool) -> None:
    report = check_attention(Rotated(halves=halves), skip=["dtypes"])
    assert report, str(report)
    assert report.form.startswith("rotary positions (")
    checks = {each.check for each in report.verdicts if each.passed}
    assert {"leak", "padding", "empty rows"} <= checks
    wrong = check_attention(Rotated(halves=halves, keys=False), skip=["dtypes"])
    assert [each.name for each in wrong.likely] == ["rotary-on-queries-alone"]


class Renamed(Rotated):
    """The table has another name."""

    def forward(self, x: Tensor, freq_cis: Tensor) -> Any:
        return super().forward(x, 0, freq_cis, None)


def test_a_table_of_angles_may_have_another_name() -> None:
    report = check_attention(Renamed(halves=False), skip=["dtypes"])
    assert report, str(report)
    assert report.form.startswith("rotary positions (")


class Normed(nn.Module):
    """Features are added to the output, and the sum is normed."""

    def __init__(self, fill: float = -torch.inf, scale: float = 0.5) -> None:
        super().__init__()
        self.n_head, self.fill, self.scale = HEADS, fill, scale
        self.w_qs, self.w_ks, self.w_vs, self.fc = (
            nn.Linear(D_MODEL, D_MODEL, bias=False) for _ in range(4)
        )
        self.layer_norm = nn.LayerNorm(D_MODEL)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        heads = [
            split(f(x)) for f, x in ((self.w_qs, q), (self.w_ks, k), (self.w_vs, v))
        ]
        scores = heads[0] @ heads[1].mT * self.scale
        weights = scores.masked_fill(mask == 0, self.fill).softmax(dim=-1)
        y = (weights @ heads[2]).transpose(1, 2).flatten(2)
        return self.layer_norm(self.fc(y) + q)


def test_what_is_around_attention_is_taken_for_what_it_is() -> None:
    report = check_attention(Normed(fill=-1e30))
    assert report.failed == ["dtypes"], str(report)
    assert report.form == "its features added to the output, a norm around it"
    # A bug is named where another fill than ours stays to be seen.
    wrong = check_attention(Normed(fill=-1e4, scale=1.0))
    assert [each.name for each in wrong.likely] == ["no-scale"], str(wrong)


@pytest.mark.nightly
def test_a_layer_that_refuses_to_read_both_sides_is_asked_for_the_past() -> None:
    core = ChosenBlocks(block_size=2, num_chosen=2)
    layer = MultiHeadAttention(d_model=20, num_heads=5, core=core)
    report = check_attention(layer)
    assert report.state == "not known", str(report)
    core = ChosenBlocks(block_size=2, num_chosen=99)
    every = MultiHeadAttention(d_model=20, num_heads=5, core=core)
    assert check_attention(every).state == "right"


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3, 3), (1, 0, 2)])
def test_a_buffer_with_nothing_in_it_says_nothing(shape: tuple[int, ...]) -> None:
    layer = nn.MultiheadAttention(20, 5, batch_first=True)
    layer.register_buffer("causal_bias", torch.zeros(shape))
    layer.register_buffer("rope_freqs", torch.zeros(shape))
    assert check_attention(lambda x: layer(x, x, x)[0]).failed == []


class LikePyTorch(Base):
    """Its masks have the names of PyTorch's layer, but one is added to the scores."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        def masked(scores: Tensor) -> Tensor:
            scores = scores if attn_mask is None else scores + attn_mask
            if key_padding_mask is None:
                return scores
            hidden = key_padding_mask[:, None, None]
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min)

        return self.attend(query, key, value, masked)


class WithItself(LikePyTorch):
    """It takes three inputs, but reads the first alone, and wants a bias."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_bias: Tensor | None,
        attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        assert query.shape == key.shape == value.shape
        return super().forward(query, query, query, attn_mask, key_padding_mask)


class OneInput(LikePyTorch):
    """Its masks have the names of PyTorch's layer, and it takes one input."""

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
    ) -> Tensor:
        return super().forward(x, x, x, attn_mask, key_padding_mask)[0]


@pytest.mark.parametrize("make", [LikePyTorch, WithItself, OneInput])
def test_a_mask_with_pytorchs_name_may_be_added(make: Callable[..., Base]) -> None:
    torch.manual_seed(0)
    report = check_attention(make(), mask_means="add")
    assert report.passed, str(report)
    report = check_attention(make())
    assert report.failed == [], str(report)
    assert "numbers are added to the scores" in "".join(report.notes)
    # With the names of the three inputs, it could be meant to take True and False.
    assert report.passed == (make is OneInput)


class SequenceFirst(Base):
    """It takes (T, B, D) without saying so, and masks by itself."""

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(*[x.transpose(0, 1)] * 3, triangle)[0].transpose(0, 1)


class SequenceFirstMasked(Base):
    """It takes (T, B, D), and a mask of queries and keys."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        def masked(scores: Tensor) -> Tensor:
            return scores.masked_fill(mask, torch.finfo(scores.dtype).min)

        return self.attend(*[x.transpose(0, 1)] * 3, masked)[0].transpose(0, 1)


def test_features_may_have_the_sequence_first() -> None:
    torch.manual_seed(0)
    report = check_attention(SequenceFirst())
    assert report.state == "not known", str(report)
    assert "give batch_first=False if it takes (T, B, D)" in report.unknown[0]
    assert check_attention(SequenceFirst(), batch_first=False).passed
    wrong = check_attention(SequenceFirst(), batch_first=True)
    assert [each.name for each in wrong.likely] == ["attention-across-batch"]
    # With a mask of (T, T), it could not take (B, T, D).
    report = check_attention(SequenceFirstMasked(), mask_means="ignore")
    assert report.passed, str(report)
    assert report.notes[-1].startswith("It takes (T, B, D)")


class Masked(Base):
    """Takes a mask of keys (B, T), 1 for tokens, and does something odd."""

    def __init__(self, odd: str) -> None:
        super().__init__()
        self.odd, self.kept = odd, torch.empty(0)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None:
            return self.attend(x, x, x, lambda scores: scores)[0]
        mask = attention_mask[:, None, None, :].bool()
        if self.odd == "keeps":
            fresh = self.kept.shape[-1:] != x.shape[1:2]
            self.kept = mask = mask if fresh else self.kept
        elif self.odd == "writes into x":
            x *= attention_mask[..., None]
        elif self.odd == "writes into its mask":
            attention_mask[:, 0] = 1
        elif self.odd == "wrong axis":
            mask = mask.mT

        def scores_of(scores: Tensor) -> Tensor:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            return F.dropout(scores, 0.1) if self.odd == "draws" else scores

        return self.attend(x, x, x, scores_of)[0]


ODD = {
    "keeps": "Masked remembers earlier calls: does it keep a mask?",
    "writes into x": "Masked writes into the x that it is given",
    "writes into its mask": "the layer writes into the attention_mask that it is given",
    "draws": "Masked gives two outputs for one input: switch off its dropout",
    "wrong axis": "no mask that was tried.* makes it causal or hides a token: give .*"
    "style='causal' or 'both'",
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_odd_with_any_mask_is_not_blamed_on_its_meaning(odd: str) -> None:
    given: list[dict[str, Any]] = [{}, {"mask_means": "ones"}]
    for options in given:
        with pytest.raises((TypeError, ValueError), match=ODD[odd]):
            check_attention(Masked(odd), **options)
    assert check_attention(Masked(""))


class Padded(Base):
    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        return self.attended(x, x, x, key_padding_mask)

    def attended(
        self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None
    ) -> Tensor:
        def scores_of(scores: Tensor) -> Tensor:
            if padding is None:
                return scores
            lowest = torch.finfo(scores.dtype).min
            return scores.masked_fill(padding[:, None, None], lowest)

        return self.attend(q, k, v, scores_of)[0]


def test_a_mask_of_padding_alone_does_not_make_it_pytorchs_call() -> None:
    report = check_attention(Padded())
    assert report.style == "both"
    assert report.failed == [], str(report)
    assert {"padding", "empty rows"} <= {
        each.check for each in report.verdicts if each.passed
    }


class Swallowing(Padded):
    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Any = None, **rest: Any
    ) -> Tensor:
        return self.attended(q, k, v, key_padding_mask)


def test_a_mask_that_a_layer_takes_without_naming_it_is_not_given() -> None:
    report = check_attention(Swallowing())
    assert report.style == "both"
    assert report.failed == [], str(report)


class Patches(Base):
    """Has a table of positions for a fixed number of tokens."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(length, D_MODEL))

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(*[x + self.places] * 3, lambda scores: scores)[0]


class Short(Patches):
    def forward(self, x: Tensor) -> Tensor:
        assert 1 < x.shape[1] <= len(self.places)
        return self.attend(x, x, x, triangle)[0]


@pytest.mark.parametrize(
    ("layer", "takes"), [(Patches(9), 9), (Patches(197), 197), (Short(7), 2)]
)
def test_a_fixed_number_of_tokens_is_told(layer: nn.Module, takes: int) -> None:
    message = (
        f"^{type(layer).__name__} runs with {takes} tokens, but not with 1: the checks "
        "use texts of 1 to 7 tokens, so check a layer that takes them, or a function "
        "around it that does .(Runtime|Assertion)Error"
    )
    for style in (None, "both"):
        with pytest.raises(ValueError, match=message):
            check_attention(layer, style=style)
