"""When to give a run up, and what to try then."""

import math

from tested_transformer.training.recipe import Recipe

__all__ = ["TrainingDivergedError", "Watch"]


class TrainingDivergedError(RuntimeError):
    """The loss, a gradient or a weight is no number, or the loss went up and stayed.

    Args:
        step: The step at which it was seen, counted from 0.
        saved_step: After how many steps the last good state was saved, or ``None``.
        reason: What was seen.
        advice: What to try.
    """

    def __init__(
        self, step: int, saved_step: int | None, reason: str, advice: str
    ) -> None:
        kept = "nothing was saved before"
        if saved_step is not None:
            kept = f"the last good state is that of step {saved_step}"
        super().__init__(f"{reason} at step {step}; {kept}; try {advice}")
        self.step = step
        self.saved_step = saved_step


# --8<-- [start:watch]
class Watch:
    """Looks at every loss, and says when the run is lost.

    That is when a loss or the length of a gradient is no finite number, or when the
    mean of recent losses was above the best it ever was by more than ``margin`` for
    ``patience`` steps in a row. While it is above, nothing should be saved: ``calm``
    is ``False``.

    Args:
        recipe: Has ``margin`` and ``patience``, and what the advice is made from.
        scaled: Whether gradients are scaled, as in float16. There it is part of the
            method that some overflow; as many in a row as ``patience`` are not.
    """

    def __init__(self, recipe: Recipe, *, scaled: bool = False) -> None:
        self.recipe = recipe
        self.allowed = recipe.patience if scaled else 1
        self.mean = self.weight = 0.0
        self.best = math.inf
        self.above = self.overflows = 0

    @property
    def calm(self) -> bool:
        """Whether all is well."""
        return self.above == 0 and self.overflows == 0

    def see(self, loss: float, gradient: float = 0.0) -> str | None:
        """Look at the loss of a step and the length of its gradient.

        Returns:
            What is wrong, or ``None``.
        """
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        self.overflows = 0 if math.isfinite(gradient) else self.overflows + 1
        if self.overflows >= self.allowed:
            return f"the gradient's length is {gradient}"
        # Recent is what counts for more than a third: the last 10 steps.
        self.mean += 0.1 * (loss - self.mean)
        self.weight += 0.1 * (1.0 - self.weight)
        recent = self.mean / self.weight
        self.best = min(self.best, recent)
        self.above = self.above + 1 if recent > self.best + self.recipe.margin else 0
        if self.above >= self.recipe.patience:
            return f"the loss rose from {self.best:.2f} to {recent:.2f}"
        return None

    # --8<-- [end:watch]

    def advice(self) -> str:
        """Say what to try."""
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
