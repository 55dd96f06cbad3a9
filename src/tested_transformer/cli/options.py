"""The options of all commands: what each is called, what it sets, what it is for.

An option that sets a value of the library has that value's name here, so that the
library's own errors can be told in the words of the command.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tested_transformer.gpt import POSITIONS
from tested_transformer.layers import ACTIVATIONS, NORMS

__all__ = [
    "DEVICE",
    "MODEL",
    "OUTPUT",
    "SAMPLING",
    "TEXT",
    "TRAINING",
    "Commands",
    "Option",
    "add_checkpoint",
    "add_options",
    "check_at_least",
    "given",
    "in_words_of",
]


@runtime_checkable
class Commands(Protocol):
    """What commands are added to; argparse has no public name for it."""

    def add_parser(self, name: str, **settings: Any) -> argparse.ArgumentParser:
        """Add a command, and give the parser of its options."""
        ...


@dataclass(frozen=True)
class Option:
    """One option of a command.

    Args:
        flag: What is typed.
        name: The value that it sets.
        kind: ``int``, ``float``, ``str``, ``bool``, or the strings to choose from.
        text: What it is for, with its default where the library does not have one.
    """

    flag: str
    name: str
    kind: type | Sequence[str]
    text: str


MODEL = (
    Option("--layers", "num_layers", int, "blocks, one on top of the other"),
    Option("--heads", "num_heads", int, "heads of attention in each block"),
    Option(
        "--kv-heads",
        "num_kv_heads",
        int,
        "heads of keys and values, shared by the others (as many as --heads)",
    ),
    Option("--width", "d_model", int, "features of each token"),
    Option("--ff", "d_ff", int, "features inside the feed-forward (4 times --width)"),
    Option("--context", "max_seq_len", int, "tokens that the model sees at once"),
    Option("--positions", "positions", POSITIONS, "how order comes in"),
    Option("--activation", "activation", tuple(ACTIVATIONS), "the feed-forward's bend"),
    Option("--norm", "norm", tuple(NORMS), "how features are brought to one scale"),
    Option("--bias", "bias", bool, "add biases"),
    Option("--tie-head", "tie_head", bool, "the last matrix is the embedding"),
    Option("--qk-norm", "qk_norm", bool, "bring queries and keys to one length"),
    Option("--smear", "smear", bool, "mix into each token the one before it"),
    Option("--zero-init", "zero_init", bool, "begin with blocks that do nothing"),
    Option("--dropout", "dropout", float, "how much to forget while training"),
    Option("--experts", "num_experts", int, "experts in the feed-forward's place"),
    Option("--experts-per-token", "experts_per_token", int, "how many a token meets"),
    Option("--fused", "fused", bool, "attention in one kernel, not in the open"),
)

TRAINING = (
    Option("--steps", "steps", int, "how often the weights are changed"),
    Option("--batch", "batch_size", int, "sequences in each step"),
    Option(
        "--accumulate", "accumulate", int, "parts of a batch, if memory is too small"
    ),
    Option("--optimizer", "optimizer", ("adamw", "muon"), "what changes the weights"),
    Option("--lr", "lr", float, "AdamW's learning rate, where no other is given"),
    Option("--embedding-lr", "embedding_lr", float, "that of the embeddings"),
    Option("--head-lr", "head_lr", float, "that of a head of its own"),
    Option("--muon-lr", "muon_lr", float, "Muon's learning rate"),
    Option("--weight-decay", "weight_decay", float, "how fast matrices fade"),
    Option(
        "--schedule",
        "schedule",
        ("cosine", "linear", "trapezoid", "constant"),
        "how the learning rate falls",
    ),
    Option("--warmup", "warmup", int, "steps in which it rises, at most a tenth"),
    Option("--clip", "clip", float, "the longest gradient; 0 for no limit"),
    Option(
        "--eval-every",
        "evaluate_every",
        int,
        "steps between two evaluations, at most a quarter",
    ),
    Option(
        "--precision",
        "precision",
        ("auto", "fp32", "bf16", "fp16"),
        "the numbers to multiply in",
    ),
    Option("--compile", "compile", bool, "compile the model: slow to start"),
    Option("--seed", "seed", int, "another seed, other weights and batches"),
)

TEXT = (
    Option("--tokenizer", "tokenizer", ("char", "bpe"), "what a token is (char)"),
    Option("--vocabulary", "vocab_size", int, "tokens of --tokenizer bpe (1024)"),
    Option("--characters", "num_characters", int, "how much of the text (all)"),
    Option(
        "--eval-tokens",
        "eval_tokens",
        int,
        "how much of the held-out part is read at each evaluation (32768)",
    ),
)

OUTPUT = (
    Option("--out", "out", str, "the folder to save to (runs/NAME, after the text)"),
    Option("--save-every", "save_every", int, "steps between two saves (100)"),
    Option("--sample", "sample", int, "tokens to show before and after (240)"),
)

SAMPLING = (
    Option("--tokens", "max_new_tokens", int, "how many to write, at most (300)"),
    Option("--temperature", "temperature", float, "0 takes the likeliest (0.8)"),
    Option("--top-k", "top_k", int, "draw from the K likeliest alone"),
    Option("--top-p", "top_p", float, "draw from the likeliest that make up P"),
    Option("--min-p", "min_p", float, "leave out what is rarer than P times the top"),
    Option(
        "--repetition-penalty",
        "repetition_penalty",
        float,
        "above 1, tokens that were there are rarer (1)",
    ),
    Option("--samples", "samples", int, "how many texts to write (1)"),
    Option("--seed", "seed", int, "the same seed, the same text (drawn, and told)"),
)

DEVICE = (
    Option("--device", "device", str, "cpu, cuda, cuda:1, mps (auto: the best)"),
    Option("--threads", "threads", int, "CPU threads (PyTorch's choice)"),
)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Let a command be told which model, or take the latest."""
    parser.add_argument(
        "checkpoint",
        nargs="?",
        metavar="CHECKPOINT",
        help="the model (the latest run in runs/)",
    )


