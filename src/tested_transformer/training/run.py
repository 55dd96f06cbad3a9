"""One run of training: what a step is, and what is kept of it."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from tested_transformer.data import batch_at
from tested_transformer.gpt import GPT
from tested_transformer.training.devices import (
    autocast,
    choose_precision,
    seed_dropout,
)
from tested_transformer.training.distributed import (
    World,
    any_of,
    gathered,
    gradients_stay,
    mean_over,
    spread,
)
from tested_transformer.training.divergence import TrainingDivergedError, Watch
from tested_transformer.training.evaluation import (
    evaluate,
    honest_loss,
    next_token_loss,
    windows_that_fit,
)
from tested_transformer.training.optimizers import (
    clip_gradients,
    make_optimizers,
    set_rates,
)
from tested_transformer.training.progress import Progress, Validation
from tested_transformer.training.recipe import Recipe
from tested_transformer.training.state import (
    TrainingState,
    optimizer_tensors,
    restore_optimizers,
)

__all__ = ["Run"]


class Run:
    """A model in training.

    Args:
        model: On its device. It is changed.
        tokens: The text to learn.
        recipe: How.
        state: Where to go on.
        world: Of how many processes this is one.
        shard: Cut the parameters up between the processes.

    Raises:
        ValueError: If what is given does not go together.
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
        self.model, self.tokens, self.recipe = model, tokens, recipe
        self.world = world = world or World()
        self.device = next(model.parameters()).device
        self.precision = choose_precision(self.device, recipe.precision)
        self.seq_len = recipe.seq_len or model.config.max_seq_len
        # Ours to change; what is given stays as it is.
        state = state or TrainingState()
        self.state = state = replace(
            state, losses=[*state.losses], validations=[*state.validations]
        )
        self.step = state.step
        _check(self, shard)
        # A GPU computes while Python goes on; to read a loss is to wait for it.
        self.read_every = 1 if self.device.type == "cpu" else 10
        self.unread: list[tuple[Tensor, Tensor, float]] = []
        self.reports: list[Progress] = []
        self.found: Validation | None = None

        self.parallel = spread(model, world, shard=shard)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizers = make_optimizers(model, recipe)
        scaled = self.precision == "fp16"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scaled)
        if state.optimizer:
            restore_optimizers(model, self.optimizers, state.optimizer)
        if state.scaler:
            self.scaler.load_state_dict(state.scaler)
        self.watch = Watch(recipe, scaled=scaled)
        for loss in state.losses:
            self.watch.see(loss)
        self.losses_of = torch.compile(self._losses) if recipe.compile else self._losses
        self.started, self.pace = time.perf_counter(), 0.0
        model.train()

    # --8<-- [start:step]
    def change_parameters(self) -> None:
        """Do one step."""
        seed_dropout(self.device, self._number_of_step())
        lr = self.recipe.lr * set_rates(self.optimizers, self.recipe, self.step)
        loss = self._gradients()
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        length = clip_gradients(self.parameters, self.recipe.clip)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
            optimizer.zero_grad()
        self.scaler.update()
        self.step += 1
        self.unread.append((loss, length, lr))

    def _gradients(self) -> Tensor:
        """Give every parameter the gradient of the batch, and return its loss."""
        inputs, targets = self._batch()
        parts = self.recipe.accumulate
        loss = torch.zeros((), device=self.device)
        for part, (some, wanted) in enumerate(
            zip(inputs.chunk(parts), targets.chunk(parts), strict=True), start=1
        ):
            with gradients_stay(self.parallel, part < parts):
                with autocast(self.device, self.precision):
                    objective, next_token = self.losses_of(some, wanted)
                self.scaler.scale(objective / parts).backward()
            loss += next_token.detach() / parts
        return loss

    def _losses(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Give what is made small, and the part of it that is the loss of the text."""
        loss = next_token_loss(self.parallel(inputs), targets)
        if self.model.config.num_experts == 0:
            return loss, loss
        return loss + self.recipe.balance_weight * self.model.balance_loss(), loss

    # --8<-- [end:step]

    # --8<-- [start:batch]
    def _batch(self) -> tuple[Tensor, Tensor]:
        """Bring this process's part of the batch to the device."""
        batch = batch_at(
            self.tokens,
            step=self.step,
            batch_size=self.recipe.batch_size,
            seq_len=self.seq_len,
            seed=self.recipe.seed,
            rank=self.world.rank,
            world_size=self.world.size,
        )
        if self.device.type == "cuda" and batch[0].device.type == "cpu":
            # From pinned memory the GPU copies by itself, while it computes.
            batch = (batch[0].pin_memory(), batch[1].pin_memory())
        inputs, targets = (x.to(self.device, non_blocking=True) for x in batch)
        return inputs, targets

    def _number_of_step(self) -> int:
        """Give a number that no other step, seed or process has, to draw from."""
        name = f"{self.recipe.seed} {self.step} {self.world.rank}".encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=7).digest())

    # --8<-- [end:batch]

    def is_told_to(self, stop: Callable[[], bool] | None) -> bool:
        """Ask ``stop``; several processes agree, where they wait for a loss anyway."""
        if self.world.size > 1 and self.step % self.read_every:
            return False
        return any_of(self.world, stop is not None and stop(), self.device)

    def read_losses(self) -> None:
        """Wait for the losses of the latest steps, and look at them.

        Raises:
            TrainingDivergedError: If one of them is the end of the run.
        """
        losses, lengths, rates = zip(*self.unread, strict=True)
        means = mean_over(self.world, torch.stack(losses))
        values = torch.stack([means, torch.stack(lengths)]).tolist()
        self._take_time(len(losses))
        self.unread.clear()
        tokens = self.recipe.batch_size * self.seq_len
        for loss, length, lr in zip(*values, rates, strict=True):
            wrong = self.watch.see(loss, length)
            if wrong is not None:
                self._give_up(wrong)
            self.state.losses.append(loss)
            self.state.step += 1
            self.reports.append(
                Progress(
                    step=self.state.step,
                    steps=self.recipe.steps,
                    loss=loss,
                    lr=lr,
                    gradient=length,
                    tokens_per_second=tokens / self.pace,
                    seconds=self.state.seconds,
                    seconds_left=(self.recipe.steps - self.state.step) * self.pace,
                )
            )

    def _take_time(self, steps: int) -> None:
        now = time.perf_counter()
        took, self.started = now - self.started, now
        self.state.seconds += took
        recent = took / steps
        self.pace += (0.2 if self.pace else 1.0) * (recent - self.pace)

    def _give_up(self, wrong: str) -> None:
        saved, advice = self.state.saved_step, self.watch.advice()
        raise TrainingDivergedError(self.state.step, saved, wrong, advice)

    def evaluate(self, tokens: Tensor) -> None:
        """Measure the loss of a text, and whether it is honest."""
        sizes = {"seq_len": self.seq_len, "vocab_size": self.model.config.vocab_size}
        loss = evaluate(
            self.model,
            tokens,
            seq_len=self.seq_len,
            batch_size=windows_that_fit(**sizes, at_most=64),
            precision=self.precision,
        )
        honest = honest_loss(
            self.model,
            tokens,
            seq_len=self.seq_len,
            num_windows=windows_that_fit(**sizes, at_most=16),
        )
        self.found = Validation(self.step, loss, honest.prefix, honest.full, honest.gap)
        self.state.validations.append(self.found)

    def report(self, on_step: Callable[[Progress], None] | None) -> None:
        """Tell what was read."""
        if on_step is not None and self.world.rank == 0:
            for progress in self.reports[:-1]:
                on_step(progress)
            on_step(replace(self.reports[-1], validation=self.found))
        self.reports.clear()
        self.found = None
        self.started = time.perf_counter()

    def save(self, save: Callable[[TrainingState], None] | None) -> None:
        """Hand out where the run stands, if all is well.

        Raises:
            TrainingDivergedError: If a weight is no number.
        """
        if save is None or not (self.watch.calm or self.step == self.recipe.steps):
            return
        if not gathered(torch.nn.utils.get_total_norm(self.parameters)).isfinite():
            self._give_up("a weight is no number")
        state = replace(self.whole_state(), saved_step=self.step)
        if self.world.rank == 0:
            save(state)
        self.state.saved_step = self.step
        self.started = time.perf_counter()

    def whole_state(self) -> TrainingState:
        """Give where the run stands, put together from all processes."""
        weights = self.model.state_dict()
        return replace(
            self.state,
            losses=[*self.state.losses],
            validations=[*self.state.validations],
            optimizer=optimizer_tensors(self.model, self.optimizers),
            scaler=self.scaler.state_dict(),
            weights={name: gathered(weight) for name, weight in weights.items()},
        )


def _check(run: Run, shard: bool) -> None:
    recipe, longest = run.recipe, run.model.config.max_seq_len
    if run.seq_len > longest:
        raise ValueError(
            f"seq_len={run.seq_len} must not be beyond max_seq_len={longest}"
        )
    if run.step > recipe.steps:
        raise ValueError(
            f"the training state is after {run.step} steps, "
            f"and the recipe ends at steps={recipe.steps}"
        )
    parts = recipe.accumulate * run.world.size
    if recipe.batch_size % parts:
        raise ValueError(
            f"batch_size={recipe.batch_size} must be divisible by "
            f"accumulate={recipe.accumulate} times {run.world.size} processes"
        )
    if shard and run.precision == "fp16":
        raise ValueError("shard=True does not go with precision='fp16'")
