"""``tested-transformer generate``: a model writes."""

import argparse
import json
import secrets
import sys
import time
from typing import Any

from tested_transformer.cli.display import Terminal, printable
from tested_transformer.cli.machine import use_machine
from tested_transformer.cli.options import (
    DEVICE,
    SAMPLING,
    Commands,
    add_checkpoint,
    add_options,
    check_at_least,
    given,
)
from tested_transformer.cli.sources import HUB_NAMES, Source, load_source
from tested_transformer.cli.writing import default_prompt, write

__all__ = ["add_generate", "run"]

EXAMPLES = f"""\
examples:
  tested-transformer generate                       the latest run in runs/ writes
  tested-transformer generate runs/play --prompt "To be" --tokens 500
  tested-transformer generate --temperature 0       always the likeliest token
  tested-transformer generate --top-p 0.9 --seed 7  the same text each time
  tested-transformer generate --stop "\\n\\n"         up to an empty line
  tested-transformer generate gpt2 --prompt "Attention is"

The text goes to the standard output, and everything else beside it. The model is a
folder that train has saved, one with a card.json, as the book's own models have, one
with GPT-2's config.json, model.safetensors and tokenizer.json, or one of
{", ".join(HUB_NAMES)}, which are fetched once, or hub:OWNER/NAME.

next:
  try --temperature 0.5 and 1.5, and see what it costs in sense
"""


def add_generate(commands: Commands) -> argparse.ArgumentParser:
    """Describe the command."""
    parser = commands.add_parser(
        "generate",
        help="let a model write",
        usage="%(prog)s [CHECKPOINT] [options]",
        description="Let a model write, token by token, as it comes.",
        epilog=EXAMPLES,
    )
    add_checkpoint(parser)
    parser.add_argument(
        "--prompt", metavar="TEXT", help="what the model goes on from (a new line)"
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end before this comes; may be given several times, and has \\n for a "
        "new line",
    )
    add_options(parser, "sampling", SAMPLING)
    add_options(parser, "machine", DEVICE)
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Write, and return the exit status."""
    settings: dict[str, Any] = {"max_new_tokens": 300, "temperature": 0.8}
    settings |= given(arguments, SAMPLING)
    count = settings.pop("samples", 1)
    check_at_least(1, "samples", count)
    if "" in arguments.stop:
        raise ValueError("--stop '' must not be empty")
    stop = [each.replace("\\n", "\n") for each in arguments.stop]
    seed = settings.pop("seed", None)
    chosen = secrets.randbelow(2**31) if seed is None else seed
    source = load_source(arguments.checkpoint, use_machine(arguments))
    prompt = arguments.prompt
    if prompt is None:
        prompt = default_prompt(source.tokenizer)
    for number in range(count):
        settings["seed"] = chosen + number
        if arguments.json:
            _write_json(source, prompt, stop, number, settings)
        else:
            if number:
                print(f"\n--- sample {number + 1} of {count} ---")
            _write_text(source, prompt, stop, settings)
    if seed is None and not arguments.json and settings["temperature"] > 0:
        note = Terminal(stderr=True)
        note.print(f"the same again with --seed {chosen}", style="dim", highlight=False)
    return 0


def _write_text(
    source: Source, prompt: str, stop: list[str], settings: dict[str, Any]
) -> None:
    on_terminal = sys.stdout.isatty()
    pieces = write(source.model, source.tokenizer, prompt, stop=stop, **settings)
    shown = prompt.lstrip("\n")
    if shown:
        console = Terminal(file=sys.stdout, soft_wrap=True)
        console.print(
            printable(shown) if on_terminal else shown,
            style="bold",
            end="",
            markup=False,
            highlight=False,
        )
    for piece in pieces:
        sys.stdout.write(printable(piece) if on_terminal else piece)
        sys.stdout.flush()
    print(flush=True)


def _write_json(
    source: Source,
    prompt: str,
    stop: list[str],
    number: int,
    settings: dict[str, Any],
) -> None:
    started = time.perf_counter()
    pieces = write(source.model, source.tokenizer, prompt, stop=stop, **settings)
    text = "".join(pieces)
    result = {
        "sample": number + 1,
        "checkpoint": source.name,
        "prompt": prompt,
        "text": text,
        "seconds": time.perf_counter() - started,
        **settings,
    }
    print(json.dumps(result), flush=True)
