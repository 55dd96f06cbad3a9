"""Attention patterns: what each head attended to, and which kind of head does so.

``record_heads`` keeps the weights of one pass. A target marks, for each query (row),
the keys (columns) that a head of some kind would attend to; ``head_scores`` is the
weight that each head puts there. A query is never its own target, and a query without
a target is left out of the score.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tested_transformer.gpt import GPT

__all__ = [
    "Recording",
    "delimiter_target",
    "first_token_target",
    "head_scores",
    "induction_target",
    "previous_token_target",
    "record_heads",
    "repeated_tokens",
    "same_token_target",
    "uniform_score",
]

_Target = Bool[Tensor, "B T S"]


# --8<-- [start:recording]
class Recording(NamedTuple):
    """What one forward pass computed.

    Attributes:
        logits: (B, T, V).
        weights: Of each layer (B, H, T, T), what each query took of each value.
        outputs: Of each layer (B, H, T, d_k), what each head had gathered, before
            ``o_proj`` mixes the heads.
    """

    logits: Float[Tensor, "B T V"]
    weights: list[Float[Tensor, "B H T T"]]
    outputs: list[Float[Tensor, "B H T d_k"]]


def record_heads(model: GPT, tokens: Int[Tensor, "B T"]) -> Recording:
    """Read tokens, and return what every head attended to and put out.

    Nothing is computed a second time: the weights are those of the pass that computed
    the logits, and the outputs are caught on their way into ``o_proj``. No gradient is
    kept.

    Args:
        model: Any GPT; set it to evaluate first if it drops out.
        tokens: Token ids.

    Raises:
        ValueError: If the tokens do not fit the model.
    """
    outputs: list[Tensor] = []

    def listen(module: nn.Module, inputs: tuple[Tensor]) -> None:
        heads = inputs[0].unflatten(-1, (-1, head_dim))
        outputs.append(heads.transpose(1, 2))

    head_dim = model.blocks[0].attention.head_dim
    with ExitStack() as hooks, torch.no_grad():
        for block in model.blocks:
            o_proj = block.attention.o_proj
            hooks.enter_context(o_proj.register_forward_pre_hook(listen))
        logits, weights = model(tokens, return_weights=True)
    return Recording(logits, weights, outputs)


# --8<-- [end:recording]


# --8<-- [start:scores]
def head_scores(
    weights: Sequence[Float[Tensor, "B H T S"]], target: Bool[Tensor, "B T S"]
) -> Float[Tensor, "L H"]:
    """Return the weight that each head puts on the target, from 0 to 1.

    It is the mean over all queries that have a target; the others do not count.

    Args:
        weights: Of each layer, as ``Recording.weights`` has them.
        target: ``True`` for the keys that a head of this kind attends to.

    Raises:
        ValueError: If no query has a target, or layers have different numbers of
            heads, as after ``prune_heads``.
    """
    _validate_equal_heads(weights)
    asked = _queries_with_target(target)
    marked = target[:, None].to(weights[0].dtype)
    on_target = torch.stack([(each * marked).sum(dim=-1) for each in weights])
    return on_target.transpose(1, 2)[:, :, asked].mean(dim=-1)


def uniform_score(target: Bool[Tensor, "B T S"]) -> float:
    """Return the score of a head that attends alike to all tokens up to the query.

    Raises:
        ValueError: If no query has a target.
    """
    seen = torch.arange(1, target.shape[1] + 1, device=target.device)
    asked = _queries_with_target(target)
    return (target.sum(dim=-1) / seen)[asked].mean().item()


# --8<-- [end:scores]


def _validate_equal_heads(weights: Sequence[Tensor]) -> None:
    counts = [each.shape[1] for each in weights]
    if len({*counts}) != 1:
        raise ValueError(
            f"weights are of layers with {counts} heads, which make no table: score "
            "one layer at a time, head_scores([weights[layer]], target)"
        )


def _queries_with_target(target: Tensor) -> Tensor:
    asked = target.any(dim=-1)
    if not asked.any():
        raise ValueError("target has no key for any query: there is nothing to score")
    return asked


# --8<-- [start:places]
def previous_token_target(tokens: Int[Tensor, "B T"]) -> _Target:
    """Mark the token before each."""
    steps = _steps_back(tokens)
    return (steps == 1).expand(len(tokens), -1, -1)


def first_token_target(tokens: Int[Tensor, "B T"]) -> _Target:
    """Mark the first token, for all that come after it.

    The first token itself can attend to nothing else, and would score 1 in each head.
    """
    first = torch.arange(tokens.shape[1], device=tokens.device) == 0
    return ((_steps_back(tokens) > 0) & first).expand(len(tokens), -1, -1)


# --8<-- [end:places]


# --8<-- [start:kinds]
def delimiter_target(
    tokens: Int[Tensor, "B T"], delimiters: Collection[int]
) -> _Target:
    """Mark all earlier tokens that are delimiters.

    Args:
        tokens: Token ids.
        delimiters: The ids of those that set apart, as spaces and full stops.
    """
    known = torch.tensor(sorted(delimiters), device=tokens.device)
    return torch.isin(tokens, known)[:, None] & (_steps_back(tokens) > 0)


def same_token_target(tokens: Int[Tensor, "B T"]) -> _Target:
    """Mark all earlier tokens that are the same as the query's."""
    return (tokens[:, :, None] == tokens[:, None]) & (_steps_back(tokens) > 0)


def induction_target(tokens: Int[Tensor, "B T"]) -> _Target:
    """Mark the tokens that came after earlier ones like the query's.

    A head that attends there can say: what followed last time follows again.

    Source: Olsson et al., 2022, "In-context Learning and Induction Heads".
    """
    same = same_token_target(tokens)
    after = torch.zeros_like(same)
    after[:, :, 1:] = same[:, :, :-1]
    return after & (_steps_back(tokens) > 0)


# --8<-- [end:kinds]


# --8<-- [start:repeated]
def repeated_tokens(
    vocab_size: int, length: int, *, num_sequences: int = 1, seed: int = 0
) -> Int[Tensor, "B T"]:
    """Draw tokens that do not repeat, and repeat them: there is nothing else to know.

    Args:
        vocab_size: V, how many tokens there are to draw from.
        length: How many are drawn; the sequence is twice as long.
        num_sequences: B.
        seed: What they are drawn from.

    Raises:
        ValueError: If ``length`` is not between 1 and ``vocab_size``.
    """
    _validate_length(length, vocab_size)
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        torch.randperm(vocab_size, generator=generator)[:length]
        for _ in range(num_sequences)
    ]
    return torch.stack(drawn).repeat(1, 2)


# --8<-- [end:repeated]


def _steps_back(tokens: Tensor) -> Tensor:
    """Return how far each key lies before each query; negative behind it."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    return at[:, None] - at


def _validate_length(length: int, vocab_size: int) -> None:
    if not 1 <= length <= vocab_size:
        raise ValueError(
            f"length={length} must lie between 1 and vocab_size={vocab_size}"
        )
