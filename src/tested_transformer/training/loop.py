"""The training loop: a batch, its loss, the gradient, a step; repeat.

``train`` is the loop. A ``Learner`` holds what a step needs: model, optimizers and
precision. A ``Monitor``, in ``monitor``, watches and reports the run.
"""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from jaxtyping import Integer
from torch import Tensor

from tested_transformer.checks import validate_sizes, validate_text
from tested_transformer.data import batch_at
from tested_transformer.gpt import GPT
from tested_transformer.multihead import IndexTrained
from tested_transformer.replay import Replay
from tested_transformer.training.devices import (
    autocast,
    choose_precision,
    compiling_pays,
    float32_products,
    seed_dropout,
)
from tested_transformer.training.distributed import (
    World,
    gathered,
    gradients_stay,
    mean_over,
    spread,
)
from tested_transformer.training.evaluation import next_token_loss, validate
from tested_transformer.training.monitor import Monitor
from tested_transformer.training.optimizers import (
    clip_gradients,
    make_optimizers,
    optimizer_tensors,
    refuse_compiled,
    restore_optimizers,
    set_rates,
)
from tested_transformer.training.recipe import Recipe
from tested_transformer.training.state import Progress, TrainingState, Validation

__all__ = ["Learner", "train", "training_precision", "validate_run"]


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
    """Train a model in place, and return the state of the run.

    Each step seeds PyTorch's generator, from which dropout is drawn, with a number of
    its own, so that a run can resume at any step.

    Args:
        model: The model to train, on its device.
        tokens: The text to learn.
        recipe: How to train.
        validation: A text to evaluate on, every ``recipe.evaluate_every`` steps and
            at the end.
        state: Resume from this state; the model must have the weights of that moment.
            The following losses are those of an uninterrupted run.
        world: Which of the processes this is. The first one reports and saves.
        shard: Divide the parameters among the processes; see ``spread``.
        on_step: Called for every step; on a GPU, for several steps at a time.
        save: Called with the state every ``save_every`` steps, before stopping, and at
            the end, but not while the loss is high and the run may be diverging; see
            ``DivergenceWatch``. The next step changes the state, so write or copy it.
        save_every: Steps between two saves.
        stop: Called after every step; if it returns ``True``, the run saves and stops.

    Returns:
        The state of the run, at fewer than ``recipe.steps`` steps if it was stopped.

    Raises:
        TrainingDivergedError: If a loss is not finite, or rose and stayed high.
        ValueError: If the arguments do not fit together.
    """
    validate_text("tokens", tokens)
    _validate_rest(recipe, state, validation, save_every)
    learner = Learner(model, tokens, recipe, state=state, world=world, shard=shard)
    tokens_per_step = recipe.batch_size * learner.seq_len
    monitor = Monitor(recipe, learner.state, learner.world, tokens_per_step)
    # --8<-- [start:steps]
    learn = Replay(learner.learn) if recipe.graph else learner.learn
    for step in range(learner.state.step, recipe.steps):
        lr = learner.begin(step)
        loss, norm = learn(*learner.batch(step))
        monitor.record(loss, norm, lr)

        done = step + 1
        ending = done == recipe.steps
        reading = ending or done % learner.read_every == 0
        stopping = learner.agrees(stop, reading)
        evaluating = ending or done % recipe.evaluate_every == 0
        saving = ending or stopping or done % (save_every or recipe.steps) == 0
        if reading or evaluating or saving:
            monitor.read()
            result = None
            if evaluating and validation is not None:
                result = learner.validate(validation, done)
            monitor.report(on_step, result)
            if saving and (ending or monitor.watch.calm):
                learner.save(save, monitor)
        if stopping:
            break
    # --8<-- [end:steps]
    return learner.snapshot()


