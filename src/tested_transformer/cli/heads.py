"""``tested-transformer heads``: what every head of a model attends to, in numbers."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tested_transformer.cli.display import printable
from tested_transformer.cli.machine import use_machine
from tested_transformer.cli.options import (
    DEVICE,
    Commands,
    Option,
    add_checkpoint,
    add_options,
    check_at_least,
)
from tested_transformer.cli.sources import Source, load_source
from tested_transformer.data import (
    CharTokenizer,
    Stories,
    Tokenizer,
    agreements,
    load_corpus,
    name_target,
    subject_target,
    write_stories,
)
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

__all__ = ["OPTIONS", "add_heads", "run"]

EXAMPLES = """\
examples:
  tested-transformer heads                      the latest run in runs/
  tested-transformer heads runs/play play.txt   on a text of yours
  tested-transformer heads gpt2 play.txt --tokens 2048
  tested-transformer heads --json               the same for programs

A score is the weight, from 0 to 1, that a head puts where a head of some kind would
look, averaged over all tokens that leave it a choice:
  previous   the token before
  first      the first token of the window, where heads rest that find nothing
  delimiter  earlier tokens without a letter or a digit
  same       earlier tokens that are the same
  induction  what came after the same token, in tokens drawn by chance and repeated
  subject    the word that a verb agrees with           (stories of the grammar alone)
  name       the letter to copy from an earlier name    (stories of the grammar alone)
Beside each stands what a head scores that looks at everything alike. A high score says
where a head looks, and not that the model needs it.

next:
  shut a head, and see what is lost: the book's chapter What heads do
