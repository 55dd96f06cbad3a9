"""Where heads of known kinds look: for each query, the keys that it would attend to.

Each function gives ``True`` for a query (row) and a key (column) that belong together.
A query is never its own target, and a query without a target is left out of the score.
"""

from collections.abc import Collection

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = [
    "delimiter_target",
    "first_token_target",
    "induction_target",
    "previous_token_target",
    "repeated_tokens",
    "same_token_target",
]

_Target = Bool[Tensor, "B T S"]


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
    after = torch.zeros(*tokens.shape, tokens.shape[1], dtype=torch.bool)
    after = after.to(tokens.device)
    after[:, :, 1:] = same_token_target(tokens)[:, :, :-1]
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
    _check_length(length, vocab_size)
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        torch.randperm(vocab_size, generator=generator)[:length]
        for _ in range(num_sequences)
    ]
    return torch.stack(drawn).repeat(1, 2)


# --8<-- [end:repeated]


def _steps_back(tokens: Tensor) -> Tensor:
    """Give how far each key lies before each query; negative behind it."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    return at[:, None] - at


def _check_length(length: int, vocab_size: int) -> None:
    if not 1 <= length <= vocab_size:
        raise ValueError(
            f"length={length} must lie between 1 and vocab_size={vocab_size}"
        )
