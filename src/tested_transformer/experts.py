"""A mixture of experts: more parameters for the same work on each token."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch._subclasses.fake_tensor import is_fake

from tested_transformer.checks import validate_between, validate_sizes
from tested_transformer.layers import FeedForward

__all__ = ["MixtureOfExperts", "count_parameters"]


class MixtureOfExperts(nn.Module):
    """Several feed-forwards, with a router that picks a few of them for each token.

    Args:
        d_model: D, the width of input and output.
        num_experts: How many feed-forwards there are.
        experts_per_token: How many of them each token goes through.
        d_ff: The width inside each expert; ``4 * d_model`` by default.
        activation: One of ``ACTIVATIONS`` or ``GATED``.
        bias: Whether the experts' matrices add a bias.
        router_bias: Whether the router adds one, too.

    Raises:
        ValueError: If a size is not positive, or ``experts_per_token`` is not between 1
            and ``num_experts``.

    Sources: Shazeer et al., 2017, "Outrageously Large Neural Networks"; for a single
    expert and the balance loss Fedus et al., 2021, "Switch Transformers", section 2.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_experts: int,
        experts_per_token: int = 2,
        d_ff: int | None = None,
        activation: str = "gelu",
        bias: bool = True,
        router_bias: bool = False,
    ) -> None:
        super().__init__()
        validate_sizes(num_experts=num_experts)
        validate_between(
            "experts_per_token", experts_per_token, 1, num_experts, "num_experts"
        )
        self.experts_per_token = experts_per_token
        self.router = nn.Linear(d_model, num_experts, bias=router_bias)
        self.experts = nn.ModuleList(
            FeedForward(d_model=d_model, d_ff=d_ff, activation=activation, bias=bias)
            for _ in range(num_experts)
        )
        self.balance_loss = torch.zeros((), device="cpu")  # set by each forward pass

    # --8<-- [start:experts-forward]
    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        """Send each token through its experts, and add up their weighted outputs."""
        tokens = x.reshape(-1, x.shape[-1])
        probabilities, shares, chosen = self.route(tokens)
        output = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, slots = _places(chosen == index)
            share = shares[rows, slots, None].to(tokens.dtype)
            output = output.index_add(0, rows, share * expert(tokens[rows]))
        self.balance_loss = self._balance(probabilities, chosen)
        return output.view_as(x)

    def route(
        self, tokens: Float[Tensor, "tokens D"]
    ) -> tuple[
        Float[Tensor, "tokens experts"],
        Float[Tensor, "tokens chosen"],
        Int[Tensor, "tokens chosen"],
    ]:
        """Pick the experts of each token, independently of the other tokens.

        Returns:
            The probability of every expert; then, for each expert that was picked, most
            probable first, its share in the output and its number. The shares sum to 1,
            except that a single expert's share is its probability.
        """
        scores = self.router(tokens)
        precise = torch.promote_types(scores.dtype, torch.float32)
        probabilities = scores.softmax(dim=-1, dtype=precise)
        shares, chosen = probabilities.topk(self.experts_per_token, dim=-1)
        if self.experts_per_token > 1:
            # With one expert the share would always be 1: no gradient for the router.
            shares = shares / shares.sum(dim=-1, keepdim=True)
        return probabilities, shares, chosen

    def _balance(self, probabilities: Tensor, chosen: Tensor) -> Tensor:
        """Return the balance loss: 1 with equal use, at most the number of experts.

        It multiplies means over these tokens, so that of a whole batch is not the mean
        of its parts' losses.
        """
        num_experts = probabilities.shape[-1]
        numbers = torch.arange(num_experts, device=chosen.device)
        counts = (chosen.flatten()[:, None] == numbers).sum(dim=0)
        used = counts / chosen.numel()
        return num_experts * (used * probabilities.mean(dim=0)).sum()

    # --8<-- [end:experts-forward]

    def __getstate__(self) -> dict[str, object]:
        # The balance loss of the last pass holds its graph, which cannot be copied.
        return {**self.__dict__, "balance_loss": self.balance_loss.detach()}


def _places(
    picked: Bool[Tensor, "tokens chosen"],
) -> tuple[Int[Tensor, "rows"], Int[Tensor, "rows"]]:
    """Return the rows and the columns of ``True``.

    A tensor on the meta device, or a fake one, has a shape but no numbers. There these
    are as many as there can be: all rows.
    """
    if picked.is_meta or (is_fake(picked) and not torch.compiler.is_compiling()):
        rows = torch.arange(len(picked), device=picked.device)
        return rows, torch.zeros_like(rows)
    rows, slots = picked.nonzero(as_tuple=True)
    return rows, slots


def count_parameters(module: nn.Module, *, active: bool = False) -> int:
    """Count the parameters of a module, or only those that one token goes through.

    Args:
        module: Any module, with or without mixtures of experts inside.
        active: Leave out the experts that a token does not go through. The router
            still counts, since every token goes through it.
    """
    total = sum(parameter.numel() for parameter in module.parameters())
    if active:
        for mixture in module.modules():
            if isinstance(mixture, MixtureOfExperts):
                idle = len(mixture.experts) - mixture.experts_per_token
                total -= idle * count_parameters(mixture.experts[0])
    return total
