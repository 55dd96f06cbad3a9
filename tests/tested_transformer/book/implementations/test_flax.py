"""Flax answers as the library's layer does. JAX is imported here and nowhere else."""

from collections.abc import Callable
from types import ModuleType

import jax
import jax.numpy as jnp
import pytest
import torch

from tested_transformer.book.implementations import (
    Question,
    flax_dense,
    flax_layer,
    flax_packed,
    gaps,
)
from tested_transformer.book.implementations.flax_dense import DenseAttention


# What its page asks with doubles is not asked again: each question is compiled anew.
@pytest.mark.parametrize("module", [flax_dense, flax_packed])
def test_one_dense_layer_answers_as_the_layer_does(
    ask: Callable[..., Question], module: ModuleType
) -> None:
    found = gaps(module, ask(torch.float32))
    assert max(found.values()) <= 1e-5, found
    assert {"output", "x", "qkv_proj.kernel", "o_proj.bias"} <= found.keys()


def test_the_layer_of_flax_answers_as_ours_does(ask: Callable[..., Question]) -> None:
    found = gaps(flax_layer, ask(torch.float32, causal=True, context=True))
    assert max(found.values()) <= 1e-5, found
    assert {"context", "query.kernel", "out.bias"} <= found.keys()


def test_a_second_sequence_is_refused(ask: Callable[..., Question]) -> None:
    message = "DenseAttention does self-attention and nothing else"
    with pytest.raises(ValueError, match=f"^{message}$"):
        flax_dense.prepare(ask(torch.float32, context=True))


def test_the_two_orders_of_one_dense_layer_differ(ask: Callable[..., Question]) -> None:
    question = ask(torch.float32)
    orders = [each.convert(question.weights, 3) for each in (flax_dense, flax_packed)]
    assert [each["qkv_proj.kernel"].shape for each in orders] == [(12, 36)] * 2
    assert not torch.equal(*(each["qkv_proj.kernel"] for each in orders))


@pytest.mark.parametrize("module", [flax_dense, flax_packed, flax_layer])
def test_a_conversion_moves_every_number_and_changes_none(
    ask: Callable[..., Question], module: ModuleType
) -> None:
    weights = ask(torch.float64).weights
    converted = module.convert(weights, 3)
    before, after = (
        torch.cat([each.flatten() for each in some.values()]).sort().values
        for some in (weights, converted)
    )
    assert torch.equal(before, after)


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
