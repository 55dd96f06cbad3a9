"""Looking into a model: what its heads attend to and are worth, and fewer of them."""

from tested_transformer.interpret.gates import (
    all_open,
    gated_heads,
    mean_instead,
    resampled_instead,
    shut,
)
from tested_transformer.interpret.importance import gate_slopes, loss_changes
from tested_transformer.interpret.pruning import prune_heads
from tested_transformer.interpret.recording import Recording, record_heads
from tested_transformer.interpret.scores import head_scores, uniform_score
from tested_transformer.interpret.targets import (
    delimiter_target,
    first_token_target,
    induction_target,
    previous_token_target,
    repeated_tokens,
    same_token_target,
)

__all__ = [
    "Recording",
    "all_open",
    "delimiter_target",
    "first_token_target",
    "gate_slopes",
    "gated_heads",
    "head_scores",
    "induction_target",
    "loss_changes",
    "mean_instead",
    "previous_token_target",
    "prune_heads",
    "record_heads",
    "repeated_tokens",
    "resampled_instead",
    "same_token_target",
    "shut",
    "uniform_score",
]
