"""Batches for next-token prediction, computed from the number of the step alone."""

import hashlib
from functools import lru_cache

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from tested_transformer.checks import validate_between, validate_sizes

__all__ = ["batch_at", "num_windows", "split"]


def split(
    tokens: Integer[Tensor, "N"], fraction: float = 0.9
) -> tuple[Integer[Tensor, "N_train"], Integer[Tensor, "N_validation"]]:
    """Split off the end of ``tokens`` for validation, without copying.

    Args:
        tokens: All tokens, in order.
        fraction: The share for training.

    Raises:
        ValueError: If one of the parts would be empty.
    """
    cut = int(len(tokens) * fraction)
    if not 0 < cut < len(tokens):
        raise ValueError(
            f"fraction={fraction} of {len(tokens)} tokens leaves {cut} for training "
            f"and {len(tokens) - cut} for validation; both need some"
        )
    return tokens[:cut], tokens[cut:]


def num_windows(num_tokens: int, seq_len: int) -> int:
    """Return how many windows of ``seq_len`` predictions make an epoch.

    Raises:
        ValueError: If ``seq_len`` is not positive, or there are fewer than
            ``seq_len + 1`` tokens: the last prediction needs a target too.
    """
    validate_sizes(seq_len=seq_len)
    if num_tokens < seq_len + 1:
        raise ValueError(
            f"{num_tokens} tokens are too few for seq_len={seq_len}: "
            f"at least {seq_len + 1} are needed"
        )
    # One window less than would fit, so that they can be shifted, but at least one.
    return max(1, (num_tokens - seq_len) // seq_len)


@lru_cache(maxsize=4)
def _order(num_tokens: int, seq_len: int, seed: int, epoch: int) -> tuple[int, Tensor]:
    """Return the shift of an epoch's windows, and their order."""
    count = num_windows(num_tokens, seq_len)
    key = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))
    most = min(seq_len, num_tokens - count * seq_len)
    shift = int(torch.randint(most, (1,), generator=generator))
    # A text of 1 GB has millions of windows: use four bytes each while that suffices.
    dtype = torch.int32 if count < 2**31 else torch.int64
    return shift, torch.randperm(count, generator=generator, dtype=dtype)


def _window_start(num_tokens: int, seq_len: int, seed: int, number: int) -> int:
    """Return the first token of a window, numbered across all epochs."""
    epoch, index = divmod(number, num_windows(num_tokens, seq_len))
    shift, order = _order(num_tokens, seq_len, seed, epoch)
    return shift + seq_len * int(order[index])


# --8<-- [start:batch]
def batch_at(
    tokens: Integer[Tensor, "N"],
    *,
    step: int,
    batch_size: int,
    seq_len: int,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return the inputs of a training step, and the tokens that come next.

    The batch depends only on the arguments, so a run that resumes at ``step`` gets the
    same batches as one that was never interrupted.

    Each epoch cuts the tokens into adjacent windows, starting at a random shift, and
    takes them in random order. So each epoch sees every token once, except fewer than
    ``2 * seq_len`` at the ends, and the next epoch cuts elsewhere. Drawing windows at
    random positions, as is often done, would miss 37 % of the tokens (1 in e) in the
    same number of draws, and see others more than once.

    Args:
        tokens: All training tokens, on any device, memory-mapped or not, in integers
            of any size.
        step: The number of the step, from 0.
        batch_size: How many windows the step sees, in all processes together.
        seq_len: T, how many tokens each window predicts.
        seed: The seed of the order.
        rank: The number of this process; each gets its own rows of the same batch.
        world_size: How many processes there are.

    Returns:
        Inputs and targets in int64, with ``batch_size // world_size`` rows, on the
        device of ``tokens``.

    Raises:
        ValueError: If there are too few tokens, ``world_size`` does not divide
            ``batch_size``, or a number is out of its range.
    """
    _check(step, batch_size, rank, world_size)
    rows = batch_size // world_size
    first = step * batch_size + rank * rows
    numbers = range(first, first + rows)
    starts = [_window_start(len(tokens), seq_len, seed, number) for number in numbers]
    # Convert window by window, so that only these are read from a file into memory.
    windows = torch.stack([tokens[i : i + seq_len + 1].long() for i in starts])
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


# --8<-- [end:batch]


def _check(step: int, batch_size: int, rank: int, world_size: int) -> None:
    if step < 0:
        raise ValueError(f"step={step} must not be negative")
    validate_sizes(batch_size=batch_size, world_size=world_size)
    if batch_size % world_size:
        raise ValueError(
            f"batch_size={batch_size} must be divisible by world_size={world_size}"
        )
    validate_between("rank", rank, 0, world_size - 1, "world_size - 1")
