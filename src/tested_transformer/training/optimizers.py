"""Which optimizer changes which parameters, and at what rate."""

from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from tested_transformer.training.distributed import gathered
from tested_transformer.training.muon import Muon
from tested_transformer.training.recipe import Recipe
from tested_transformer.training.schedule import rate_factor

__all__ = [
    "clip_gradients",
    "make_optimizers",
    "set_rates",
]


# --8<-- [start:groups]
def make_optimizers(model: nn.Module, recipe: Recipe) -> list[Optimizer]:
    """Give each parameter its optimizer.

    Matrices and embeddings decay. Vectors do not, which are biases, the gains of norms
    and the shares of a smear: decay holds back how far products can grow, and these
    are in none.

    Args:
        model: Whose parameters they are.
        recipe: With ``optimizer="muon"``, the matrices inside the blocks are Muon's;
            embeddings and head stay AdamW's, each row of them being a thing of its
            own rather than a direction of the whole.
    """
    matrices: list[nn.Parameter] = []
    tables: list[nn.Parameter] = []
    head: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.ndim != 2 or name == "smear":
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
    return optimizers


def _group(
    parameters: list[nn.Parameter], lr: float, weight_decay: float
) -> dict[str, Any]:
    return {
        "params": parameters,
        "lr": lr,
        "initial_lr": lr,
        "weight_decay": weight_decay,
    }


# --8<-- [end:groups]


# --8<-- [start:rates]
def set_rates(optimizers: list[Optimizer], recipe: Recipe, step: int) -> float:
    """Set the learning rates of a step, and return what they are multiplied by."""
    factor = rate_factor(
        step,
        steps=recipe.steps,
        schedule=recipe.schedule,
        warmup=recipe.warmup,
        decay=recipe.decay,
        final=recipe.final_lr,
    )
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
    return factor


# --8<-- [end:rates]


# --8<-- [start:clip]
def clip_gradients(parameters: list[nn.Parameter], longest: float) -> Tensor:
    """Shorten the gradient, all parameters taken together, and return its length.

    Args:
        parameters: Those that are trained.
        longest: What the gradient is shortened to if it is longer; 0 for no limit.

    Source: Pascanu et al., 2013, "On the difficulty of training recurrent neural
    networks", section 3.2.
    """
    gradients = [each.grad for each in parameters if each.grad is not None]
    length = gathered(nn.utils.get_total_norm(gradients))
    # A GPU is not asked how long it is: to shorten what is short changes nothing.
    if longest > 0.0 and (length.device.type != "cpu" or length > longest):
        nn.utils.clip_grads_with_norm_(parameters, longest, length)
    return length


# --8<-- [end:clip]
