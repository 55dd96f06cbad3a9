"""Each form of attention of the library is right, with its settings named."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tested_transformer import MultiHeadAttention, check_attention
from tested_transformer.attentions import (
    ATTENTIONS,
    StateLayer,
    chunked_linear_attention,
)
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.multihead import attend_with_softmax

SHOWN = {
    "latent": "rotary positions (neighbors, base 10000)",
    "gated": "a gate",
    "soft_capped": "cap 50.0",
    "sink": "a sink",
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_each_form_is_right(name: str) -> None:
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=11,
        max_seq_len=70,
        d_model=24,
        num_heads=4,
        num_layers=1,
        attention=ATTENTIONS[name],
        positions="rotary" if name == "latent" else "none",
    )
    layer = GPT(config).blocks[0].attention
    report = check_attention(layer)
    assert report.state == "right", f"checking.py says what {name} computes?\n{report}"
    assert SHOWN.get(name, "") in str(report).splitlines()[0]
    assert "in pieces" in report.covered
    assert ("padded" in report.covered) is config.attention.reads_padding


def test_a_layer_that_is_off_is_wrong() -> None:
    layer = MultiHeadAttention(d_model=24, num_heads=4)
    layer.register_forward_hook(lambda module, args, output: 1.01 * output)
    off = check_attention(layer)
    assert off.state == "wrong", str(off)
    assert {"output", "gradient"} <= {*off.failed}


def test_a_core_of_somebody_else_is_not_taken_for_softmax() -> None:
    def core(q: Tensor, k: Tensor, v: Tensor, x: Tensor, **options: Any) -> Any:
        return attend_with_softmax(0.5 * q, k, v, x, **options)

    layer = MultiHeadAttention(d_model=24, num_heads=4)
    layer.core = core
    report = check_attention(layer)
    assert report.state == "cannot tell", str(report)


class SumOfProducts(StateLayer):
    """A state of somebody else, which this library cannot know."""

    def gates(self, x: Tensor, like: Tensor) -> tuple[Tensor, ...]:
        return ()

    def mix(
        self, q: Tensor, writes: tuple[Tensor, ...], state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        k, v = writes
        return chunked_linear_attention(q, k, v, state=state)


def test_a_state_of_somebody_else_is_not_taken_for_one_of_ours() -> None:
    report = check_attention(SumOfProducts(d_model=24, num_heads=4))
    assert report.state == "cannot tell", str(report)
    assert "in pieces" in report.covered


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        (
            {"num_kv_heads": 1, "dropout": 0.1, "fused": False},
            "6 heads of queries, 1 of",
        ),
        ({"qk_norm": True}, "is right: norms; whole"),
        ({"bias": False, "head_dim": 6}, "is right: whole"),
    ],
)
def test_settings_of_the_layer_are_known(settings: dict[str, Any], shown: str) -> None:
    layer = MultiHeadAttention(**{"d_model": 24, "num_heads": 6} | settings)
    assert shown in str(check_attention(layer)).splitlines()[0]
