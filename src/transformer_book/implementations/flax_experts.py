"""A mixture of experts in Flax, in which every expert reads every token."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tested_transformer.experts import MixtureOfExperts
from transformer_book.implementations.question import Parameters

try:
    import jax
    import jax.numpy as jnp
    from flax import linen
except ImportError as error:
    raise ImportError(
        'flax_experts needs JAX and Flax: pip install "tested-transformer[jax]"'
    ) from error

__all__ = ["FlaxExperts", "convert", "expert_gaps"]


# --8<-- [start:module]
class FlaxExperts(linen.Module):
    """Several feed-forwards with GELU, with a router that picks a few for each token.

    JAX compiles for shapes known beforehand, but the number of tokens for an expert is
    not known. So every expert reads all tokens, and a share of 0 removes the output of
    experts that were not picked.

    Attributes:
        num_experts: How many feed-forwards there are.
        experts_per_token: How many of them each token uses.
        d_ff: The width inside each expert.
    """

    num_experts: int
    experts_per_token: int
    d_ff: int

    @linen.compact
    def __call__(self, x: Float[jax.Array, "*batch D"]) -> Float[jax.Array, "*batch D"]:
        """Return the sum of the experts' outputs, each times its share."""
        n, width, inner = self.num_experts, x.shape[-1], self.d_ff
        init = linen.initializers.lecun_normal(batch_axis=0)
        up = self.param("up", init, (n, width, inner))
        up_bias = self.param("up_bias", linen.initializers.zeros, (n, inner))
        down = self.param("down", init, (n, inner, width))
        down_bias = self.param("down_bias", linen.initializers.zeros, (n, width))

        probabilities = linen.softmax(linen.Dense(n, use_bias=False, name="router")(x))
        shares, chosen = jax.lax.top_k(probabilities, self.experts_per_token)
        if self.experts_per_token > 1:
            shares = shares / shares.sum(-1, keepdims=True)
        # (..., n): the share of every expert, 0 for those that were not picked.
        shares = jnp.einsum("...k,...km->...m", shares, jax.nn.one_hot(chosen, n))

        hidden = jnp.einsum("...d,mdf->...mf", x, up) + up_bias
        hidden = linen.gelu(hidden, approximate=False)
        outputs = jnp.einsum("...mf,mfd->...md", hidden, down) + down_bias
        return jnp.einsum("...m,...md->...d", shares, outputs)


# --8<-- [end:module]


def convert(weights: Parameters) -> Parameters:
    """Stack the experts' matrices, transposed: ours are (out, in), Flax's (in, out).

    Args:
        weights: The state of a ``MixtureOfExperts``, or its gradients by name.
    """
    num_experts = len(weights["router.weight"])

    def stacked(name: str) -> Tensor:
        parts = [weights[f"experts.{index}.{name}"] for index in range(num_experts)]
        return torch.stack([part.mT if part.ndim == 2 else part for part in parts])

    return {
        "router": weights["router.weight"].mT,
        "up": stacked("up.weight"),
        "up_bias": stacked("up.bias"),
        "down": stacked("down.weight"),
        "down_bias": stacked("down.bias"),
    }


# --8<-- [start:gaps]
def expert_gaps(
    layer: MixtureOfExperts,
    x: Float[Tensor, "*batch D"],
    direction: Float[Tensor, "*batch D"],
) -> dict[str, float]:
    """Return how far Flax's experts and ours differ, with equal weights and input.

    Args:
        layer: The layer whose weights both use; with activation ``gelu`` and biases.
        x: The input of both.
        direction: Gradients are those of ``(direction * output).sum()``.

    Returns:
        The largest difference of the output, of the gradient of ``x``, and of the
        gradient of each of Flax's parameters.
    """
    names, parameters = zip(*layer.named_parameters(), strict=True)
    x = x.detach().requires_grad_()
    output = layer(x)
    gradients = torch.autograd.grad(output, [x, *parameters], direction)
    ours = {"output": output.detach(), "x": gradients[0]}
    ours |= convert(dict(zip(names, gradients[1:], strict=True)))

    expert: torch.nn.Module = layer.experts[0]
    d_ff = expert.get_submodule("up").get_parameter("bias").numel()
    module = FlaxExperts(len(layer.experts), layer.experts_per_token, d_ff)

    def call(weights: dict[str, jax.Array], x: jax.Array) -> Any:
        router = {"kernel": weights["router"]}
        return module.apply({"params": {**weights, "router": router}}, x)

    with jax.enable_x64(x.dtype == torch.float64):
        weights = {
            name: jnp.asarray(part.detach().numpy())
            for name, part in convert(layer.state_dict()).items()
        }
        flax_output, pull_back = jax.vjp(
            jax.jit(call), weights, jnp.asarray(x.detach().numpy())
        )
        of_weights, of_x = pull_back(jnp.asarray(direction.numpy()))
    theirs = {"output": flax_output, "x": of_x, **of_weights}
    return {
        name: (torch.tensor(theirs[name].tolist(), dtype=x.dtype) - value)
        .abs()
        .max()
        .item()
        for name, value in ours.items()
    }


# --8<-- [end:gaps]