def add_options(
    parser: argparse.ArgumentParser,
    title: str,
    options: Sequence[Option],
    *defaults: Any,
) -> None:
    """Give a command a group of options.

    None of them has a default of its own, so that what was typed can be told from
    what was not.

    Args:
        parser: The command's.
        title: Of the group.
        options: Those in it.
        defaults: What has the values that hold otherwise, to be shown: all different
            ones, in this order.
    """
    group = parser.add_argument_group(title)
    for option in options:
        text = option.text
        values = [getattr(each, option.name, None) for each in defaults]
        if "(" not in text and values != [None] * len(values):
            shown = dict.fromkeys(_shown(value) for value in values)
            text += f" ({' or '.join(shown)})"
        settings: dict[str, Any] = {"dest": option.name, "help": text, "default": None}
        if option.kind is bool:
            settings["action"] = argparse.BooleanOptionalAction
        elif isinstance(option.kind, type):
            names = {int: "N", float: "X", str: "NAME"}
            settings |= {"type": option.kind, "metavar": names[option.kind]}
        else:
            settings["choices"] = option.kind
        group.add_argument(option.flag, **settings)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def given(arguments: argparse.Namespace, options: Sequence[Option]) -> dict[str, Any]:
    """Return the values that were typed, by name."""
    values = {option.name: getattr(arguments, option.name) for option in options}
    return {name: value for name, value in values.items() if value is not None}


def check_at_least(least: int, name: str, value: int | None) -> None:
    """Refuse a number that is too small, if one was typed.

    Raises:
        ValueError: If it is.
    """
    if value is not None and value < least:
        wanted = "be positive" if least else "not be negative"
        raise ValueError(f"{name}={value} must {wanted}")


def in_words_of(flags: Mapping[str, str], message: str) -> str:
    """Tell an error of the library in the words of the command.

    Args:
        flags: What is typed, by the name of what it sets.
        message: The error: ``d_model=65`` in it becomes ``--width 65``.
    """

    def flag(found: re.Match[str]) -> str:
        return f"{flags[found[1]]} "

    names = "|".join(map(re.escape, flags))
    return re.sub(rf"(?<![\w.])(?:config\.|recipe\.)?({names})=", flag, message)
