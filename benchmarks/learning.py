"""Train small models: windows of a text, the loss on them, and AdamW."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.data import CharTokenizer, split

__all__ = [
    *("Descent", "as_characters", "fit", "fit_to_text", "guess_loss", "seeded"),
    "windows",
]


@dataclass(frozen=True)
class Descent:
    """Steps of AdamW, whose rate rises and then falls to 0.

    Args:
        steps: How many steps to take.
        rate: The learning rate at its highest.
        warm_up: How many steps it takes to rise.
        clip: The norm that gradients are clipped to; not clipped by default.
        weight_decay: The weight decay of AdamW.
        betas: The averages of AdamW.
    """

    steps: int
    rate: float
    warm_up: int = 1
    clip: float | None = None
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, from 0."""
        rise = min(1, (step + 1) / self.warm_up)
        return self.rate * rise * (1 - step / self.steps)


def seeded(seed: int) -> torch.Generator:
    """Return a generator of random numbers with this seed."""
    return torch.Generator().manual_seed(seed)


def as_characters(text: str, share: float = 0.9) -> tuple[Tensor, Tensor, int]:
    """Return a text as characters: to train on, held out, and how many there are."""
    tokenizer = CharTokenizer.from_text(text)
    training, held_out = split(torch.tensor(tokenizer.encode(text)), share)
    return training, held_out, tokenizer.vocab_size


def windows(
    tokens: Tensor, count: int, length: int, generator: torch.Generator
) -> Tensor:
    """Draw ``count`` windows of a text, each of ``length`` tokens."""
    last = len(tokens) - length
    starts = torch.randint(last + 1, (count, 1), generator=generator)
    return tokens[starts + torch.arange(length)]


def guess_loss(model: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Return a model's mean loss on the tokens after the first of each sequence."""
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def fit(model: nn.Module, loss_at: Callable[[int], Tensor], descent: Descent) -> None:
    """Train those parameters of a model that require gradients.

    Args:
        model: The model.
        loss_at: A function that returns the loss of a step.
        descent: The steps to take.
    """
    trained = [*model.parameters()]
    optimizer = torch.optim.AdamW(
        trained,
        lr=descent.rate,
        weight_decay=descent.weight_decay,
        betas=descent.betas,
    )
    for step in range(descent.steps):
        optimizer.param_groups[0]["lr"] = descent.rate_at(step)
        optimizer.zero_grad()
        loss_at(step).backward()
        if descent.clip is not None:
            nn.utils.clip_grad_norm_(trained, descent.clip)
        optimizer.step()


def fit_to_text(
    model: nn.Module,
    tokens: Tensor,
    descent: Descent,
    *,
    batch: int,
    length: int,
    seed: int,
) -> None:
    """Train on random windows of a text, with ``length`` predictions in each."""
    generator = seeded(seed)
    fit(
        model,
        lambda _: guess_loss(model, windows(tokens, batch, length + 1, generator)),
        descent,
    )
