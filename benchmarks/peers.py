"""The other implementations, imported from their checkouts.

Each is used as its own documentation shows: its model, its optimizer, its function that
generates. None of their code is copied here.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from benchmarks.contenders import Contender, Size, as_batch, continued
from benchmarks.run import Run
from benchmarks.stamp import fingerprint

__all__ = [
    *("MinGPT", "NanoGPT", "Raschka", "RaschkaFast", "TransformersGPT2", "load"),
    "versions",
]

TEMPERATURE = 0.8


class Karpathy(Contender):
    """A model by Andrej Karpathy: it computes its own loss, and has no cache."""

    sampling: dict[str, object]

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss that its forward pass computes."""
        return model(inputs, targets)[1]

    def generate(
        self, model: nn.Module, prompt: list[int], count: int, *, cached: bool
    ) -> list[int]:
        """Sample by its own method, as its examples do."""
        model.eval()
        start = as_batch(prompt).to(next(model.parameters()).device)
        tokens = model.generate(start, count, temperature=TEMPERATURE, **self.sampling)
        return tokens[0, len(prompt) :].tolist()


class NanoGPT(Karpathy):
    """karpathy/nanoGPT, with the settings of its README's command for a CPU."""

    name = "nanoGPT"
    sampling: ClassVar = {"top_k": 200}

    def __init__(self, checkout: Path) -> None:
        file = _file(checkout, "model.py", "nanoGPT")
        self.version = fingerprint(file)
        self.source = _load("nanogpt_model", file)

    def model(self, size: Size) -> nn.Module:
        """Return its GPT, without biases, as its train.py does."""
        return _silently(
            self.source.GPT,
            self.source.GPTConfig(
                block_size=size.context,
                vocab_size=size.vocab_size,
                n_layer=size.layers,
                n_head=size.heads,
                n_embd=size.width,
                dropout=0.0,
                bias=False,
            ),
        )

    def logits(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """Return all logits; without targets, nanoGPT returns only the last ones."""
        return model(tokens, tokens)[0]

    def optimizer(self, model: nn.Module, *, fused: bool) -> Optimizer:
        """Return its AdamW. For the device "cuda" it is the fused one."""
        kind = "cuda" if fused else "cpu"
        return _silently(model.configure_optimizers, 0.1, 1e-3, (0.9, 0.99), kind)


class MinGPT(Karpathy):
    """karpathy/minGPT, with the settings of its chargpt project."""

    name = "minGPT"
    sampling: ClassVar = {"do_sample": True}

    def __init__(self, checkout: Path) -> None:
        self.version = fingerprint(_file(checkout, "mingpt/model.py", "minGPT"))
        self.source = _import("mingpt.model", checkout)

    def model(self, size: Size) -> nn.Module:
        """Return its GPT."""
        config = self.source.GPT.get_default_config()
        config.model_type = None
        config.n_layer, config.n_head = size.layers, size.heads
        config.n_embd = size.width
        config.vocab_size, config.block_size = size.vocab_size, size.context
        config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = 0.0
        return _silently(self.source.GPT, config)

    def logits(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """Return the logits at every position: (B, T, V)."""
        return model(tokens)[0]

    def optimizer(self, model: nn.Module, *, fused: bool) -> Optimizer:
        """Return its AdamW."""
        settings = SimpleNamespace(
            learning_rate=5e-4, betas=(0.9, 0.95), weight_decay=0.1
        )
        optimizer = model.configure_optimizers(settings)
        return AdamW(optimizer.param_groups, fused=True) if fused else optimizer


class Raschka(Contender):
    """rasbt/LLMs-from-scratch: the model of its chapters 4 and 5."""

    name = "LLMs-from-scratch"
    clip = None
    has_cache = True
    cached_file = "ch04/03_kv-cache/gpt_with_kv_cache_optimized.py"

    def __init__(self, checkout: Path) -> None:
        file = _file(checkout, "pkg/llms_from_scratch/ch04.py", "LLMs-from-scratch")
        with_cache = _file(checkout, self.cached_file, "LLMs-from-scratch")
        self.version = fingerprint(file, with_cache)
        self.source = _import("llms_from_scratch.ch04", checkout / "pkg")
        self.chapter_3 = _import("llms_from_scratch.ch03", checkout / "pkg")
        self.cached = _without("tiktoken", lambda: _load("raschka_cache", with_cache))

    def model(self, size: Size) -> nn.Module:
        """Return its GPT with the cache, which must be asked for."""
        return self.cached.GPTModel(_raschka_settings(size))

    def optimizer(self, model: nn.Module, *, fused: bool) -> Optimizer:
        """Return the AdamW of its chapter 5."""
        return AdamW(model.parameters(), lr=5e-4, weight_decay=0.1, fused=fused or None)

    def generate(
        self, model: nn.Module, prompt: list[int], count: int, *, cached: bool
    ) -> list[int]:
        """Take the most likely tokens, as its functions do."""
        model.eval()
        context = model.pos_emb.num_embeddings
        if not cached:
            tokens = self.cached.generate_text_simple(
                model, as_batch(prompt), count, context
            )
            return tokens[0, len(prompt) :].tolist()

        def more(tokens: list[int], count: int) -> list[int]:
            longer = self.cached.generate_text_simple_cached(
                model, as_batch(tokens), count
            )
            return longer[0, len(tokens) :].tolist()

        return continued(more, prompt, count, context)

    def attention(self, width: int, heads: int) -> nn.Module:
        """Return its attention layer: one product for q, k and v, then SDPA."""
        kind = self.chapter_3.PyTorchMultiHeadAttention
        return kind(width, width, heads, qkv_bias=True)


class RaschkaFast(Raschka):
    """rasbt/LLMs-from-scratch: the variant that it calls fast (GPTModelFast)."""

    name = "LLMs-from-scratch, fast"
    has_cache = False

    def model(self, size: Size) -> nn.Module:
        """Return its GPTModelFast."""
        return self.source.GPTModelFast(_raschka_settings(size))


class TransformersGPT2(Contender):
    """GPT-2 from the package transformers."""

    name = "transformers GPT-2"
    has_cache = True

    def __init__(self) -> None:
        self.source = importlib.import_module("transformers")
        self.source.logging.set_verbosity_error()
        self.version = self.source.__version__

    def model(self, size: Size, *, positions: int | None = None) -> nn.Module:
        """Return its GPT-2, with more positions than the context if asked."""
        config = self.source.GPT2Config(
            vocab_size=size.vocab_size,
            n_positions=positions or size.context,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
        )
        return self.source.GPT2LMHeadModel(config)

    def logits(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """Return the logits at every position: (B, T, V)."""
        return model(input_ids=tokens, use_cache=False).logits

    def optimizer(self, model: nn.Module, *, fused: bool) -> Optimizer:
        """Return an AdamW like its Trainer's, except for the learning rate."""
        return AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=fused or None)

    def generate(
        self, model: nn.Module, prompt: list[int], count: int, *, cached: bool
    ) -> list[int]:
        """Sample by its generate."""
        model.eval()
        device = next(model.parameters()).device

        def more(tokens: list[int], count: int) -> list[int]:
            start = as_batch(tokens).to(device)
            longer = model.generate(
                start,
                attention_mask=torch.ones_like(start),
                max_new_tokens=count,
                do_sample=True,
                temperature=TEMPERATURE,
                top_k=0,
                use_cache=cached,
            )
            return longer[0, len(tokens) :].tolist()

        return continued(more, prompt, count, model.config.n_positions)


def load(run: Run) -> list[Contender]:
    """Return the peers whose checkouts were given, and ``transformers`` if installed.

    Raises:
        ValueError: If a path is not a checkout of its project.
    """
    loaded: list[Contender] = []
    if run.nanogpt:
        loaded.append(NanoGPT(run.nanogpt))
    if run.mingpt:
        loaded.append(MinGPT(run.mingpt))
    if run.llms_from_scratch:
        loaded += [kind(run.llms_from_scratch) for kind in (Raschka, RaschkaFast)]
    with suppress(ImportError):
        loaded.append(TransformersGPT2())
    return loaded


def versions(run: Run) -> dict[str, str]:
    """Return the version of each peer, or that it was not measured."""
    kinds = (NanoGPT, MinGPT, Raschka, RaschkaFast, TransformersGPT2)
    missing = {kind.name: "not measured" for kind in kinds}
    return missing | {peer.name: peer.version for peer in load(run)}


def _raschka_settings(size: Size) -> dict[str, int | float | bool]:
    return {
        "vocab_size": size.vocab_size,
        "context_length": size.context,
        "emb_dim": size.width,
        "n_heads": size.heads,
        "n_layers": size.layers,
        "drop_rate": 0.0,
        "qkv_bias": False,
    }


def _file(checkout: Path, name: str, peer: str) -> Path:
    file = Path(checkout) / name
    if not file.is_file():
        raise ValueError(f"{checkout} is no checkout of {peer}: it has no {name}")
    return file


def _load(name: str, file: Path) -> ModuleType:
    """Run one file of a checkout as a module of its own name."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import(name: str, folder: Path) -> ModuleType:
    """Import a package from ``folder`` that is not installed."""
    sys.path.insert(0, str(folder.resolve()))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder.resolve()))


def _without(name: str, load: Callable[[], ModuleType]) -> ModuleType:
    """Load code whose import of a package is not needed here."""
    if importlib.util.find_spec(name) is not None:
        return load()
    sys.modules[name] = ModuleType(name)
    try:
        return load()
    finally:
        del sys.modules[name]


def _silently(call: Callable[..., Any], *arguments: object) -> Any:
    """Call a function, and discard what it prints."""
    with redirect_stdout(StringIO()):
        return call(*arguments)
