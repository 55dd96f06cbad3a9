"""Packed weights: what they copy, what they refuse, and matrices of int8."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from tested_transformer.attentions import AdjustedSoftmax
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
    return with_large_weights(GPT(replace(CONFIG, **changes)))


def logits(reader: Decoder | WholeReader) -> Tensor:
    """Return the logits after the prompts, and after each of four further tokens."""
    steps = (reader.step(torch.tensor([6, 7])) for _ in range(4))
    return torch.stack([reader.read(PROMPTS), *steps])


def test_a_decoder_copies_a_model_as_it_is_then():
    """Whatever its config says."""
    model = make(positions="alibi")
    attention = model.blocks[0].attention
    attention.fused, attention.dropout = False, 0.5
    attention.q_norm = attention.k_norm = nn.LayerNorm(D_K, elementwise_affine=False)
    before = logits(Decoder(model))
    for change in (
        lambda: model.get_parameter(f"{UP}.weight").data.mul_(1.5),
        lambda: setattr(model.norm, "eps", 0.5),
        lambda: setattr(model.blocks[1].feed_forward, "activation", torch.relu),
        lambda: (
            setattr(attention, "q_norm", None) or setattr(attention, "k_norm", None)
        ),
        lambda: model.slopes.mul_(30),
    ):
        change()
        after = logits(Decoder(model))
        torch.testing.assert_close(
            after, logits(WholeReader(model)), rtol=1e-4, atol=1e-4
        )
        assert (before - after).abs().amax() > 1e-3
        before = after


class Adapter(nn.Linear):
    """A layer that adds something, like LoRA."""

    def forward(self, x: Tensor) -> Tensor:
        return 1.5 * super().forward(x)


class Extended(GPT):
    """A model that may do anything."""


def changed(change: Callable[[GPT], object]) -> GPT:
    model = make()
    change(model)
    return model


def test_a_model_with_something_of_its_own_is_refused():
    hooked = "has hooks, a forward or weights of its own kind, which the decoder would "
    unknown = "the decoder does not know the"
    core = AdjustedSoftmax(soft_cap=2.0)
    capped = MultiHeadAttention(d_model=H * D_K, num_heads=H, core=core)
    adapter = Adapter(H * D_K, 160)
    for model, message in (
        (
            changed(lambda m: m.norm.register_forward_pre_hook(lambda _, x: x)),
            f"norm {hooked}not run",
        ),
        (
            changed(
                lambda m: prune.random_unstructured(m.get_submodule(UP), "weight", 1)
            ),
            f"{UP} {hooked}not run",
        ),
        (
            changed(lambda m: parametrizations.weight_norm(m.get_submodule(UP))),
            f"{unknown} ParametrizedLinear {UP}",
        ),
        (changed(lambda m: m.set_submodule(UP, adapter)), f"{unknown} Adapter {UP}"),
        (
            changed(lambda m: m.set_submodule("blocks.1.attention", capped)),
            "blocks.1.attention has another core than softmax",
        ),
        (make(num_experts=3), "the decoder does not support num_experts=3"),
        (make(windows=5), "the decoder does not support windows=5"),
        (Extended(CONFIG), f"{unknown} Extended the model"),
    ):
        with pytest.raises(PackingError, match=f"^{message}$"):
            Decoder(model)
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.raises(PackingError, match=f"^the model {hooked}not run$"):
            Decoder(make())
    finally:
        hook.remove()


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"activation": "swiglu", "bias": False}, torch.float32),
        ({"positions": "rotary"}, torch.bfloat16),
    ],
    ids=str,
)
def test_int8_weights_are_near_and_a_quarter(changes, dtype):
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
    for model, weights, message in (
        (make(), "int4", "weights='int4' must be 'own' or 'int8'"),
        (make(d_ff=40), "int8", "weights='int8' needs widths divisible by 32; one pro"),
        (make().to("meta"), "int8", "weights='int8' needs a CPU; the model is on meta"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            Decoder(model, weights=weights)
