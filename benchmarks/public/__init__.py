"""What ``check_attention`` says of attentions in public projects.

A project is a checkout of its repository, in a folder of its own. Only the classes and
functions named here are taken out of its files and run.
"""

import ast
import copy
import math
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking import check_attention

__all__ = ["PROJECTS", "Project", "make", "measure_public"]

D_MODEL, HEADS = 20, 5
CONFIG = SimpleNamespace(
    **{"n_embd": D_MODEL, "n_head": HEADS, "block_size": 64, "bias": True},
    **{"dropout": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1},
)


@dataclass(frozen=True)
class Project:
    """Where an attention is, and how to make one.

    Args:
        files: For each file, the classes and functions to take; the last is the layer.
        arguments: What the layer is made with.
        names: Further names that the files use.
        returns_weights: Whether it returns its weights as well.
        style: How it is meant to be called, where its arguments do not say it.
    """

    files: dict[str, tuple[str, ...]]
    arguments: tuple[Any, ...] = (HEADS, D_MODEL)
    names: dict[str, Any] = field(default_factory=dict)
    returns_weights: bool = False
    style: str | None = None


PROJECTS = {
    "karpathy/nanoGPT": Project(
        {"model.py": ("CausalSelfAttention",)}, (CONFIG,), style="causal"
    ),
    "karpathy/minGPT": Project(
        {"mingpt/model.py": ("CausalSelfAttention",)}, (CONFIG,), style="causal"
    ),
    "karpathy/ng-video-lecture": Project(
        {"gpt.py": ("Head", "MultiHeadAttention")},
        (HEADS, D_MODEL // HEADS),
        {"n_embd": D_MODEL, "block_size": 64, "dropout": 0.1},
        style="causal",
    ),
    "harvardnlp/annotated-transformer": Project(
        {
            "the_annotated_transformer.py": (
                "clones",
                "attention",
                "MultiHeadedAttention",
            )
        }
    ),
    "hyunwoongko/transformer": Project(
        {
            "models/layers/scale_dot_product_attention.py": (
                "ScaleDotProductAttention",
            ),
            "models/layers/multi_head_attention.py": ("MultiHeadAttention",),
        },
        (D_MODEL, HEADS),
    ),
    "jadore801120/attention-is-all-you-need-pytorch": Project(
        {
            "transformer/Modules.py": ("ScaledDotProductAttention",),
            "transformer/SubLayers.py": ("MultiHeadAttention",),
        },
        (HEADS, D_MODEL, D_MODEL // HEADS, D_MODEL // HEADS),
        returns_weights=True,
    ),
}


class OutputAlone(nn.Module):
    """A layer without the weights that it returns beside its output."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Pass everything on."""
        return self.layer(query, key, value, mask=mask)[0]


def make(project: Project, folder: Path) -> nn.Module:
    """Make the layer of a project, from the named parts of its files.

    Raises:
        ValueError: If a part is not in its file.
    """
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "math": math}
    names |= {"copy": copy, "np": np, **project.names}
    last = ""
    for file, parts in project.files.items():
        tree = ast.parse((folder / file).read_text("utf-8"))
        kinds = (ast.ClassDef, ast.FunctionDef)
        found = {each.name: each for each in tree.body if isinstance(each, kinds)}
        if missing := set(parts) - set(found):
            raise ValueError(f"{file} has no {', '.join(sorted(missing))}")
        tree.body = [found[part] for part in parts]
        exec(compile(tree, file, "exec"), names)
        last = parts[-1]
    torch.manual_seed(0)
    layer = names[last](*project.arguments)
    return OutputAlone(layer) if project.returns_weights else layer


def measure_public(folder: Path | None) -> dict:
    """Check the attention of every project of which there is a checkout.

    Args:
        folder: Where the checkouts are, each under the name of its repository.

    Raises:
        ValueError: If there are none.
    """
    if folder is None:
        raise ValueError("--projects is wanted: a folder with checkouts")
    report: dict[str, Any] = {}
    for name, project in PROJECTS.items():
        checkout = folder / name.partition("/")[2]
        if not checkout.is_dir():
            continue
        layer = make(project, checkout)
        found = check_attention(
            layer, style=project.style, d_model=D_MODEL, num_heads=HEADS
        )
        git = ["git", "-C", str(checkout), "log", "-1", "--format=%h %cs"]
        report[name] = {
            "commit": subprocess.check_output(git, text=True).strip(),
            "state": found.state,
            "asked": sum(each.passed is not None for each in found.verdicts),
            "failed": {
                each.check: each.reason
                for each in found.verdicts
                if each.passed is False
            },
            "likely": [each.name for each in found.likely],
        }
    if not report:
        raise ValueError(f"--projects={folder} has none of {', '.join(PROJECTS)}")
    return report