class Learner:
    """A model in training, with everything that a step needs and changes.

    Args:
        model: The model to train, on its device.
        tokens: The text to learn.
        recipe: How to train.
        state: Resume from a copy of this state.
        world: Which of the processes this is.
        shard: Divide the parameters among the processes.

    Raises:
        ValueError: If the arguments do not fit together.
    """

    def __init__(
        self,
        model: GPT,
        tokens: Tensor,
        recipe: Recipe,
        *,
        state: TrainingState | None = None,
        world: World | None = None,
        shard: bool = False,
    ) -> None:
        refuse_compiled(model)
        self.model, self.tokens, self.recipe = model, tokens, recipe
        self.world = world = world or World()
        self.device = next(model.parameters()).device
        # A GPU computes while Python continues; reading a loss means waiting for it.
        self.read_every = 1 if self.device.type == "cpu" else 10
        self.seq_len = recipe.seq_len or model.config.max_seq_len
        state = state or TrainingState()
        validate_run(model, recipe, world, shard=shard)
        # Copy the state, so that the caller's does not change.
        self.state = replace(
            state,
            losses=[*state.losses],
            validations=[*state.validations],
            precision=training_precision(
                model, tokens, recipe, state=state, world=world
            ),
        )
        self.precision = self.state.precision or "fp32"
        # Again, because the precision may have been chosen just now.
        validate_run(
            model, replace(recipe, precision=self.precision), world, shard=shard
        )
        self.parallel = spread(model, world, shard=shard)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.indexed = _has_indexers(model)
        self.optimizers = make_optimizers(model, recipe)
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=self.precision == "fp16"
        )
        if state.optimizer:
            restore_optimizers(model, self.optimizers, state.optimizer)
        if state.scaler:
            self.scaler.load_state_dict(state.scaler)
        compiled = recipe.compile
        if compiled is None:
            compiled = not shard and compiling_pays(self.device, recipe.steps)
        self.losses_of = torch.compile(self._losses) if compiled else self._losses
        model.train()

    def begin(self, step: int) -> float:
        """Set dropout's seed and the learning rates; return AdamW's learning rate."""
        # A seed for dropout that differs between steps, runs and processes.
        name = f"{self.recipe.seed} {step} {self.world.rank}".encode()
        digest = hashlib.blake2b(name, digest_size=7).digest()
        seed_dropout(self.device, int.from_bytes(digest))
        return self.recipe.lr * set_rates(self.optimizers, self.recipe, step)

    # --8<-- [start:learn]
    def learn(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Learn a batch; return its loss and the norm of its gradient."""
        loss = self.backward(inputs, targets)
        norm = self.clip()
        self.update()
        return loss, norm

    # --8<-- [end:learn]

    def backward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Accumulate the gradient of a batch, and return the batch's loss."""
        parts = self.recipe.accumulate
        loss = torch.zeros((), device=self.device)
        for part, (part_inputs, part_targets) in enumerate(
            zip(inputs.chunk(parts), targets.chunk(parts), strict=True), start=1
        ):
            with (
                gradients_stay(self.parallel, part < parts),
                float32_products(self.device, "high"),
            ):
                with autocast(self.device, self.precision):
                    objective, next_token = self.losses_of(part_inputs, part_targets)
                self.scaler.scale(objective / parts).backward()
            loss += next_token.detach() / parts
        return loss

    def _losses(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.parallel(inputs)
        return _losses_of(
            self.model, logits, targets, self.recipe, indexed=self.indexed
        )

    def clip(self) -> Tensor:
        """Clip the gradient to ``recipe.clip``, and return its norm before clipping."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        return clip_gradients(self.parameters, self.recipe.clip)

    def update(self) -> None:
        """Update the parameters, and clear their gradients."""
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
            optimizer.zero_grad()
        self.scaler.update()

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return this process's part of the batch of a step, on the device."""
        batch = batch_at(
            self.tokens,
            step=step,
            batch_size=self.recipe.batch_size,
            seq_len=self.seq_len,
            seed=self.recipe.seed,
            rank=self.world.rank,
            world_size=self.world.size,
        )
        if self.device.type == "cuda" and batch[0].device.type == "cpu":
            # From pinned memory a GPU can copy while it computes.
            batch = (batch[0].pin_memory(), batch[1].pin_memory())
        inputs, targets = (x.to(self.device, non_blocking=True) for x in batch)
        return inputs, targets

    def validate(self, tokens: Tensor, step: int) -> Validation:
        """Return the loss on a text in the run's precision, and the honest loss."""
        return validate(
            self.model,
            tokens,
            step=step,
            seq_len=self.seq_len,
            vocab_size=self.model.config.vocab_size,
            precision=self.precision,
        )

    def agrees(self, stop: Callable[[], bool] | None, reading: bool) -> bool:
        """Return whether to stop; several processes agree when they read losses."""
        if self.world.size > 1 and not reading:
            return False
        stopping = stop is not None and stop()
        if self.world.size > 1:
            flag = torch.tensor(float(stopping), device=self.device)
            stopping = mean_over(self.world, flag).item() > 0.0
        return stopping

    def save(
        self, save: Callable[[TrainingState], None] | None, monitor: Monitor
    ) -> None:
        """Gather the state from all processes, and pass it to ``save``.

        Raises:
            TrainingDivergedError: If a weight is not finite.
        """
        if save is None and self.world.size == 1:
            return
        if not gathered(torch.nn.utils.get_total_norm(self.parameters)).isfinite():
            raise monitor.diverged("a weight is not a number")
        state = replace(self.snapshot(), saved_step=self.state.step)
        if save is not None:
            if self.world.rank == 0:
                save(state)
            self.state.saved_step = self.state.step
        monitor.restart_clock()

    def snapshot(self) -> TrainingState:
        """Return the state of the run, gathered from all processes."""
        weights = self.model.state_dict()
        return replace(
            self.state,
            losses=[*self.state.losses],
            validations=[*self.state.validations],
            optimizer=optimizer_tensors(self.model, self.optimizers),
            scaler=self.scaler.state_dict(),
            weights={name: gathered(weight) for name, weight in weights.items()},
        )


def training_precision(
    model: GPT,
    tokens: Tensor,
    recipe: Recipe,
    *,
    state: TrainingState | None = None,
    world: World | None = None,
) -> str:
    """Return the precision that ``train`` computes in.

    With ``recipe.precision="auto"``, a resumed run keeps its precision, and a new run
    on a CPU measures: a copy of the model processes the first batch a few times in each
    precision. Neither the model nor any random generator is changed. Several processes
    on CPUs use float32, because their measurements could disagree.
    """
    if recipe.precision == "auto" and state is not None and state.precision:
        return state.precision

    @cache
    def copied() -> tuple[GPT, Tensor, Tensor]:
        inputs, targets = batch_at(
            tokens,
            step=0,
            batch_size=recipe.batch_size // recipe.accumulate,
            seq_len=recipe.seq_len or model.config.max_seq_len,
            seed=recipe.seed,
        )
        return copy.deepcopy(model).train(), inputs, targets

    def step(precision: str) -> None:
        copied_model, inputs, targets = copied()
        with autocast(device, precision):
            logits = copied_model(inputs)
            objective, _ = _losses_of(
                copied_model, logits, targets, recipe, indexed=_has_indexers(model)
            )
        objective.backward()

    device = next(model.parameters()).device
    alone = world is None or world.size == 1
    with torch.random.fork_rng(devices=[]):
        return choose_precision(device, recipe.precision, step=step if alone else None)


def _has_indexers(model: GPT) -> bool:
    return any(isinstance(module, IndexTrained) for module in model.modules())


def _losses_of(
    model: GPT, logits: Tensor, targets: Tensor, recipe: Recipe, *, indexed: bool
) -> tuple[Tensor, Tensor]:
    """Return the objective, and the text's loss, which is part of it."""
    loss = objective = next_token_loss(logits, targets)
    if model.config.num_experts:
        objective = objective + recipe.balance_weight * model.balance_loss()
    if indexed:
        objective = objective + model.index_loss()
    return objective, loss


def validate_run(
    model: GPT,
    recipe: Recipe,
    world: World,
    *,
    shard: bool = False,
    device: torch.device | None = None,
) -> None:
    """Raise a ``ValueError`` if a recipe does not fit a model, or cannot teach it.

    Args:
        model: The model.
        recipe: How to train it.
        world: The processes that share each batch.
        shard: Whether they divide the parameters among them.
        device: Where to train; where the model is by default.
    """
    config = model.config
    seq_len, longest = recipe.seq_len or config.max_seq_len, config.max_seq_len
    if seq_len > longest:
        raise ValueError(f"seq_len={seq_len} must be at most max_seq_len={longest}")
    if recipe.batch_size % (recipe.accumulate * world.size):
        raise ValueError(
            f"batch_size={recipe.batch_size} must be divisible by "
            f"accumulate={recipe.accumulate} times {world.size} processes"
        )
    if config.vocab_size < 2:
        raise ValueError(
            f"vocab_size={config.vocab_size} leaves nothing to learn: "
            "every token is the same"
        )
    if config.dropout >= 1.0:
        raise ValueError(
            f"dropout={config.dropout} must be less than 1: it drops everything, so "
            "nothing can be learned"
        )
    if shard and recipe.precision == "fp16":
        raise ValueError("shard=True cannot be combined with precision='fp16'")
    if recipe.graph:
        device = device or next(model.parameters()).device
        _validate_graph(model, device, recipe.precision, world)


def _validate_graph(
    model: GPT, device: torch.device, precision: str, world: World
) -> None:
    """Raise a ``ValueError`` if a step cannot be recorded as a CUDA graph."""
    reasons = {
        f"needs a GPU; the model is on {device}": device.type != "cuda",
        "needs precision='bf16' or 'fp32': with fp16 a step may be left out": (
            precision == "fp16"
        ),
        "needs a model without experts, who get other tokens in each step": (
            model.config.num_experts > 0
        ),
        "needs a model without an indexer, whose loss keeps a step's memory": (
            _has_indexers(model)
        ),
        "needs a single process": world.size > 1,
    }
    for reason, applies in reasons.items():
        if applies:
            raise ValueError(f"graph=True {reason}")


def _validate_rest(
    recipe: Recipe,
    state: TrainingState | None,
    validation: Tensor | None,
    save_every: int | None,
) -> None:
    if save_every is not None:
        validate_sizes(save_every=save_every)
    if validation is not None:
        validate_text("validation", validation)
    if validation is not None and len(validation) < 2:
        raise ValueError(
            f"validation must be at least 2 tokens; it is {len(validation)}"
        )
    if state is not None and state.step > recipe.steps:
        raise ValueError(
            f"the training state has {state.step} steps; "
            f"the recipe ends at steps={recipe.steps}"
        )
