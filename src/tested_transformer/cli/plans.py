"""What a run is to be, all of it checked before anything is written."""

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tested_transformer.checkpoints import (
    Checkpoint,
    CheckpointError,
    has_checkpoint,
    load_checkpoint,
)
from tested_transformer.cli.options import MODEL, TEXT, TRAINING, given
from tested_transformer.data import (
    CORPORA,
    BytePairTokenizer,
    CharTokenizer,
    TokenizedCorpus,
    load_tokens,
    num_windows,
    split,
    tokenizer_from_dict,
)
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import Recipe, TrainingState, World

__all__ = ["MODELS", "RECIPES", "Plan", "make_plan", "resume_plan", "text_of"]

RECIPES = {"fast": Recipe.fast, "plain": Recipe.plain}
# What each recipe asks of the model.
MODELS: dict[str, dict[str, Any]] = {
    "fast": {
        "positions": "alibi",
        "activation": "relu2",
        "bias": False,
        "tie_head": False,
        "qk_norm": True,
        "smear": True,
    },
    "plain": {},
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run that can begin.

    Args:
        folder: Where it is saved.
        corpus: The text, as tokens.
        model: On the CPU, with the weights to begin with.
        recipe: How to train.
        settings: What is saved beside the model.
        state: Where the run stands.
        resumed: Whether it was begun before.
    """

    folder: Path
    corpus: TokenizedCorpus
    model: GPT
    recipe: Recipe
    settings: dict[str, Any]
    state: TrainingState
    resumed: bool


def make_plan(arguments: argparse.Namespace) -> Plan:
    """Plan a new run.

    Raises:
        OSError: If the text cannot be read.
        ValueError: If something does not fit, or there is a run in the folder.
    """
    name = arguments.corpus or "grammar"
    folder = _folder(arguments)
    if has_checkpoint(folder) and not arguments.overwrite:
        raise ValueError(
            f"{folder} holds a run already: go on with it by --resume, begin anew "
            "with --overwrite, or name another folder with --out"
        )
    if arguments.vocab_size is not None and arguments.tokenizer != "bpe":
        raise ValueError("--vocabulary goes with --tokenizer bpe alone")
    bytepairs = arguments.tokenizer == "bpe"
    corpus = load_tokens(
        name,
        tokenizer=BytePairTokenizer.kind if bytepairs else CharTokenizer.kind,
        vocab_size=arguments.vocab_size,
        num_characters=arguments.num_characters,
    )
    tokenizer = corpus.tokenizer
    recipe_name = arguments.recipe or "fast"
    settings = {**MODELS[recipe_name], **given(arguments, MODEL)}
    config = GPTConfig(vocab_size=tokenizer.vocab_size, **settings)
    recipe = _make_recipe(recipe_name, given(arguments, TRAINING))
    torch.manual_seed(recipe.seed)
    plan = Plan(
        folder=folder,
        corpus=corpus,
        model=GPT(config),
        recipe=recipe,
        settings={
            "text": _about_text(name, corpus, arguments.num_characters),
            "tokenizer": tokenizer.to_dict(),
            "recipe": recipe.to_dict(),
            "recipe_name": recipe_name,
        },
        state=TrainingState(saved_step=None),
        resumed=False,
    )
    _check(plan)
    return plan


def resume_plan(arguments: argparse.Namespace) -> Plan:
    """Plan to go on with a run; what was typed has to be what it was begun with.

    Raises:
        CheckpointError: If there is no run, it is damaged, or it was another.
        OSError: If the text cannot be read.
        ValueError: If the text is another.
    """
    folder = _folder(arguments)
    if not has_checkpoint(folder):
        raise CheckpointError(
            f"{folder} holds no run to go on with: leave --resume out to begin one"
        )
    checkpoint = load_checkpoint(folder)
    if checkpoint.training is None or "recipe" not in checkpoint.settings:
        raise CheckpointError(f"{folder} holds a model, and no run to go on with")
    _require_what_was_typed(arguments, checkpoint)
    recipe = Recipe.from_dict(checkpoint.settings["recipe"])
    if arguments.evaluate_every is not None:
        recipe = dataclasses.replace(recipe, evaluate_every=arguments.evaluate_every)
    corpus = text_of(checkpoint, arguments.corpus)
    plan = Plan(
        folder=folder,
        corpus=corpus,
        model=checkpoint.model(),
        recipe=recipe,
        settings=checkpoint.settings,
        state=TrainingState.from_state(*checkpoint.training),
        resumed=True,
    )
    _check(plan)
    return plan


def text_of(checkpoint: Checkpoint, name: str | None = None) -> TokenizedCorpus:
    """Load the tokens of the text that a run was trained on.

    Args:
        checkpoint: The run's.
        name: Where the text is now, if it is not where it was.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is another text than then.
    """
    about = checkpoint.settings.get("text")
    if about is None:
        raise ValueError(f"{checkpoint.folder} does not say what it was trained on")
    try:
        return load_tokens(
            name or about["name"],
            tokenizer=tokenizer_from_dict(checkpoint.settings["tokenizer"]),
            sha256=about["sha256"],
            num_characters=about["limit"],
        )
    except ValueError as error:
        raise ValueError(
            f"{error}; {checkpoint.folder} was trained on {about['name']}, "
            f"{about['characters']} characters"
        ) from None


def _folder(arguments: argparse.Namespace) -> Path:
    if arguments.out is not None:
        return Path(arguments.out)
    return Path("runs") / Path(arguments.corpus or "grammar").stem


def _make_recipe(name: str, changes: dict[str, Any]) -> Recipe:
    whole = RECIPES[name]()
    steps = changes.get("steps", whole.steps)
    fitting = {
        "warmup": min(whole.warmup, steps // 10),
        "evaluate_every": min(whole.evaluate_every, max(1, -(-steps // 4))),
    }
    return RECIPES[name](**{**fitting, **changes})


def _about_text(
    name: str, corpus: TokenizedCorpus, limit: int | None
) -> dict[str, Any]:
    return {
        # A path has to lead there from elsewhere, too.
        "name": name if name in CORPORA else str(Path(name).expanduser().resolve()),
        "limit": limit,
        "characters": corpus.num_characters,
        "sha256": corpus.sha256,
    }


def _require_what_was_typed(
    arguments: argparse.Namespace, checkpoint: Checkpoint
) -> None:
    recipe = given(arguments, TRAINING)
    recipe.pop("evaluate_every", None)  # looks on, and changes nothing
    wanted: dict[str, Any] = {"config": given(arguments, MODEL), "recipe": recipe}
    text = given(arguments, TEXT)
    if "tokenizer" in text:
        kinds = {"char": "characters", "bpe": "byte pairs"}
        wanted["tokenizer"] = {"kind": kinds[text["tokenizer"]]}
    if "vocab_size" in text:
        wanted["config"]["vocab_size"] = text["vocab_size"]
    if "num_characters" in text:
        wanted["text"] = {"limit": text["num_characters"]}
    if arguments.recipe is not None:
        wanted["recipe_name"] = arguments.recipe
    try:
        checkpoint.require(settings=wanted)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; leave out what differs, or begin anew with --overwrite"
        ) from None


def _check(plan: Plan) -> None:
    """Refuse what training would refuse, while nothing is written yet."""
    recipe, config = plan.recipe, plan.model.config
    train_tokens, held_out = split(plan.corpus.tokens)
    num_windows(len(train_tokens), config.max_seq_len)
    if len(held_out) < 2:
        raise ValueError(
            f"{len(plan.corpus.tokens)} tokens leave {len(held_out)} to hold out; "
            "to predict one takes 2"
        )
    parts = recipe.accumulate * World.from_environment().size
    if recipe.batch_size % parts:
        raise ValueError(
            f"batch_size={recipe.batch_size} must be divisible by {parts}, "
            "accumulate times the number of processes"
        )
