"""Training: the recipe, the loop, and the check that the loss is honest."""

from tested_transformer.training.devices import choose_device, choose_precision
from tested_transformer.training.distributed import World, join_world, leave_world
from tested_transformer.training.evaluation import (
    HonestLoss,
    evaluate,
    honest_loss,
    next_token_loss,
    validate,
)
from tested_transformer.training.loop import train, training_precision, validate_run
from tested_transformer.training.monitor import TrainingDivergedError
from tested_transformer.training.muon import Muon, orthogonalize
from tested_transformer.training.optimizers import make_optimizers
from tested_transformer.training.recipe import Recipe
from tested_transformer.training.state import Progress, TrainingState, Validation

__all__ = [
    "HonestLoss",
    "Muon",
    "Progress",
    "Recipe",
    "TrainingDivergedError",
    "TrainingState",
    "Validation",
    "World",
    "choose_device",
    "choose_precision",
    "evaluate",
    "honest_loss",
    "join_world",
    "leave_world",
    "make_optimizers",
    "next_token_loss",
    "orthogonalize",
    "train",
    "training_precision",
    "validate",
    "validate_run",
]
