"""Train the models that the book ships, from scratch: ``make models``.

Each is a run of ``tested-transformer train`` in ``.cache/models``; an interrupted run
is resumed. The book ships the final weights in half precision, with a card.

A card names the commit that was checked out; ``dirty`` says whether there were other
changes. Training again at a clean commit gives the same bytes on the same kind of
processor.
"""

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.stamp import commit, dirty
from tested_transformer.checkpoints import (
    has_checkpoint,
    load_checkpoint,
    load_shipped,
    ship_model,
)
from tested_transformer.cli import main as command
from tested_transformer.data import (
    FEW_NAMES,
    Stories,
    Tokenizer,
    WordTokenizer,
    agreements,
    load_corpus,
    name_target,
    split,
    story_entropy,
    subject_target,
    tokenizer_from_dict,
    word_agreements,
    word_name_target,
    word_subject_target,
    write_stories,
)
from tested_transformer.decoding import Sampling, generate
from tested_transformer.gpt import GPT
from tested_transformer.interpret import (
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
from tested_transformer.training import evaluate, honest_loss
from transformer_book import MODELS

__all__ = ["COMMANDS", "about", "grammar_scores", "head_means", "make_model", "sample"]

# The textbook's model from the chapter Mini GPT, trained by the fast recipe.
_TRAIN = (
    "train {text} --positions learned --activation gelu --bias --tie-head "
    "--no-qk-norm --no-smear --no-zero-init --lr 0.005 "
    "--embedding-lr 0.005 --precision fp32 --threads 1 {rest}"
)
_SIZE = "--max-seq-len 128 --d-model 64 --num-layers 3 --steps 1500 --seed"
_WORDS = (
    "--num-characters 5000000 --max-seq-len 64 --d-model 64 --num-heads 4 "
    "--num-layers 2 --steps 1000 --batch-size 32 --seed"
)
COMMANDS = {
    "grammar": _TRAIN.format(text="grammar", rest=f"{_SIZE} 1"),
    "shakespeare": _TRAIN.format(
        text="shakespeare", rest="--max-seq-len 128 --steps 2200 --seed 1"
    ),
    **{
        f"grammar-{seed}": _TRAIN.format(text="grammar", rest=f"{_SIZE} {seed}")
        for seed in range(2, 6)
    },
    "stories": _TRAIN.format(text="stories", rest=f"{_WORDS} 1"),
    **{
        f"stories-{seed}": _TRAIN.format(text="stories", rest=f"{_WORDS} {seed}")
        for seed in range(2, 6)
    },
}
_SAMPLE = 200
_STORIES, _STORIES_SEED = 16_000, 1000


def make_model(name: str, runs: Path, out: Path) -> dict[str, Any]:
    """Train one of the models, or resume its training, and ship it.

    Args:
        name: One of ``COMMANDS``.
        runs: The folder for runs.
        out: The folder for models.

    Returns:
        Its card.

    Raises:
        RuntimeError: If the run did not finish.
    """
    folder = runs / name
    words = [*shlex.split(COMMANDS[name]), "--out", str(folder), "--sample", "0"]
    if command([*words, *(["--resume"] if has_checkpoint(folder) else [])]):
        raise RuntimeError(f"{name} was not trained to its end")
    checkpoint = load_checkpoint(folder)
    settings = {key: checkpoint.settings[key] for key in ("text", "tokenizer")}
    recipe = {**checkpoint.settings["recipe"]}
    del recipe["evaluate_every"]  # looks on, and changes nothing
    # Ship the weights first, so that the card describes the shipped weights.
    ship_model(out / name, checkpoint.model())
    model = load_shipped(out / name).model
    card = {
        "name": name,
        "command": f"tested-transformer {COMMANDS[name]}",
        **settings,
        "recipe": recipe,
        **about(model, settings),
        "torch": torch.__version__,
        "commit": commit(),
        "dirty": dirty(),
    }
    ship_model(out / name, model, card)
    tokenizer = tokenizer_from_dict(settings["tokenizer"])
    if settings["text"]["name"] in ("grammar", "stories"):
        scores = grammar_scores(model, tokenizer)
        (out / name / "heads.json").write_text(json.dumps(scores, indent=1) + "\n")
    if settings["text"]["name"] == "stories":
        means = {"means": head_means(model, tokenizer).half()}
        save_file(means, out / name / "means.safetensors")
    if name == "stories":  # for a reader who has no file of maps
        command(["heads", str(out / name), "--out", str(out / name / "maps.json")])
    return load_shipped(out / name).card


def about(model: GPT, settings: dict[str, Any]) -> dict[str, Any]:
    """Evaluate a model on held-out text, and generate a sample.

    Args:
        model: The model.
        settings: The settings of its run, with ``text`` and ``tokenizer``.
    """
    tokenizer = tokenizer_from_dict(settings["tokenizer"])
    text = settings["text"]
    corpus = load_corpus(text["name"], num_characters=text["limit"])
    held_out = split(torch.tensor(tokenizer.encode(corpus.text)))[1]
    honest = honest_loss(model, held_out)
    unit, bound = "characters", corpus.entropy
    if isinstance(tokenizer, WordTokenizer):
        unit, bound = "words", story_entropy(FEW_NAMES, per="word")
    return {
        "loss": {
            "held_out": round(evaluate(model, held_out), 4),
            unit: len(held_out),
            "honest": round(honest.prefix, 4),
            "one_pass": round(honest.full, 4),
            "bound": bound,
        },
        "sample": sample(model, tokenizer),
    }


def sample(model: GPT, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a sample of a model, and how well the model predicts it."""
    start = tokenizer.encode("\n")
    sampling = Sampling(temperature=0.8)
    (new,) = generate(model, [start], max_new_tokens=_SAMPLE, sampling=sampling, seed=0)
    text = tokenizer.decode([*start, *new])
    loss = evaluate(model, torch.tensor([*start, *new]))
    return {"text": text, "loss": round(loss, 4)}


def _new_stories(model: GPT, tokenizer: Tokenizer) -> tuple[int, Stories, Tensor]:
    """Return how many characters of stories were asked for, these, and windows."""
    by_words = isinstance(tokenizer, WordTokenizer)
    options = {"names": FEW_NAMES} if by_words else {}
    count = 6 * _STORIES if by_words else _STORIES
    stories = write_stories(count, seed=_STORIES_SEED, **options)
    tokens = torch.tensor(tokenizer.encode(stories.text))
    length = model.config.max_seq_len
    return count, stories, tokens[: len(tokens) // length * length].view(-1, length)


def head_means(model: GPT, tokenizer: Tokenizer) -> Tensor:
    """Return what the heads of each layer write at each position, on average: LxTxD.

    The average is over windows of new stories. It replaces a head without taking away
    what the head writes at that position in any text.
    """
    _, _, windows = _new_stories(model, tokenizer)
    outputs = record_heads(model, windows).outputs
    return torch.stack(
        [output.mean(dim=0).transpose(0, 1).flatten(1) for output in outputs]
    )


def grammar_scores(model: GPT, tokenizer: Tokenizer) -> dict[str, Any]:
    """Score every head of a model of the grammar on new stories."""
    count, stories, windows = _new_stories(model, tokenizer)
    length = model.config.max_seq_len
    starts = [row * length for row in range(len(windows))]
    ends = tokenizer.encode(" ,.\n")
    if isinstance(tokenizer, WordTokenizer):
        verbs = [*word_agreements(stories)]
        subjects = word_subject_target(verbs, starts, length)
        names = word_name_target(stories, starts, length)
    else:
        subjects = subject_target([*agreements(stories)], starts, length)
        names = name_target(stories, starts, length, letter=2)
    targets = {
        "previous token": previous_token_target(windows),
        "first token": first_token_target(windows),
        "delimiter": delimiter_target(windows, ends),
        "same token": same_token_target(windows),
        "subject of the verb": subjects,
        "name that came before": names,
    }
    weights = record_heads(model, windows).weights
    scores = {name: head_scores(weights, target) for name, target in targets.items()}
    repeated = repeated_tokens(tokenizer.vocab_size, 32, num_sequences=32)
    weights = record_heads(model, repeated).weights
    scores["induction"] = head_scores(weights, induction_target(repeated))
    return {
        "text": f"write_stories({count}, seed={_STORIES_SEED})",
        "scores": {
            name: [[round(score, 3) for score in row] for row in values.tolist()]
            for name, values in scores.items()
        },
        "of an even head": {
            name: round(uniform_score(target), 3) for name, target in targets.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and ship all models, or some of them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models",
        description="Train the models that the book ships, and write their cards.",
    )
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(COMMANDS)}")
    parser.add_argument("--runs", type=Path, default=Path(".cache/models"))
    parser.add_argument("--out", type=Path, default=MODELS)
    options = parser.parse_args(arguments)
    for name in options.names or COMMANDS:
        card = make_model(name, options.runs, options.out)
        print(f"{name}: {card['weights']['bytes']:,} bytes, {card['loss']}")


if __name__ == "__main__":
    main()
