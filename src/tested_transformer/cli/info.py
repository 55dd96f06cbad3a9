"""``tested-transformer info``: what there is to compute on, and what a run is."""

import argparse
import json
import platform
from collections import Counter
from dataclasses import asdict
from typing import Any

import torch

from tested_transformer import __version__
from tested_transformer.checkpoints import Checkpoint
from tested_transformer.cli.display import printable
from tested_transformer.cli.options import Commands
from tested_transformer.cli.sources import find_checkpoint
from tested_transformer.gpt import GPT
from tested_transformer.training import choose_device, choose_precision

__all__ = ["add_info", "run"]

EXAMPLES = """\
examples:
  tested-transformer info                what this machine offers
  tested-transformer info runs/grammar   what a run is made of, and where it stands
  tested-transformer info --json         the same for programs

next:
  tested-transformer train
"""


def add_info(commands: Commands) -> argparse.ArgumentParser:
    """Describe the command."""
    parser = commands.add_parser(
        "info",
        help="say what there is to compute on, or what a run is",
        usage="%(prog)s [CHECKPOINT] [options]",
        description="Say what there is to compute on, or what a run is.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "checkpoint", nargs="?", metavar="CHECKPOINT", help="a folder with a run"
    )
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Say it, and return the exit status."""
    if arguments.checkpoint is None:
        facts = _of_machine()
    else:
        facts = _of_run(find_checkpoint(arguments.checkpoint, training=True))
    if arguments.json:
        print(json.dumps(facts))
        return 0
    width = max(map(len, facts))
    for name, value in facts.items():
        print(printable(f"{name.replace('_', ' '):<{width}}  {_shown(value)}"))
    return 0


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _of_machine() -> dict[str, Any]:
    best = choose_device()
    devices = {"cpu": platform.processor() or platform.machine()}
    for index in range(torch.cuda.device_count()):
        devices[f"cuda:{index}"] = torch.cuda.get_device_name(index)
    if torch.backends.mps.is_available():
        devices["mps"] = "Apple"
    return {
        "tested_transformer": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "devices": devices,
        "would_train_on": str(best),
        "in": choose_precision(best),
        "threads": torch.get_num_threads(),
    }


def _of_run(checkpoint: Checkpoint) -> dict[str, Any]:
    model = checkpoint.model()
    facts: dict[str, Any] = {
        "folder": str(checkpoint.folder),
        "model": asdict(checkpoint.config),
        "parameters": model.num_parameters(),
        "active": model.num_parameters(active=True),
        "parts": _parts(model),
        "bytes": sum(file.stat().st_size for file in checkpoint.folder.iterdir()),
    }
    settings = checkpoint.settings
    facts |= {name: settings[name] for name in ("text", "recipe") if name in settings}
    tokenizer = settings.get("tokenizer")
    if tokenizer is not None:
        kind = f"{checkpoint.config.vocab_size} {tokenizer['kind']}"
        facts["tokenizer"] = kind
    if checkpoint.training is not None:
        tensors, values = checkpoint.training
        facts |= {"step": values["step"], "seconds": values["seconds"]}
        if values["step"]:
            facts["loss"] = tensors["losses"][-1].item()
        if values["validations"]:
            latest = values["validations"][-1]
            facts["held_out_loss"] = latest["loss"]
            facts["honest_loss"] = latest["prefix"]
            facts["one_pass_loss"] = latest["full"]
    return facts


def _parts(model: GPT) -> dict[str, int]:
    """Count the parameters of each part: the embeddings, attention and so on."""
    parts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        words = name.split(".")
        parts[words[2] if words[0] == "blocks" else words[0]] += parameter.numel()
    return dict(parts)
