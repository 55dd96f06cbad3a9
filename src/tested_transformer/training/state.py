"""The records of a run: what it reports, and all that it takes to go on.

Batches and dropout are drawn anew at each step from the seed and the number of the
step, so there is no state of a generator to keep.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = ["Progress", "TrainingState", "Validation"]


@dataclass(frozen=True)
class Validation:
    """What an evaluation found.

    Args:
        step: After how many steps.
        loss: The mean loss over all of the validation text.
        prefix: The honest loss: at some positions, each from its prefix alone.
        full: The loss at the same positions, from one pass over all of the window.
        gap: The largest difference of the two at any one position. Like them it is
            measured without autocast, whatever the run trains in; ``loss`` is not.
    """

    step: int
    loss: float
    prefix: float
    full: float
    gap: float


@dataclass(frozen=True)
class Progress:
    """What a step has come to.

    Args:
        step: How many steps are done.
        steps: How many there will be.
        loss: The loss of the step's batch, in nats a token.
        lr: AdamW's learning rate.
        gradient: The norm of the gradient, before it was clipped.
        tokens_per_second: How fast it is, lately.
        seconds: How long all steps took, without evaluating and saving.
        seconds_left: How long the rest will take at this speed.
        validation: What the evaluation after this step found, if there was one.
    """

    step: int
    steps: int
    loss: float
    lr: float
    gradient: float
    tokens_per_second: float
    seconds: float
    seconds_left: float
    validation: Validation | None = None


@dataclass
class TrainingState:
    """Where a run stands.

    Args:
        step: How many steps are done.
        seconds: How long they took, without evaluating and saving.
        losses: The loss of each step's batch, before the step.
        validations: What the evaluations found.
        optimizer: What the optimizers remember, as ``parameter/what``.
        scaler: What the scaler of float16's gradients remembers.
        precision: What ``auto`` has chosen, to go on in the same; ``None`` before.
        weights: The model's, to be saved with it; neither ``state_tensors`` nor
            ``state_json`` has them.
        saved_step: After how many steps the run was last saved, if it was.
    """

    step: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    scaler: dict[str, float] = field(default_factory=dict)
    precision: str | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)
    saved_step: int | None = None

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of it, for a file of tensors."""
        losses = torch.tensor(self.losses, dtype=torch.float64)
        optimizer = {f"optimizer/{name}": x for name, x in self.optimizer.items()}
        return {"losses": losses, **optimizer}

    def state_json(self) -> dict[str, Any]:
        """Return the rest, for a file of JSON."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "validations": [asdict(each) for each in self.validations],
            "scaler": self.scaler,
            "precision": self.precision,
        }

    @classmethod
    def from_state(
        cls, tensors: dict[str, Tensor], values: dict[str, Any]
    ) -> "TrainingState":
        """Read what ``state_tensors`` and ``state_json`` returned.

        Raises:
            ValueError: If something is missing, or there are fewer or more losses
                than steps.
        """
        names = ("step", "seconds", "validations", "scaler")
        missing = [name for name in names if name not in values]
        missing += ["losses"] * ("losses" not in tensors)
        if missing:
            raise ValueError(f"the training state lacks {', '.join(missing)}")
        losses: list[float] = tensors["losses"].tolist()
        if len(losses) != values["step"]:
            raise ValueError(
                f"step={values['step']} does not go with {len(losses)} losses"
            )
        return cls(
            step=values["step"],
            seconds=values["seconds"],
            losses=losses,
            validations=[Validation(**each) for each in values["validations"]],
            optimizer={
                name.removeprefix("optimizer/"): tensor
                for name, tensor in tensors.items()
                if name.startswith("optimizer/")
            },
            scaler=values["scaler"],
            # Runs from before precisions were measured have none.
            precision=values.get("precision"),
            saved_step=values["step"],
        )
