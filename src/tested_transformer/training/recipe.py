"""The recipe: every number that a training run depends on, in one place."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tested_transformer.checks import validate_switches
from tested_transformer.habits import TRAINING_SETTINGS, advise_on_settings

__all__ = ["Recipe"]

_POSITIVE = (
    *("steps", "batch_size", "seq_len", "accumulate", "evaluate_every", "patience"),
    *("lr", "embedding_lr", "head_lr", "vector_lr", "muon_lr", "muon_rounds"),
    *("eps", "margin"),
)
_INTEGERS = (
    *("steps", "batch_size", "seq_len", "accumulate", "muon_rounds"),
    *("warmup", "evaluate_every", "seed"),
)
_NOT_NEGATIVE = ("warmup", "weight_decay", "clip", "balance_weight", "seed")
_SHARES = ("decay", "final_lr")
_KEPT = ("betas[0]", "betas[1]", "muon_momentum")
_MAY_BE_NONE = ("seq_len", "embedding_lr", "head_lr", "vector_lr")
_CHOICES = {
    "optimizer": ("adamw", "muon"),
    "schedule": ("cosine", "linear", "trapezoid", "constant"),
    "precision": ("auto", "fp32", "bf16", "fp16"),
}


@advise_on_settings(TRAINING_SETTINGS)
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train. The same recipe, data and model give the same losses.

    The defaults are the textbook's: AdamW, weight decay for matrices only, a warm-up, a
    cosine schedule and gradient clipping.

    Args:
        steps: Number of updates of the parameters.
        batch_size: Sequences per update, over all processes.
        seq_len: Tokens per sequence; ``None`` for the model's ``max_seq_len``.
        accumulate: Number of parts in which a batch goes through the model. The
            gradient is the same, with the activation memory of a single part, except
            that the balance loss of a mixture of experts is the mean of the parts' own.
        optimizer: ``adamw`` for all parameters, or ``muon`` for the matrices inside
            the blocks and AdamW for the rest.
        lr: AdamW's learning rate.
        embedding_lr: The same for embeddings; ``None`` for ``lr``.
        head_lr: The same for an untied head; ``None`` for ``lr``.
        vector_lr: The same for biases, gains and shares; ``None`` for ``lr``.
        betas: AdamW's decay rates for the running mean and the running square.
        eps: Added to the root of the running square in AdamW.
        weight_decay: Decay of matrices in each step, times the learning rate.
        muon_lr: Muon's learning rate.
        muon_momentum: Muon's decay rate for the running mean.
        muon_rounds: Iterations of ``orthogonalize``.
        schedule: ``cosine``, ``linear``, ``trapezoid`` or ``constant``; see
            ``rate_factor``.
        warmup: Steps until the full learning rate is reached.
        decay: The fraction of the run in which ``trapezoid`` falls.
        final_lr: The last learning rate, as a fraction of the full one.
        clip: The largest norm of the whole gradient; 0 for no limit.
        balance_weight: The weight of the balance loss of a mixture of experts.
        precision: ``fp32``, ``bf16``, ``fp16``, or ``auto`` for the fastest safe one:
            bfloat16 on a GPU that has it, and on a CPU whichever is faster in a
            measurement before the first step. On a GPU, ``fp32`` multiplies in TF32.
        compile: Compile model and loss with ``torch.compile``. By default only long
            runs on a GPU do; see ``compiling_pays``.
        graph: Replay each step, from the forward pass to the update, as one CUDA graph.
            A small model then does not wait for operations to be started.
        evaluate_every: Steps between two evaluations.
        margin: How far the mean of recent losses may rise above its best.
        patience: After this many steps above the margin, the run has diverged.
        seed: The seed of batches and dropout.

    Raises:
        TypeError: If a value is of another type.
        ValueError: If a value is out of its range.
    """

    steps: int = 2000
    batch_size: int = 12
    seq_len: int | None = None
    accumulate: int = 1
    optimizer: str = "adamw"
    lr: float = 1e-3
    embedding_lr: float | None = None
    head_lr: float | None = None
    vector_lr: float | None = None
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8
    weight_decay: float = 0.1
    muon_lr: float = 0.02
    muon_momentum: float = 0.95
    muon_rounds: int = 4
    schedule: str = "cosine"
    warmup: int = 100
    decay: float = 0.5
    final_lr: float = 0.1
    clip: float = 1.0
    balance_weight: float = 0.01
    precision: str = "auto"
    compile: bool | None = None
    graph: bool = False
    evaluate_every: int = 250
    margin: float = 1.0
    patience: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        ranges: list[tuple[Iterable[str], str, Callable[[float], bool]]] = [
            (_POSITIVE, "must be positive", lambda value: value > 0),
            (_NOT_NEGATIVE, "must not be negative", lambda value: value >= 0),
            (_SHARES, "must lie between 0 and 1", lambda value: 0 <= value <= 1),
            (_KEPT, "must be at least 0 and less than 1", lambda value: 0 <= value < 1),
        ]
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise ValueError(
                f"betas={self.betas!r} must be two numbers, such as (0.9, 0.99)"
            )
        validate_switches(graph=self.graph)
        if self.compile is not None:
            validate_switches(compile=self.compile)
        values = {**vars(self), "betas[0]": self.betas[0], "betas[1]": self.betas[1]}
        absent = {name for name in _MAY_BE_NONE if values[name] is None}
        for name in _INTEGERS:
            if name not in absent and not isinstance(values[name], int):
                raise TypeError(f"{name}={values[name]!r} must be an int")
        for names, requirement, fits in ranges:
            for name in (name for name in names if name not in absent):
                if not isinstance(values[name], (int, float)):
                    raise TypeError(f"{name}={values[name]!r} must be a number")
                # Ask whether a value fits rather than whether it is wrong: NaN fails.
                if not fits(values[name]):
                    raise ValueError(f"{name}={values[name]} {requirement}")
                # JSON, in which a run is saved, has no infinity.
                if values[name] == math.inf:
                    raise ValueError(f"{name}={values[name]} must be finite")
        for name, known in _CHOICES.items():
            if values[name] not in known:
                raise ValueError(
                    f"{name}={values[name]!r} must be one of {', '.join(known)}"
                )
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup={self.warmup} must be less than steps={self.steps}: for so "
                f"short a run write warmup={self.steps // 10}"
            )
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size={self.batch_size} must be divisible by "
                f"accumulate={self.accumulate}"
            )

    @classmethod
    def plain(cls, **changes: Any) -> "Recipe":
        """Return the textbook's recipe with some settings changed."""
        return cls(**changes)

    @classmethod
    def fast(cls, **changes: Any) -> "Recipe":
        """Return the recipe that trains in the fewest seconds, with some changes.

        Sources: Jordan et al., 2024, "Muon"; Amsel et al., 2025, "The Polar Express";
        Hägele et al., 2024, for the schedule.
        """
        fast = cls(
            steps=250,
            optimizer="muon",
            lr=0.04,
            embedding_lr=0.05,
            head_lr=0.012,
            betas=(0.8, 0.95),
            weight_decay=0.0,
            muon_lr=0.03,
            muon_momentum=0.8,
            schedule="linear",
            warmup=0,
            final_lr=0.0,
            clip=0.0,
        )
        return dataclasses.replace(fast, **changes)

    def rate_factor(self, step: int) -> float:
        """Return the factor of all learning rates at a step, counted from 0.

        Every schedule rises to 1 over ``warmup`` steps. ``cosine`` and ``linear`` then
        fall, ``trapezoid`` falls linearly at the end, and ``constant`` stays at 1. The
        last step comes one before ``final_lr`` would be reached, so that with
        ``final_lr=0`` no step is wasted.

        Sources: Loshchilov and Hutter, 2017, "SGDR", equation 5, for the cosine;
        Hägele et al., 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed
        Training Durations", for the trapezoid.
        """
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        if self.schedule == "constant":
            return 1.0
        fall = self.steps - self.warmup
        if self.schedule == "trapezoid":
            fall = min(fall, round(self.decay * self.steps))
        # 1 until the rate starts to fall, close to 0 at the last step.
        left = min(1.0, (self.steps - step) / max(1, fall))
        if self.schedule == "cosine":
            left = 0.5 - 0.5 * math.cos(math.pi * left)
        return self.final_lr + (1.0 - self.final_lr) * left

    def to_dict(self) -> dict[str, Any]:
        """Return the settings for JSON; ``from_dict`` reads them."""
        return {**dataclasses.asdict(self), "betas": list(self.betas)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Recipe":
        """Read what ``to_dict`` returned.

        Raises:
            TypeError: If a value is of another type.
            ValueError: If a name is unknown, or a value is out of its range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(values.keys() - known)
        if unknown:
            raise ValueError(f"a recipe has no {', '.join(unknown)}")
        if isinstance(values.get("betas"), list):
            values = {**values, "betas": tuple(values["betas"])}
        return cls(**values)
