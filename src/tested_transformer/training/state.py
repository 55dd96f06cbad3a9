"""Where a run stands: all that it takes to go on as if it had never stopped.

Batches and dropout are drawn anew at each step from the seed and the number of the
step, so there is no state of a generator to keep.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from tested_transformer.training.distributed import gathered, share_of
from tested_transformer.training.progress import Validation

__all__ = ["TrainingState", "optimizer_tensors", "restore_optimizers"]


# --8<-- [start:state]
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
    weights: dict[str, Tensor] = field(default_factory=dict)
    saved_step: int | None = None

    def state_tensors(self) -> dict[str, Tensor]:
        """Give the tensors of it, for a file of tensors."""
        losses = torch.tensor(self.losses, dtype=torch.float64)
        optimizer = {f"optimizer/{name}": x for name, x in self.optimizer.items()}
        return {"losses": losses, **optimizer}

    def state_json(self) -> dict[str, Any]:
        """Give the rest, for a file of JSON."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "validations": [asdict(each) for each in self.validations],
            "scaler": self.scaler,
        }

    @classmethod
    def from_state(
        cls, tensors: dict[str, Tensor], values: dict[str, Any]
    ) -> "TrainingState":
        """Read what ``state_tensors`` and ``state_json`` gave.

        Raises:
            ValueError: If something is missing, or there are fewer or more losses
                than steps.
        """
        names = ("step", "seconds", "validations", "scaler")
        missing = [name for name in names if name not in values]
        missing += ["losses"] * ("losses" not in tensors)
        if missing:
            raise ValueError(f"the training state lacks {', '.join(missing)}")
        losses = tensors["losses"].tolist()
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
            saved_step=values["step"],
        )

    # --8<-- [end:state]


# --8<-- [start:memory]
def optimizer_tensors(
    model: nn.Module, optimizers: list[Optimizer]
) -> dict[str, Tensor]:
    """Give what the optimizers remember of each parameter, as ``parameter/what``."""
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    return {
        f"{names[parameter]}/{what}": gathered(tensor)
        for optimizer in optimizers
        for parameter, memory in optimizer.state.items()
        for what, tensor in memory.items()
    }


def restore_optimizers(
    model: nn.Module, optimizers: list[Optimizer], tensors: dict[str, Tensor]
) -> None:
    """Have the optimizers remember what ``optimizer_tensors`` gave.

    Raises:
        ValueError: If it is another model's, or another optimizer's.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    wanted: dict[str, tuple[dict[str, Tensor], nn.Parameter]] = {}
    for optimizer in optimizers:
        adamw = isinstance(optimizer, AdamW)
        kept = ("step", "exp_avg", "exp_avg_sq") if adamw else ("mean",)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                memory = optimizer.state[parameter]
                for what in kept:
                    wanted[f"{names[parameter]}/{what}"] = (memory, parameter)
    if wanted.keys() != tensors.keys():
        strange = sorted(wanted.keys() ^ tensors.keys())
        raise ValueError(
            "the training state is of another model or optimizer: "
            f"{len(strange)} entries differ, {strange[0]} among them"
        )
    for name, (memory, parameter) in wanted.items():
        what, tensor = name.rpartition("/")[2], tensors[name]
        shape = () if what == "step" else tuple(parameter.shape)
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{name} of the training state is {tuple(tensor.shape)}, not {shape}"
            )
        # A copy: training changes it in place, and it is not ours.
        tensor = tensor.to(parameter.device, copy=True)
        memory[what] = tensor if what == "step" else share_of(tensor, parameter)


# --8<-- [end:memory]
