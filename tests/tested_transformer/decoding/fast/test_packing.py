"""Packed weights: what they copy, what they refuse, and matrices of int8."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from tested_transformer.attentions import AdjustedSoftmax, DeltaRule
from tested_transformer.decoding import Decoder, PackingError
from tested_transformer.decoding.fast import packing
from tested_transformer.decoding.readers import WholeReader
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.multihead import MultiHeadAttention

# Pairwise different: vocabulary, longest sequence, heads, head width, layers, d_ff.
V, LONGEST, H, D_K, L = 131, 19, 3, 64, 2
CONFIG = GPTConfig(
    vocab_size=V,
    max_seq_len=LONGEST,
    d_model=H * D_K,
    num_heads=H,
    num_layers=L,
    d_ff=160,
    tie_head=False,
)
PROMPTS = [[1, 2, 3], [4, 5]]
UP = "blocks.1.feed_forward.up"


def make(**changes) -> GPT:
    torch.manual_seed(0)
    model = GPT(replace(CONFIG, **changes))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def logits(reader: Decoder | WholeReader) -> Tensor:
    """Return the logits after the prompts, and after each of four further tokens."""
    steps = (reader.step(torch.tensor([6, 7])) for _ in range(4))
    return torch.stack([reader.read(PROMPTS), *steps])


def by_data(model: GPT) -> None:
    model.get_parameter(f"{UP}.weight").data.mul_(1.5)


def by_an_epsilon(model: GPT) -> None:
    model.norm.eps = 0.5


def by_pruning_for_good(model: GPT) -> None:
    prune.l1_unstructured(model.get_submodule(UP), "weight", amount=0.5)
    prune.remove(model.get_submodule(UP), "weight")


def by_activation(model: GPT) -> None:
    model.blocks[1].feed_forward.activation = torch.relu


def by_normed_queries(model: GPT) -> None:
    for block in model.blocks:
        block.attention.q_norm = block.attention.k_norm = nn.LayerNorm(
            block.attention.head_dim, elementwise_affine=False
        )


def by_slopes(model: GPT) -> None:
    model.slopes.mul_(30)


CHANGES: list[Callable[[GPT], None]] = [
    *(by_data, by_an_epsilon, by_pruning_for_good),
    *(by_activation, by_normed_queries, by_slopes),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_decoder_copies_a_model_as_it_is_then(change: Callable[[GPT], None]):
    model = make(positions="alibi")
    before = logits(Decoder(model))
    change(model)
    after, whole = logits(Decoder(model)), logits(WholeReader(model))
    torch.testing.assert_close(after, whole, rtol=1e-4, atol=1e-4)
    assert (before - after).abs().amax() > 1e-3


def by_a_hook(model: GPT) -> None:
    model.get_submodule(UP).register_forward_hook(lambda _, __, out: out * 1.5)


def by_a_hook_before(model: GPT) -> None:
    model.norm.register_forward_pre_hook(lambda _, given: (given[0] * 0 + 1,))


def by_pruning(model: GPT) -> None:
    prune.l1_unstructured(model.get_submodule(UP), "weight", amount=0.5)


def by_a_forward_of_its_own(model: GPT) -> None:
    up = model.get_submodule(UP)
    up.forward = lambda x: 1.5 * nn.Linear.forward(up, x)


def by_a_parametrization(model: GPT) -> None:
    parametrizations.weight_norm(model.get_submodule(UP))


class Adapter(nn.Linear):
    """A layer that adds something, like LoRA."""

    def forward(self, x: Tensor) -> Tensor:
        return 1.5 * super().forward(x)


def by_an_adapter(model: GPT) -> None:
    inner = model.blocks[1].feed_forward
    inner.up = Adapter(inner.up.in_features, inner.up.out_features)


def by_another_core(model: GPT) -> None:
    attention = model.blocks[1].attention
    capped = AdjustedSoftmax(soft_cap=2.0)
    model.blocks[1].attention = MultiHeadAttention(
        d_model=attention.d_model, num_heads=H, core=capped
    )


class Extended(GPT):
    """A model that may do anything."""


HOOKED = "has hooks, a forward or weights of its own kind, which the decoder would not"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (by_a_hook, f"{UP} {HOOKED} run"),
        (by_a_hook_before, f"norm {HOOKED} run"),
        (by_pruning, f"{UP} {HOOKED} run"),
        (by_a_forward_of_its_own, f"{UP} {HOOKED} run"),
        (
            by_a_parametrization,
            f"the decoder does not know the ParametrizedLinear {UP}",
        ),
        (by_an_adapter, f"the decoder does not know the Adapter {UP}"),
        (by_another_core, "blocks.1.attention has another core than softmax"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_module_with_something_added_is_refused(
    change: Callable[[GPT], None], message: str
):
    model = make()
    change(model)
    with pytest.raises(PackingError, match=f"^{message}$"):
        Decoder(model)


def test_a_hook_on_all_modules_is_refused():
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.raises(PackingError, match=f"^the model {HOOKED} run$"):
            Decoder(make())
    finally:
        hook.remove()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: make(num_experts=3), "the decoder does not support num_experts=3"),
        (
            lambda: make(attention=DeltaRule()),
            "the decoder does not support attention=DeltaRule(gated=False, "
            "by_feature=False)",
        ),
        (lambda: make(windows=5), "the decoder does not support windows=5"),
        (
            lambda: make(kept_heads=((0, 2), (1,))),
            "the decoder does not support kept_heads=((0, 2), (1,))",
        ),
        (
            lambda: Extended(CONFIG),
            "the decoder does not know the Extended the model",
        ),
    ],
)
def test_a_model_of_another_kind_is_refused(model: Callable[[], GPT], message: str):
    with pytest.raises(PackingError, match=f"^{re.escape(message)}$"):
        Decoder(model())


def test_dropout_and_the_kernel_of_attention_may_differ_from_the_config():
    model = make()
    model.blocks[0].attention.fused = False
    model.blocks[0].attention.dropout = model.dropout.p = 0.5
    torch.testing.assert_close(
        logits(Decoder(model)), logits(WholeReader(model)), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"activation": "swiglu", "bias": False}, torch.float32),
        ({"positions": "rotary"}, torch.bfloat16),
    ],
    ids=str,
)
def test_int8_weights_are_near_and_a_quarter(changes: dict, dtype: torch.dtype):
    model = make(**changes)
    for parameter in model.parameters():  # as small as trained ones are
        nn.init.normal_(parameter, std=0.05)
    model.to(dtype)
    decoder = Decoder(model, weights="int8")
    exact, rounded = logits(Decoder(model)), logits(decoder)
    assert rounded.dtype == dtype
    apart = (exact - rounded).float().norm() / exact.float().norm()
    assert 1e-4 < apart < 0.02
    matrix = decoder.weights.layers[0].up
    assert matrix.weight.dtype == torch.int8
    assert matrix.weight.abs().amax() == 127


def test_int8_rounds_each_row_by_itself():
    weight = torch.zeros(3, 32)
    weight[:, :3] = torch.tensor([[1.0, -2.0, 0.5], [100.0, 0.0, 50.0], [0, 0, 0]])
    bias = torch.tensor([0.0, 1.0, 2.0])
    matrix = packing.Int8Matrix(weight, bias)
    rounded = [[64, -127, 32], [127, 0, 64], [0, 0, 0]]
    assert matrix.weight[:, :3].tolist() == rounded
    got = matrix.project(torch.eye(32))
    torch.testing.assert_close(got, weight.T + bias, rtol=0.01, atol=0.6)


@pytest.mark.usefixtures("as_a_caller")
def test_int8_says_where_it_cannot_be():
    with pytest.raises(ValueError, match=r"^weights='int4' must be 'own' or 'int8'$"):
        Decoder(make(), weights="int4")
    narrow = (
        "weights='int8' needs widths divisible by 32; one projection has 40 input "
        "features"
    )
    with pytest.raises(PackingError, match=f"^{narrow}$"):
        Decoder(make(d_ff=40), weights="int8")
    message = "weights='int8' needs a CPU; the model is on meta"
    with pytest.raises(ValueError, match=f"^{message}$"):
        Decoder(make().to("meta"), weights="int8")
