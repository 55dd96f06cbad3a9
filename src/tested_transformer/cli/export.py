"""``tested-transformer export``: write a model so that transformers opens it."""

import json
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from tested_transformer.checkpoints.exporting import EXPORTED as EXPORTED, export_model
from tested_transformer.cli.display import printable
from tested_transformer.cli.flags import Call
from tested_transformer.cli.sources import load_source

__all__ = ["Export"]


@dataclass(frozen=True)
class Export:
    """Write a model so that transformers opens it.

    Examples:
      tested-transformer export runs/play exported/play
      tested-transformer export runs/play exported/play --family gpt2
      tested-transformer export runs/play exported/play --overwrite

    The folder gets config.json, model.safetensors, tokenizer.json and
    tokenizer_config.json, which AutoModelForCausalLM and AutoTokenizer of transformers
    open, and so do programs that read the same files. A family must have every setting
    of the model. The model that train makes by default fits none of them; one that fits
    is trained with --like llama, --like qwen3, or --recipe plain, which makes a GPT-2.

    Args:
        checkpoint: The model, as in generate.
        folder: The folder to write, which must be empty or not there.
        family: The family to write it as, one of ``EXPORTED``; the first that fits by
            default.
        overwrite: Replace what was exported to the folder before.
    """

    checkpoint: str | None = None
    folder: str | None = None
    _: KW_ONLY
    family: str | None = None
    overwrite: bool = False

    def run(self, call: Call) -> int:
        """Write the files, and return the exit status."""
        if self.checkpoint is None or self.folder is None:
            raise ValueError("name a model and a folder, such as runs/play exported")
        source = load_source(self.checkpoint, call.device)
        family = export_model(
            self.folder,
            source.model,
            source.tokenizer,
            family=self.family,
            end_tokens=source.end_tokens,
            overwrite=self.overwrite,
        )
        folder = Path(self.folder)
        if call.as_json:
            size = sum(file.stat().st_size for file in folder.iterdir())
            facts = {"checkpoint": source.name, "folder": self.folder}
            print(json.dumps({**facts, "family": family, "bytes": size}))
        else:
            opens = "AutoModelForCausalLM and AutoTokenizer of transformers open it"
            print(printable(f"{folder}: {source.name} as {family}; {opens}"))
        return 0
