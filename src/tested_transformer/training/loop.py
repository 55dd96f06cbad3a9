"""Training: a batch, its loss, the gradient, a step; again."""

from collections.abc import Callable

from jaxtyping import Integer
from torch import Tensor

from tested_transformer.gpt import GPT
from tested_transformer.training.distributed import World
from tested_transformer.training.progress import Progress
from tested_transformer.training.recipe import Recipe
from tested_transformer.training.run import Run
from tested_transformer.training.state import TrainingState

__all__ = ["train"]


# --8<-- [start:train]
def train(
    model: GPT,
    tokens: Integer[Tensor, "N"],
    recipe: Recipe,
    *,
    validation: Integer[Tensor, "M"] | None = None,
    state: TrainingState | None = None,
    world: World | None = None,
    shard: bool = False,
    on_step: Callable[[Progress], None] | None = None,
    save: Callable[[TrainingState], None] | None = None,
    save_every: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> TrainingState:
    """Train a model where it is, and return where the run stands.

    Args:
        model: On its device. It is changed.
        tokens: The text to learn.
        recipe: How.
        validation: A text to evaluate on, every ``recipe.evaluate_every`` steps and
            at the end.
        state: Where to go on; the model has to have the weights of then. The losses
            to come are those of a run that was not interrupted.
        world: Of how many processes this is one. The first one reports and saves.
        shard: Cut the parameters up between the processes; see ``spread``.
        on_step: Called for every step, on a GPU for several at a time.
        save: Called with where the run stands, every ``save_every`` steps, before
            stopping, and at the end. Not while the loss is up, which may be the
            beginning of its end; see ``Watch``. What it is given changes with the
            next step: it has to write it, or to copy it.
        save_every: Steps between two saves.
        stop: Asked after every step; if it says ``True``, the run is saved and ends.

    Returns:
        Where the run stands, at fewer than ``recipe.steps`` if it was stopped.

    Raises:
        TrainingDivergedError: If a loss is no number, or rose and stayed up.
        ValueError: If what is given does not go together.
    """
    _check(validation, save_every)
    run = Run(model, tokens, recipe, state=state, world=world, shard=shard)
    save_every = save_every or recipe.steps
    while run.step < recipe.steps:
        run.change_parameters()
        stopping = run.is_told_to(stop)
        ending = run.step == recipe.steps
        evaluating = ending or run.step % recipe.evaluate_every == 0
        saving = ending or stopping or run.step % save_every == 0
        if evaluating or saving or run.step % run.read_every == 0:
            run.read_losses()
            if evaluating and validation is not None:
                run.evaluate(validation)
            run.report(on_step)
            if saving:
                run.save(save)
        if stopping:
            break
    return run.whole_state()


# --8<-- [end:train]


def _check(validation: Tensor | None, save_every: int | None) -> None:
    if save_every is not None and save_every < 1:
        raise ValueError(f"save_every={save_every} must be positive")
    # Now, and not when it is first needed.
    if validation is not None and len(validation) < 2:
        raise ValueError(
            f"validation must be at least 2 tokens; it is {len(validation)}"
        )
