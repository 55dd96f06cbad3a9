"""Monitor a run: its losses, its speed, and whether it has diverged."""

import math
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from tested_transformer.training.distributed import World, mean_over
from tested_transformer.training.recipe import Recipe
from tested_transformer.training.state import Progress, TrainingState, Validation

__all__ = ["DivergenceWatch", "Monitor", "TrainingDivergedError"]


class TrainingDivergedError(RuntimeError):
    """A loss, gradient or weight is not finite, or the loss rose and stayed high.

    Args:
        step: The step at which it happened, counted from 0.
        saved_step: The number of steps of the last state saved, or ``None``.
        reason: What happened.
        advice: What to try.
    """

    def __init__(
        self, step: int, saved_step: int | None, reason: str, advice: str
    ) -> None:
        kept = "nothing was saved before"
        if saved_step is not None:
            kept = f"the last state was saved at step {saved_step}"
        super().__init__(f"{reason} at step {step}; {kept}; try {advice}")
        self.step = step
        self.saved_step = saved_step


class DivergenceWatch:
    """Decide from every loss whether the run has diverged.

    It has if a loss or the norm of a gradient is not finite, or if the mean of recent
    losses exceeds its best by more than ``margin`` for ``patience`` steps in a row.
    While it exceeds that, ``calm`` is ``False`` and nothing should be saved.

    Args:
        recipe: The recipe, with ``margin`` and ``patience``, from which the advice is
            derived.
        scaled: Whether gradients are scaled, as in float16. Scaled gradients overflow
            now and then; only ``patience`` overflows in a row count.
    """

    def __init__(self, recipe: Recipe, *, scaled: bool = False) -> None:
        self.recipe = recipe
        self.allowed = recipe.patience if scaled else 1
        self.mean = self.weight = 0.0
        self.best = math.inf
        self.above = self.overflows = 0

    @property
    def calm(self) -> bool:
        """Whether the loss is low enough, and the gradient finite, to save."""
        return self.above == 0 and self.overflows == 0

    def see(self, loss: float, gradient: float = 0.0) -> str | None:
        """Take the loss of a step and the norm of its gradient into account.

        Returns:
            The reason if the run has diverged, or ``None``.
        """
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        self.overflows = 0 if math.isfinite(gradient) else self.overflows + 1
        if self.overflows >= self.allowed:
            return f"the gradient's norm is {gradient}"
        # An exponential mean in which the last 10 steps make up about two thirds.
        self.mean += 0.1 * (loss - self.mean)
        self.weight += 0.1 * (1.0 - self.weight)
        recent = self.mean / self.weight
        self.best = min(self.best, recent)
        self.above = self.above + 1 if recent > self.best + self.recipe.margin else 0
        if self.above >= self.recipe.patience:
            return f"the loss rose from {self.best:.2f} to {recent:.2f}"
        return None

    def advice(self) -> str:
        """Return which settings to try instead."""
        recipe = self.recipe
        advice = [f"lr={recipe.lr / 2:g}"]
        if recipe.optimizer == "muon":
            advice[0] += f" and muon_lr={recipe.muon_lr / 2:g}"
        advice.append(f"warmup={max(10, 2 * recipe.warmup)}")
        if recipe.clip == 0.0:
            advice.append("clip=1.0")
        if recipe.precision != "fp32":
            advice.append("precision='fp32'")
        return ", or ".join(advice)


class Monitor:
    """Add the losses of a run to its state, time it, and report.

    Args:
        recipe: How the run trains.
        state: The state of the run, to be updated.
        world: Which of the processes this is. The first one reports.
        tokens_per_step: How many tokens a step learns from.
    """

    def __init__(
        self, recipe: Recipe, state: TrainingState, world: World, tokens_per_step: int
    ) -> None:
        self.recipe, self.state, self.world = recipe, state, world
        self.tokens_per_step = tokens_per_step
        self.unread: list[tuple[Tensor, Tensor, float]] = []
        self.reports: list[Progress] = []
        self.watch = DivergenceWatch(recipe, scaled=state.precision == "fp16")
        for loss in state.losses:
            self.watch.see(loss)
        self.started, self.seconds_per_step = time.perf_counter(), 0.0

    def record(self, loss: Tensor, norm: Tensor, lr: float) -> None:
        """Store the results of a step, without waiting for them."""
        self.unread.append((loss, norm, lr))

    def read(self) -> None:
        """Wait for the losses of the latest steps, and check them.

        Raises:
            TrainingDivergedError: If the run has diverged.
        """
        losses, norms, rates = zip(*self.unread, strict=True)
        means = mean_over(self.world, torch.stack(losses))
        values = torch.stack([means, torch.stack(norms)]).tolist()
        self._take_time(len(losses))
        self.unread.clear()
        for loss, norm, lr in zip(*values, rates, strict=True):
            wrong = self.watch.see(loss, norm)
            if wrong is not None:
                raise self.diverged(wrong)
            self.state.losses.append(loss)
            self.state.step += 1
            left = self.recipe.steps - self.state.step
            self.reports.append(
                Progress(
                    step=self.state.step,
                    steps=self.recipe.steps,
                    loss=loss,
                    lr=lr,
                    gradient=norm,
                    tokens_per_second=self.tokens_per_step / self.seconds_per_step,
                    seconds=self.state.seconds,
                    seconds_left=left * self.seconds_per_step,
                )
            )

    def report(
        self,
        on_step: Callable[[Progress], None] | None,
        validation: Validation | None = None,
    ) -> None:
        """Report the steps that were read, the last one with any validation."""
        if validation is not None:
            self.state.validations.append(validation)
        if on_step is not None and self.world.rank == 0:
            for progress in self.reports[:-1]:
                on_step(progress)
            on_step(replace(self.reports[-1], validation=validation))
        self.reports.clear()
        self.restart_clock()

    def diverged(self, reason: str) -> TrainingDivergedError:
        """Return the error that ends the run here."""
        saved = self.state.saved_step
        return TrainingDivergedError(
            self.state.step, saved, reason, self.watch.advice()
        )

    def restart_clock(self) -> None:
        """Exclude the time since the last reading, which was not spent training."""
        self.started = time.perf_counter()

    def _take_time(self, steps: int) -> None:
        now = time.perf_counter()
        took, self.started = now - self.started, now
        self.state.seconds += took
        weight = 0.2 if self.seconds_per_step else 1.0
        self.seconds_per_step += weight * (took / steps - self.seconds_per_step)
