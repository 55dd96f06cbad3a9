"""The measurements by name.

To add one, write a module of this folder with a function ``measure``, which takes a
``Run`` and returns results that JSON can hold, and register it with a line in
``_MEASUREMENTS``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from benchmarks.run import SETS, Results, Run

__all__ = ["MEASUREMENTS", "OPTIONS", "Measurement"]


@dataclass(frozen=True)
class Option:
    """An option of the command line: its type, and what it is."""

    type: Callable[[str], object]
    about: str
    choices: tuple[str, ...] | None = None


OPTIONS = {
    "nanogpt": Option(Path, "a checkout of karpathy/nanoGPT"),
    "mingpt": Option(Path, "a checkout of karpathy/minGPT"),
    "llms-from-scratch": Option(Path, "a checkout of rasbt/LLMs-from-scratch"),
    "shakespeare": Option(Path, "tiny Shakespeare, as a text file"),
    "projects": Option(Path, "a folder with a checkout of each project"),
    "parts": Option(Path, "a folder for answers, from which a stopped run goes on"),
    "set": Option(str, "one set; default all", SETS),
    "only": Option(str, "only modules named so"),
    "verbose": Option(bool, "print more of each"),
}
_PEERS = ("nanogpt", "mingpt", "llms-from-scratch")


@dataclass(frozen=True)
class Measurement:
    """A measurement, which is the function ``measure`` of the module of its name.

    Args:
        name: Its name.
        about: What it measures.
        options: The names of its own options.
        source: Another module of this folder, and another function after a colon.
        prints: What the command prints of the record.
    """

    name: str
    about: str
    options: tuple[str, ...] = ()
    source: str = ""
    prints: Literal["all", "stamp", "json"] = "all"

    def function(self) -> Callable[[Run], Results]:
        """Import its module, only now, as a stamp lists what was imported."""
        module, _, function = (self.source or self.name).partition(":")
        return getattr(import_module(f"benchmarks.{module}"), function or "measure")

    def peer_versions(self, run: Run) -> dict[str, str]:
        """Return the versions of the other implementations, if they may take part."""
        if {*_PEERS}.isdisjoint(self.options):
            return {}
        return import_module("benchmarks.peers").versions(run)


_PROJECTS = ("projects", "only", "verbose")
_MEASUREMENTS = (
    Measurement("train", "one training step", ("shakespeare", *_PEERS)),
    Measurement("loss", "seconds of training to a loss", ("shakespeare", "nanogpt")),
    Measurement("worth", "the loss without choices of the recipe", ("shakespeare",)),
    Measurement("parts", "the book's GPT without each of its parts"),
    Measurement("controls", "how far that holds: more steps, two changes"),
    Measurement("rates", "how far at other rates", source="controls:measure_rates"),
    Measurement("families", "the book's GPT with blocks of other families"),
    Measurement("local", "windows in some layers of the book's GPT"),
    Measurement("names", "when the book's GPT learns the names of a story"),
    Measurement("generate", "tokens per second", _PEERS),
    Measurement("attention", "layers: time and memory", ("llms-from-scratch",)),
    Measurement("scaling", "attention by length"),
    Measurement("cost", "a training step by each size", ("shakespeare",)),
    Measurement("sharing", "ways to share keys"),
    Measurement("steps", "latency and throughput of generation"),
    Measurement("gpu", "all for a GPU", ("shakespeare", "nanogpt"), prints="json"),
    Measurement("launches", "operations, bytes and waits, without a GPU"),
    Measurement("masks", "how libraries read a mask"),
    Measurement("implementations", "ways to write attention"),
    Measurement("museum", "the loss with each bug", ("shakespeare",)),
    Measurement(
        "public",
        "the checks on modules of public projects",
        (*_PROJECTS, "parts", "set"),
        source="corpus:public",
        prints="stamp",
    ),
    Measurement(
        "found",
        "the checks on modules that may be wrong",
        _PROJECTS,
        source="corpus:found",
        prints="stamp",
    ),
    Measurement("distances", "four ways to use the past, by distance"),
    Measurement("recall", "what a state forgets"),
    Measurement("windows", "what recall loses with windows"),
    Measurement("latent", "losses at equal cache size"),
    Measurement("lengths", "the loss beyond the trained length"),
    Measurement("softmaxes", "sinks and outliers"),
    Measurement("blocks", "what block attention misses"),
    Measurement("indexer", "what an indexer finds, and what it costs"),
    Measurement("compressed", "what compressed keys recall, keep and cost"),
    Measurement("eviction", "what a cache that evicts keys forgets"),
    Measurement("tiles", "what block attention costs, gathered and by FlexAttention"),
    Measurement("several", "speculative decoding"),
    Measurement("drafts", "tokens per pass with trees of drafts"),
    Measurement("serving", "policies of a server"),
)
MEASUREMENTS = {entry.name: entry for entry in _MEASUREMENTS}
