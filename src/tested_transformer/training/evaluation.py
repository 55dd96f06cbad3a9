"""Evaluation: the loss on a whole text, and whether that loss is honest."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Integer
from torch import Tensor, nn

from tested_transformer.checks import validate_shape, validate_sizes, validate_text
from tested_transformer.layers import evaluating
from tested_transformer.training.devices import (
    autocast,
    choose_precision,
    float32_products,
)
from tested_transformer.training.state import Validation

__all__ = [
    "HonestLoss",
    "evaluate",
    "honest_loss",
    "next_token_loss",
    "validate",
    "windows_that_fit",
]

# A quarter of a gibibyte, in float32.
_LOGITS = 2**26


def windows_that_fit(*, seq_len: int, vocab_size: int, at_most: int) -> int:
    """Return how many windows to read side by side, from 1 to ``at_most``.

    With a large vocabulary, the logits of a few windows fill the memory.
    """
    return max(1, min(at_most, _LOGITS // (seq_len * vocab_size)))


def next_token_loss(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"], reduction: str = "mean"
) -> Float[Tensor, "..."]:
    """Return the mean of ``-log(probability of the target)``, in nats.

    Args:
        logits: The logits of the next token at each position.
        targets: The next token of each position. Where it is -100, the position does
            not count; a mean over none that count is NaN.
        reduction: ``mean``, ``sum``, or ``none`` for a row of all losses.

    Raises:
        TypeError: If ``targets`` is not a tensor.
        ValueError: If ``targets`` are for other sequences than ``logits``.
    """
    validate_shape("targets", targets, logits.shape[:-1])
    return F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), reduction=reduction
    )


def evaluate(
    model: nn.Module,
    tokens: Integer[Tensor, "N"],
    *,
    seq_len: int | None = None,
    batch_size: int = 64,
    precision: str = "fp32",
) -> float:
    """Return the mean loss over a whole text: every token except the first, once.

    The text is cut into non-overlapping windows of ``seq_len``, of which the last may
    be shorter. Each token is predicted from the tokens before it in its window. Nothing
    is sampled, so different models and runs are compared on the same predictions.

    Args:
        model: Returns logits (B, T, V) for tokens (B, T).
        tokens: The text.
        seq_len: The length of a window; the longest that the model takes by default.
        batch_size: How many windows are read side by side.
        precision: The precision to multiply in; see ``choose_precision``.

    Raises:
        ValueError: If there are fewer than two tokens, or a size is not positive.
    """
    seq_len = _checked_length(model, tokens, seq_len)
    validate_sizes(batch_size=batch_size)
    count = len(tokens) - 1
    num_windows, rest = divmod(count, seq_len)
    batches = [
        (min(batch_size, num_windows - first), seq_len)
        for first in range(0, num_windows, batch_size)
    ]
    if rest:
        batches.append((1, rest))
    start, total = 0, 0.0
    with _evaluating(model, precision) as device:
        for rows, length in batches:
            batch = _window(tokens, start, rows * length, device)
            inputs, targets = (x.view(rows, length) for x in (batch[:-1], batch[1:]))
            total += next_token_loss(model(inputs), targets, "sum").item()
            start += rows * length
    return total / count


@dataclass(frozen=True)
class HonestLoss:
    """The loss at some positions, computed in two ways that must agree.

    Args:
        prefix: The mean loss over all positions, estimated from some of them, when the
            model is given only the tokens before each.
        full: The same estimate at the same positions, from one pass over the whole
            window, as in training and evaluation.
        gap: The largest difference at any one position.
    """

    prefix: float
    full: float
    gap: float


def honest_loss(
    model: nn.Module,
    tokens: Integer[Tensor, "N"],
    *,
    seq_len: int | None = None,
    num_windows: int = 16,
    num_positions: int = 16,
    seed: int = 0,
) -> HonestLoss:
    """Return the loss from prefixes alone, and the loss with the whole window in view.

    A model that can see its targets, through a wrong mask or a norm over time, has a
    low loss and writes nonsense. A pass over the prefix alone contains no target, so if
    the two losses differ, the model leaks.

    Rounding makes them differ too, so nothing is computed in lower precision than the
    model's own, whatever it was trained in. In float32 the gap of an honest model is
    near 1e-6; a threshold of 1e-3 is far above rounding and far below a leak. A model
    that was itself converted to bfloat16 can have an honest gap of 0.04.

    Args:
        model: Returns logits (B, T, V) for tokens (B, T).
        tokens: The text.
        seq_len: The length of a window; the longest that the model takes by default.
        num_windows: How many windows to draw.
        num_positions: How many positions to draw, the same in every window, in addition
            to the first and the last.
        seed: The seed of both draws.

    Raises:
        ValueError: If there are fewer than two tokens, or a size is not positive.
    """
    seq_len = min(_checked_length(model, tokens, seq_len), len(tokens) - 1)
    validate_sizes(num_windows=num_windows, num_positions=num_positions)
    generator = torch.Generator().manual_seed(seed)
    last = len(tokens) - 1 - seq_len
    starts = torch.randint(last + 1, (num_windows,), generator=generator).tolist()
    between = torch.randperm(max(seq_len - 2, 0), generator=generator) + 1
    drawn = sorted(between[:num_positions].tolist())
    positions = sorted({0, *drawn, seq_len - 1})
    # The first and last position count once; the drawn ones represent all in between.
    shares = torch.tensor(
        [(len(between) / len(drawn)) if p in drawn else 1.0 for p in positions],
        dtype=torch.float64,
    )
    # --8<-- [start:honest]
    with _evaluating(model, "fp32") as device:
        windows = torch.stack([_window(tokens, s, seq_len, device) for s in starts])
        inputs, targets = windows[:, :-1], windows[:, 1:, None]

        def losses(logits: Tensor, position: int) -> Tensor:
            logs = logits.float().log_softmax(dim=-1)
            return -logs.gather(-1, targets[:, position])[:, 0]

        logits = model(inputs)
        full = torch.stack([losses(logits[:, p], p) for p in positions])
        prefix = torch.stack(
            [losses(model(inputs[:, : p + 1])[:, -1], p) for p in positions]
        )
    # --8<-- [end:honest]
    # Apple's GPUs have no float64.
    full, prefix = full.cpu().double(), prefix.cpu().double()
    gap = (full - prefix).abs().max()
    prefix, full = (shares @ loss.mean(dim=1) / seq_len for loss in (prefix, full))
    return HonestLoss(prefix.item(), full.item(), gap.item())


def validate(
    model: nn.Module,
    tokens: Integer[Tensor, "N"],
    *,
    step: int,
    seq_len: int,
    vocab_size: int,
    precision: str,
) -> Validation:
    """Return the loss on a text in a run's precision, and the honest loss."""
    sizes = {"seq_len": seq_len, "vocab_size": vocab_size}
    loss = evaluate(
        model,
        tokens,
        seq_len=seq_len,
        batch_size=windows_that_fit(**sizes, at_most=64),
        precision=precision,
    )
    honest = honest_loss(
        model,
        tokens,
        seq_len=seq_len,
        num_windows=windows_that_fit(**sizes, at_most=16),
    )
    return Validation(step, loss, honest.prefix, honest.full, honest.gap)


def _window(tokens: Tensor, start: int, length: int, device: torch.device) -> Tensor:
    """Return ``length`` tokens and the one after them, on the device."""
    return tokens[start : start + length + 1].to(device, torch.long)


@contextmanager
def _evaluating(model: nn.Module, precision: str) -> Generator[torch.device]:
    """Switch off dropout, gradients and TF32 within a ``with`` block."""
    device = next(model.parameters()).device
    with (
        evaluating(model),
        torch.no_grad(),
        float32_products(device, "highest"),
        autocast(device, choose_precision(device, precision)),
    ):
        yield device


def _checked_length(model: nn.Module, tokens: Tensor, seq_len: int | None) -> int:
    validate_text("tokens", tokens)
    if len(tokens) < 2:
        raise ValueError(f"{len(tokens)} tokens are too few: at least 2 are needed")
    if seq_len is None:
        config: Any = getattr(model, "config", None)
        if config is None:
            raise ValueError(
                f"seq_len must be given: {type(model).__name__} has no config"
            )
        return config.max_seq_len
    validate_sizes(seq_len=seq_len)
    return seq_len
