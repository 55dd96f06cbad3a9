"""``tested-transformer info``: describe this machine, or a run."""

import json
import platform
import re
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch

from tested_transformer import __version__, training
from tested_transformer.checkpoints import Checkpoint
from tested_transformer.checkpoints.configs import describe_config
from tested_transformer.cli.display import printable
from tested_transformer.cli.flags import Call
from tested_transformer.cli.sources import find_checkpoint

__all__ = ["Info"]

# The first three are always installed; the others are optional.
_PACKAGES = (
    *("numpy", "rich", "safetensors"),
    *("flax", "huggingface_hub", "jax", "matplotlib", "tokenizers"),
)


@dataclass(frozen=True)
class Info:
    """Describe this machine, for a bug report, or a run.

    Examples:
      tested-transformer info                what this machine offers
      tested-transformer info runs/grammar   the settings and progress of a run
      tested-transformer info --json         the same for programs

    Args:
        checkpoint: The folder of a run.
    """

    checkpoint: str | None = None

    def run(self, call: Call) -> int:
        """Print the description, and return the exit status."""
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
        present = {name: item for name, item in value.items() if item is not None}
        return ", ".join(f"{name} {_shown(item)}" for name, item in present.items())
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
    # Older releases of PyTorch cannot list a processor's instruction sets.
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    offered = [name for name, there in capabilities.items() if there is True]
    narrow = filter(re.compile("amx|bf16|fp16|vnni|sve|dot|i8mm").search, offered)
    used = torch.backends.cpu.get_cpu_capability()
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
        "instructions": " ".join([used, *sorted(narrow)]),
        "packages": {name: version(name) for name in _PACKAGES if find_spec(name)},
    }


def _of_run(checkpoint: Checkpoint) -> dict[str, Any]:
    model, settings = checkpoint.model(), checkpoint.settings
    facts: dict[str, Any] = {
        "folder": str(checkpoint.folder),
        "model": describe_config(checkpoint.config),
        "parameters": model.num_parameters(),
        "active": model.num_parameters(active=True),
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
