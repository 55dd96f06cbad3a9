"""Make the optimizers of a model, set their learning rates, and save their state."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from tested_transformer.training.distributed import gathered, share_of
from tested_transformer.training.muon import Muon
from tested_transformer.training.recipe import Recipe

__all__ = [
    "clip_gradients",
    "make_optimizers",
    "optimizer_tensors",
    "refuse_compiled",
    "restore_optimizers",
    "set_rates",
]


def make_optimizers(model: nn.Module, recipe: Recipe) -> list[Optimizer]:
    """Return the optimizers of a model, each parameter in one of them.

    Matrices and embeddings get weight decay, which limits how far products can grow.
    Vectors get none: biases, the gains of norms, the shares of a smear, and parameters
    that a module names in ``row_vectors``, since each of their rows is a vector.

    Args:
        model: The model to optimize.
        recipe: How to train. With ``optimizer="muon"``, Muon takes the matrices inside
            the blocks. AdamW keeps embeddings and head, whose rows are separate vectors
            rather than directions of one map.

    Raises:
        ValueError: If the model comes from ``torch.compile``.
    """
    refuse_compiled(model)
    matrices: list[nn.Parameter] = []
    tables: list[nn.Parameter] = []
    head: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    in_rows = {
        getattr(module, name)
        for module in model.modules()
        for name in getattr(module, "row_vectors", ())
    }
    for name, parameter in model.named_parameters():
        if parameter.ndim != 2 or parameter in in_rows:
            vectors.append(parameter)
        elif "embedding" in name:
            tables.append(parameter)
        elif name.startswith("head."):
            head.append(parameter)
        else:
            matrices.append(parameter)
    decay = recipe.weight_decay
    groups = [
        _group(tables, recipe.embedding_lr or recipe.lr, decay),
        _group(head, recipe.head_lr or recipe.lr, decay),
        _group(vectors, recipe.vector_lr or recipe.lr, 0.0),
    ]
    if recipe.optimizer == "adamw":
        groups.insert(0, _group(matrices, recipe.lr, decay))
    optimizers: list[Optimizer] = [
        AdamW(
            [group for group in groups if group["params"]],
            betas=recipe.betas,
            eps=recipe.eps,
            fused=True,
            capturable=recipe.graph,
        )
    ]
    if recipe.optimizer == "muon":
        optimizers.append(
            Muon(
                [_group(matrices, recipe.muon_lr, decay)],
                momentum=recipe.muon_momentum,
                rounds=recipe.muon_rounds,
            )
        )
    if recipe.graph:  # which keeps numbers as they are, so a rate must be a tensor
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = torch.tensor(
                    group["lr"], device=group["params"][0].device
                )
    return optimizers


def refuse_compiled(model: nn.Module) -> None:
    """Raise a ``ValueError`` if ``torch.compile`` has renamed a model's parameters.

    Names decide which optimizer and rate a parameter gets, and a checkpoint has them.
    """
    for name, _ in model.named_parameters():
        if "_orig_mod." in name:
            raise ValueError(
                f"model comes from torch.compile, which calls a parameter {name}: pass "
                "the model itself, and write Recipe(compile=True) to train it compiled"
            )


def _group(
    parameters: list[nn.Parameter], lr: float, weight_decay: float
) -> dict[str, Any]:
    return {
        "params": parameters,
        "lr": lr,
        "initial_lr": lr,
        "weight_decay": weight_decay,
    }


def set_rates(optimizers: list[Optimizer], recipe: Recipe, step: int) -> float:
    """Set the learning rates of a step, and return their common factor."""
    factor = recipe.rate_factor(step)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            rate = group["initial_lr"] * factor
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
    return factor


def clip_gradients(parameters: list[nn.Parameter], max_norm: float) -> Tensor:
    """Clip the norm of the whole gradient, and return the norm before clipping.

    Args:
        parameters: The parameters that are trained.
        max_norm: The largest norm; 0 for no limit.

    Source: Pascanu et al., 2013, "On the difficulty of training recurrent neural
    networks", section 3.2.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = gathered(nn.utils.get_total_norm(gradients))
    # Comparing the norm would mean waiting for a GPU, so let it multiply by 1 instead.
    if max_norm > 0.0 and (norm.device.type != "cpu" or norm > max_norm):
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def optimizer_tensors(
    model: nn.Module, optimizers: list[Optimizer]
) -> dict[str, Tensor]:
    """Return the optimizers' state of each parameter, as ``parameter/what``."""
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
    """Restore the optimizers' state from the result of ``optimizer_tensors``.

    A parameter that is not trained, ``requires_grad=False``, may have no state.

    Raises:
        ValueError: If it belongs to another model or another optimizer.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    expected: dict[str, tuple[dict[str, Tensor], nn.Parameter]] = {}
    for optimizer in optimizers:
        adamw = isinstance(optimizer, AdamW)
        kept = ("step", "exp_avg", "exp_avg_sq") if adamw else ("mean",)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                entries = [f"{names[parameter]}/{what}" for what in kept]
                if parameter.requires_grad or not tensors.keys().isdisjoint(entries):
                    memory = optimizer.state[parameter]
                    expected |= dict.fromkeys(entries, (memory, parameter))
    if expected.keys() != tensors.keys():
        strange = sorted(expected.keys() ^ tensors.keys())
        raise ValueError(
            "the training state belongs to another model or optimizer: "
            f"{len(strange)} entries differ, such as {strange[0]}"
        )
    for name, (memory, parameter) in expected.items():
        what, tensor = name.rpartition("/")[2], tensors[name]
        shape = () if what == "step" else tuple(parameter.shape)
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{name} of the training state is {tuple(tensor.shape)}, not {shape}"
            )
        # Copy it, because training changes it in place.
        tensor = tensor.to(parameter.device, copy=True)
        memory[what] = tensor if what == "step" else share_of(tensor, parameter)
