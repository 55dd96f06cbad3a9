"""``tested-transformer info``: what there is to compute on, and what a run is."""

import importlib.util
import json
import platform
import re
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

import torch

from tested_transformer import __version__, training
from tested_transformer.checkpoints import Checkpoint
from tested_transformer.cli.display import printable
from tested_transformer.cli.flags import Call
from tested_transformer.cli.sources import find_checkpoint

__all__ = ["Info"]


@dataclass(frozen=True)
class Info:
    """Describe this machine, for a report of a bug, or a run.

    Examples:
      tested-transformer info                what this machine offers
      tested-transformer info runs/grammar   what a run is made of, and where it stands
      tested-transformer info --json         the same for programs

    Args:
        checkpoint: A folder with a run.
    """

    checkpoint: str | None = None

    def run(self, call: Call) -> int:
        """Print what is known, and return the exit status."""
        if self.checkpoint is None:
            facts = _of_machine(call.device)
        else:
            facts = _of_run(find_checkpoint(self.checkpoint, training=True))
        if call.as_json:
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


def _of_machine(device: torch.device) -> dict[str, Any]:
    devices = {"cpu": platform.processor() or platform.machine()}
    for index in range(torch.cuda.device_count()):
        devices[f"cuda:{index}"] = torch.cuda.get_device_name(index)
    if torch.backends.mps.is_available():
        devices["mps"] = "Apple"
    precision, on_cpu = training.choose_precision(device), device.type == "cpu"
    return {
        "tested_transformer": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "torch": torch.__version__,
        "devices": devices,
        "would_train_on": str(device),
        "in": "fp32 or bf16, as each run measures" if on_cpu else precision,
        "threads": torch.get_num_threads(),
        "instructions": _instructions(),
        "extras": _extras(),
    }


def _instructions() -> str:
    """Name the vector instructions that PyTorch uses, and those for narrow numbers."""
    # Older releases of PyTorch cannot list them.
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    narrow = re.compile("amx|bf16|fp16|vnni|sve|dot|i8mm")
    more = [name for name, there in capabilities.items() if there is True]
    used = torch.backends.cpu.get_cpu_capability()
    return " ".join([used, *sorted(filter(narrow.search, more))])


def _extras() -> dict[str, str]:
    """Return the version of each package of the extras, or that it is missing."""
    try:
        lines = requires("tested-transformer") or []
    except PackageNotFoundError:  # It runs from its source.
        lines = []
    found: dict[str, str] = {}
    for line in lines:
        if match := re.match(r"([\w-]+).*;.*\bextra == ['\"]([\w-]+)", line):
            package, extra = match.groups()
            there = importlib.util.find_spec(package.replace("-", "_"))
            found[f"[{extra}] {package}"] = version(package) if there else "missing"
    return found


def _of_run(checkpoint: Checkpoint) -> dict[str, Any]:
    model, settings = checkpoint.model(), checkpoint.settings
    parts: Counter[str] = Counter()  # the embeddings, attention and so on
    for name, parameter in model.named_parameters():
        words = name.split(".")
        parts[words[2] if words[0] == "blocks" else words[0]] += parameter.numel()
    facts: dict[str, Any] = {
        "folder": str(checkpoint.folder),
        "model": asdict(checkpoint.config),
        "parameters": model.num_parameters(),
        "active": model.num_parameters(active=True),
        "parts": dict(parts),
        "bytes": sum(file.stat().st_size for file in checkpoint.folder.iterdir()),
    }
    facts |= {name: settings[name] for name in ("text", "recipe") if name in settings}
    if "tokenizer" in settings:
        kind = settings["tokenizer"]["kind"]
        facts["tokenizer"] = f"{checkpoint.config.vocab_size} {kind}"
    if checkpoint.training is not None:
        state = training.TrainingState.from_state(*checkpoint.training)
        facts |= {"step": state.step, "seconds": state.seconds}
        if state.losses:
            facts["loss"] = state.losses[-1]
        if state.validations:
            latest = state.validations[-1]
            facts["held_out_loss"] = latest.loss
            facts["honest_loss"] = latest.prefix
            facts["one_pass_loss"] = latest.full
    return facts
