"""The records of a run: its reports, and the state from which it can resume.

Batches and dropout depend only on the seed and the number of the step, so the state
contains no random generator.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = ["Progress", "TrainingState", "Validation"]


@dataclass(frozen=True)
class Validation:
    """The result of an evaluation.

    Args:
        step: The number of steps before it.
        loss: The mean loss over the whole validation text, in the run's precision.
        prefix: The honest loss: at some positions, each from its prefix alone.
        full: The loss at the same positions, from one pass over the whole window.
        gap: The largest difference of the two at any one position. ``prefix``, ``full``
            and ``gap`` are measured without autocast, whatever the run's precision.
    """

    step: int
    loss: float
    prefix: float
    full: float
    gap: float


@dataclass(frozen=True)
class Progress:
    """The report of one step.

    Args:
        step: How many steps are done.
        steps: How many steps there are in all.
        loss: The loss of the step's batch, in nats per token.
        lr: AdamW's learning rate.
        gradient: The norm of the gradient before clipping.
        tokens_per_second: The recent throughput.
        seconds: How long all steps took, without evaluating and saving.
        seconds_left: How long the rest will take at the recent throughput.
        validation: The result of the evaluation after this step, if there was one.
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
    """The state of a run, from which it can resume.

    Args:
        step: How many steps are done.
        seconds: How long they took, without evaluating and saving.
        losses: The loss of each step's batch, before the update.
        validations: The results of the evaluations.
        optimizer: The state of the optimizers, as ``parameter/what``.
        scaler: The state of the gradient scaler for float16.
        precision: The precision that ``auto`` chose, to be kept; ``None`` before that.
        weights: The weights of the model. ``state_tensors`` and ``state_json`` leave
            them out.
        saved_step: The number of steps at the last save, if there was one.
    """

    step: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list, repr=False)
    validations: list[Validation] = field(default_factory=list)
    optimizer: dict[str, Tensor] = field(default_factory=dict, repr=False)
    scaler: dict[str, float] = field(default_factory=dict)
    precision: str | None = None
    weights: dict[str, Tensor] = field(default_factory=dict, repr=False)
    saved_step: int | None = None

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the state, for a file of tensors."""
        losses = torch.tensor(self.losses, dtype=torch.float64)
        optimizer = {f"optimizer/{name}": x for name, x in self.optimizer.items()}
        return {"losses": losses, **optimizer}

    def state_json(self) -> dict[str, Any]:
        """Return the rest of the state, for a JSON file."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "validations": [asdict(validation) for validation in self.validations],
            "scaler": self.scaler,
            "precision": self.precision,
        }

    @classmethod
    def from_state(
        cls, tensors: dict[str, Tensor], values: dict[str, Any]
    ) -> "TrainingState":
        """Read what ``state_tensors`` and ``state_json`` returned.

        Raises:
            ValueError: If something is missing, or the numbers of losses and steps
                differ.
        """
        names = ("step", "seconds", "validations", "scaler")
        missing = [name for name in names if name not in values]
        missing += ["losses"] * ("losses" not in tensors)
        if missing:
            raise ValueError(f"the training state lacks {', '.join(missing)}")
        losses: list[float] = tensors["losses"].tolist()
        if len(losses) != values["step"]:
            raise ValueError(
                f"step={values['step']} must equal the number of losses, {len(losses)}"
            )
        return cls(
            step=values["step"],
            seconds=values["seconds"],
            losses=losses,
            validations=[Validation(**entry) for entry in values["validations"]],
            optimizer={
                name.removeprefix("optimizer/"): tensor
                for name, tensor in tensors.items()
                if name.startswith("optimizer/")
            },
            scaler=values["scaler"],
            # Runs saved before precisions were measured have none.
            precision=values.get("precision"),
            saved_step=values["step"],
        )
