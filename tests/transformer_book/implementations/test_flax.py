"""Flax answers as the library's layer does. JAX is imported here and nowhere else."""

from collections.abc import Callable
from types import ModuleType

import jax
import jax.numpy as jnp
import pytest
import torch

from tested_transformer.experts import MixtureOfExperts
from transformer_book.implementations import (
    Question,
    flax_dense,
    flax_layer,
    flax_packed,
    gaps,
)
from transformer_book.implementations.flax_dense import DenseAttention
from transformer_book.implementations.flax_experts import (
    convert as convert_experts,
    expert_gaps,
)


# What its page asks with doubles is not asked again: each question is compiled anew.
@pytest.mark.parametrize("module", [flax_dense, flax_packed])
def test_one_dense_layer_answers_as_the_layer_does(
    ask: Callable[..., Question], module: ModuleType
) -> None:
    differences = gaps(module, ask(torch.float32))
    assert max(differences.values()) <= 1e-5, differences
    assert {"output", "x", "qkv_proj.kernel", "o_proj.bias"} <= differences.keys()


def test_the_layer_of_flax_answers_as_ours_does(ask: Callable[..., Question]) -> None:
    differences = gaps(flax_layer, ask(torch.float32, causal=True, context=True))
    assert max(differences.values()) <= 1e-5, differences
    assert {"context", "query.kernel", "out.bias"} <= differences.keys()


def test_a_second_sequence_is_refused(ask: Callable[..., Question]) -> None:
    message = "DenseAttention does only self-attention"
    with pytest.raises(ValueError, match=f"^{message}$"):
        flax_dense.prepare(ask(torch.float32, context=True))


def test_dropout_drops_while_training_alone() -> None:
    """With identity in the middle, each value goes through as it is or not at all."""
    module = DenseAttention(num_heads=1, dropout=0.5)
    kernel = jnp.concatenate([jnp.zeros((2, 4)), jnp.eye(2)], axis=1)
    parameters = {
        "qkv_proj": {"kernel": kernel, "bias": jnp.zeros(6)},
        "o_proj": {"kernel": jnp.eye(2), "bias": jnp.zeros(2)},
    }
    x = jnp.ones((1, 7, 2))
    variables = {"params": parameters}
    keys = {"dropout": jax.random.key(0)}

    @jax.jit
    def both(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        kept = module.apply(variables, x)
        return kept, module.apply(variables, x, deterministic=False, rngs=keys)

    kept, dropped = both(x)
    assert jnp.allclose(kept, 1.0)
    # Of seven weights of 1/7 each is doubled or dropped: the sum is an even seventh.
    assert jnp.allclose(dropped * 7 / 2, jnp.round(dropped * 7 / 2), atol=1e-5)
    assert not jnp.allclose(dropped, 1.0)


def test_experts_in_flax_answer_as_ours_do() -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 6, "num_experts": 5, "experts_per_token": 2, "d_ff": 7}
    layer = MixtureOfExperts(**sizes).double()
    x, direction = torch.randn(2, 2, 3, 6, dtype=torch.float64)
    differences = expert_gaps(layer, x, direction)
    assert differences.keys() == {"output", "x", *convert_experts(layer.state_dict())}
    assert max(differences.values()) <= 1e-12, differences