"""

OPTIONS = (
    Option("--tokens", "num_tokens", int, "how much of the text to read (16384)"),
    Option("--context", "seq_len", int, "tokens in a window (all the model can read)"),
)
# How many weights are kept at a time: of a small model many windows, of GPT-2 one.
_WEIGHTS = 2**25
# Stories that train does not write, unless it is asked for them.
_SEED = 1000
_LETTER = 2  # of a name: the first that two before it can tell


class _Kind(NamedTuple):
    """Of one kind of head: the score of each, by layer, and that of an even head."""

    heads: list[list[float]]
    even: float

    @property
    def best(self) -> tuple[int, int]:
        """The layer and the number of the head that scores best."""
        of_head = {
            (layer, head): score
            for layer, scores in enumerate(self.heads)
            for head, score in enumerate(scores)
        }
        return max(of_head, key=of_head.__getitem__)


def add_heads(commands: Commands) -> argparse.ArgumentParser:
    """Describe the command."""
    parser = commands.add_parser(
        "heads",
        help="score what each head of a model attends to",
        usage="%(prog)s [CHECKPOINT] [TEXT] [options]",
        description="Score what each head of a model attends to.",
        epilog=EXAMPLES,
    )
    add_checkpoint(parser)
    parser.add_argument(
        "corpus",
        nargs="?",
        metavar="TEXT",
        help="a text to read (the model's own; of the grammar, stories that are new)",
    )
    add_options(parser, "scores", OPTIONS)
    add_options(parser, "machine", DEVICE)
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Score the heads, and return the exit status."""
    device = use_machine(arguments)
    check_at_least(1, "num_tokens", arguments.num_tokens)
    source = load_source(arguments.checkpoint, device)
    config = source.model.config
    longest = config.max_seq_len
    seq_len = longest if arguments.seq_len is None else arguments.seq_len
    if not 2 <= seq_len <= longest:
        raise ValueError(
            f"seq_len={seq_len} must lie between 2 and the model's context, {longest}"
        )
    count = 16384 if arguments.num_tokens is None else arguments.num_tokens
    name, text, stories = _text(source, arguments.corpus, count)
    tokens = torch.tensor(source.tokenizer.encode(text), device=device)[:count]
    if len(tokens) < seq_len:
        raise ValueError(
            f"{len(tokens)} tokens do not fill a window of {seq_len}: give a longer "
            "text, more --tokens or a smaller --context"
        )
    windows = tokens[: len(tokens) // seq_len * seq_len].view(-1, seq_len)
    kinds = _score(source.model, windows, _targets(windows, source.tokenizer, stories))
    half = min(longest // 2, config.vocab_size, 64)
    drawn = repeated_tokens(config.vocab_size, half, num_sequences=16).to(device)
    kinds |= _score(source.model, drawn, {"induction": induction_target(drawn)})
    if arguments.json:
        facts = {
            "checkpoint": source.name,
            "text": name,
            "windows": len(windows),
            "context": seq_len,
            "scores": {kind: found.heads for kind, found in kinds.items()},
            "even": {kind: found.even for kind, found in kinds.items()},
        }
        print(json.dumps(facts))
        return 0
    size = f"{len(windows)} windows of {seq_len} tokens"
    print(printable(f"{source.name}: {size} of {name}"))
    for line in _table(kinds):
        print(line)
    return 0


def _text(
    source: Source, name: str | None, count: int
) -> tuple[str, str, Stories | None]:
    """Give a text, what it is called, and its derivation if the grammar made it."""
    if name is not None:
        corpus = load_corpus(name)
        return corpus.origin, corpus.text, None
    own = source.about.get("text")
    if own is None:
        raise ValueError(f"{source.name} has no text of its own: name one")
    if own["name"] == "grammar":
        # A character is a token or less, so these are enough.
        stories = write_stories(count, seed=_SEED)
        return f"the grammar, seed {_SEED}", stories.text, stories
    corpus = load_corpus(own["name"], num_characters=own["limit"])
    return corpus.origin, corpus.text, None


def _targets(
    windows: Tensor, tokenizer: Tokenizer, stories: Stories | None
) -> dict[str, Tensor]:
    """Say for each kind of head where it would look."""
    targets = {
        "previous": previous_token_target(windows),
        "first": first_token_target(windows),
        "same": same_token_target(windows),
    }
    delimiters = [
        token
        for token in windows.unique().tolist()
        if not any(map(str.isalnum, tokenizer.decode([token])))
    ]
    if delimiters:
        targets["delimiter"] = delimiter_target(windows, delimiters)
    if stories is not None and isinstance(tokenizer, CharTokenizer):
        # Where words begin and end is known by character.
        length = windows.shape[1]
        starts = [row * length for row in range(len(windows))]
        found = [*agreements(stories)]
        targets["subject"] = subject_target(found, starts, length)
        targets["name"] = name_target(stories, starts, length, letter=_LETTER)
    return {kind: each.to(windows.device) for kind, each in targets.items()}


def _score(
    model: GPT, windows: Tensor, targets: Mapping[str, Tensor]
) -> dict[str, _Kind]:
    """Score every head for each kind that has a target anywhere."""
    asked = {kind: each.any(dim=-1) for kind, each in targets.items()}
    sums = {kind: _Sum() for kind, each in asked.items() if each.any()}
    for rows in _batches(model, windows):
        weights = record_heads(model, windows[rows]).weights
        for kind, found in sums.items():
            count = int(asked[kind][rows].sum())
            if count:
                found.add(weights, targets[kind][rows], count)
    return {
        kind: _Kind(found.mean(), uniform_score(targets[kind].cpu()))
        for kind, found in sums.items()
    }


class _Sum:
    """Scores of some windows after the other; layers may differ in their heads."""

    def __init__(self) -> None:
        self.of_layers: list[Tensor] = []
        self.count = 0

    def add(self, weights: Sequence[Tensor], target: Tensor, count: int) -> None:
        more = [count * head_scores([each], target)[0].cpu() for each in weights]
        before = self.of_layers or [torch.zeros_like(each) for each in more]
        self.of_layers = [a + b for a, b in zip(before, more, strict=True)]
        self.count += count

    def mean(self) -> list[list[float]]:
        return [(each / self.count).tolist() for each in self.of_layers]


def _batches(model: GPT, windows: Tensor) -> Iterator[slice]:
    """Cut so many windows at a time that their weights can be kept."""
    count, length = windows.shape
    heads = sum(block.attention.num_heads for block in model.blocks)
    size = max(1, _WEIGHTS // (heads * length**2))
    yield from (slice(start, start + size) for start in range(0, count, size))


def _table(kinds: Mapping[str, _Kind]) -> Iterator[str]:
    """Lay out a row for each head, and under them what to compare them with."""
    first = next(iter(kinds.values()))
    names = {
        f"{layer}.{head}": (layer, head)
        for layer, of_layer in enumerate(first.heads)
        for head in range(len(of_layer))
    }

    def row(name: str, cells: Iterable[str]) -> str:
        return (f"{name:<9}" + "".join(f"{cell:>11}" for cell in cells)).rstrip()

    yield row("head", kinds)
    for name, (layer, head) in names.items():
        shown = [
            f"{found.heads[layer][head]:.2f}" + ("*" * (found.best == (layer, head)))
            for found in kinds.values()
        ]
        yield row(name, (each.ljust(5) for each in shown))
    yield row("even head", (f"{found.even:.2f} " for found in kinds.values()))
    yield "* the head that scores best; an even head looks at everything alike"
