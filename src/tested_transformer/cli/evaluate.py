"""``tested-transformer evaluate``: how good a model is, and whether that is honest."""

import argparse
import json
import math

import torch

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
from tested_transformer.cli.plans import text_of
from tested_transformer.cli.sources import Source, load_source
from tested_transformer.data import TokenizedCorpus, load_tokens, split
from tested_transformer.training import (
    choose_precision,
    evaluate,
    honest_loss,
    windows_that_fit,
)

__all__ = ["add_evaluate", "run"]

EXAMPLES = """\
examples:
  tested-transformer evaluate                     the latest run, on what it never saw
  tested-transformer evaluate runs/play --context 32
  tested-transformer evaluate runs/play other.txt --json

The loss is the mean over all tokens, each predicted from those before it in its
window. The honest loss is measured where the model is given nothing but what comes
before; if it differs from that of one pass at the same positions, the model sees what
it should predict, and its loss says nothing: that is status 1.

next:
  evaluate a run trained with --recipe plain beside it
"""

OPTIONS = (
    Option("--context", "seq_len", int, "tokens in a window (all the model can read)"),
    Option(
        "--precision",
        "precision",
        ("auto", "fp32", "bf16", "fp16"),
        "the numbers to multiply in (fp32); the honest loss is always in fp32",
    ),
)

# Rounding in float32 makes a difference far smaller than this, a leak a larger one.
_HONEST_WITHIN = 0.01


def add_evaluate(commands: Commands) -> argparse.ArgumentParser:
    """Describe the command."""
    parser = commands.add_parser(
        "evaluate",
        help="measure a model's loss, and whether it is honest",
        usage="%(prog)s [CHECKPOINT] [TEXT] [options]",
        description="Measure a model's loss on a text, and whether it is honest.",
        epilog=EXAMPLES,
    )
    add_checkpoint(parser)
    parser.add_argument(
        "corpus",
        nargs="?",
        metavar="TEXT",
        help="a text, read whole (the part of its own that was held out)",
    )
    add_options(parser, "evaluation", OPTIONS)
    add_options(parser, "machine", DEVICE)
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Evaluate, and return the exit status."""
    device = use_machine(arguments)
    precision = choose_precision(device, arguments.precision or "fp32")
    source = load_source(arguments.checkpoint, device)
    longest = source.model.config.max_seq_len
    seq_len = longest if arguments.seq_len is None else arguments.seq_len
    check_at_least(1, "seq_len", seq_len)
    if seq_len > longest:
        raise ValueError(
            f"seq_len={seq_len} must not be beyond the model's context, {longest}"
        )
    corpus, part, tokens = _tokens(source, arguments.corpus)
    sizes = {"seq_len": seq_len, "vocab_size": source.model.config.vocab_size}
    loss = evaluate(
        source.model,
        tokens,
        seq_len=seq_len,
        batch_size=windows_that_fit(**sizes, at_most=64),
        precision=precision,
    )
    honest = honest_loss(
        source.model,
        tokens,
        seq_len=seq_len,
        num_windows=windows_that_fit(**sizes, at_most=16),
    )
    # Of the text itself, as the tokens of another vocabulary would be fewer or more.
    characters = len(source.tokenizer.decode(tokens[1:].tolist()))
    bits = loss * (len(tokens) - 1) / characters / math.log(2)
    agrees = abs(honest.prefix - honest.full) < _HONEST_WITHIN
    facts = {
        "checkpoint": source.name,
        "text": corpus.name,
        "part": part,
        "tokens": len(tokens),
        "context": seq_len,
        "precision": precision,
        "loss": loss,
        "honest": honest.prefix,
        "one_pass": honest.full,
        "agrees": agrees,
        "bits_per_character": bits,
        "perplexity": math.exp(loss),
        "bound": corpus.entropy,
    }
    if arguments.json:
        print(json.dumps(facts))
        return 0 if agrees else 1
    bound = corpus.entropy
    lines = [
        ("text", f"{part} of {corpus.origin}, {len(tokens):,} tokens"),
        ("loss", f"{loss:.4f} nats a token, in windows of {seq_len}"),
        ("honest loss", f"{honest.prefix:.4f}; in one pass {honest.full:.4f}"),
        ("", "they agree" if agrees else "they DIFFER: this loss is not honest"),
        ("bits", f"{bits:.4f} a character"),
        ("perplexity", f"{math.exp(loss):.3f}"),
    ]
    if bound is not None:
        lines.append(("bound", f"{bound:.4f}: no honest loss a character is lower"))
    print(f"{source.name}:")
    for name, value in lines:
        print(printable(f"  {name:<12} {value}"))
    return 0 if agrees else 1


def _tokens(
    source: Source, name: str | None
) -> tuple[TokenizedCorpus, str, torch.Tensor]:
    """Return a text that the model has not learned from."""
    if name is not None:
        corpus = load_tokens(name, tokenizer=source.tokenizer)
        return corpus, "all", corpus.tokens
    if source.checkpoint is None:
        raise ValueError(f"{source.name} has no text of its own: name one")
    corpus = text_of(source.checkpoint)
    return corpus, "the held-out part", split(corpus.tokens)[1]
