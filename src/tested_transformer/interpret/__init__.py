"""Look into a model: what its heads attend to, what each is worth, and without some."""

from tested_transformer.interpret.ablation import (
    all_open,
    gate_slopes,
    gated_heads,
    loss_changes,
    mean_instead,
    resampled_instead,
    shut,
)
from tested_transformer.interpret.patterns import (
    Recording,
    delimiter_target,
    first_token_target,
    head_scores,
    induction_target,
    previous_token_target,
    record_heads,
    repeated_tokens,
    same_token_target,
    uniform_score,
)
from tested_transformer.interpret.pruning import prune_heads

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
