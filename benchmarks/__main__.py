"""The command line of the benchmarks."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.attention_layer import measure_attention
from benchmarks.attention_scaling import measure_scaling
from benchmarks.contenders import Contender
from benchmarks.cost import measure_cost
from benchmarks.generation_speed import measure_generation
from benchmarks.gpu import measure_gpu
from benchmarks.implementations import measure_implementations
from benchmarks.masks import measure_masks
from benchmarks.museum import measure_museum
from benchmarks.ours import contestants, racers
from benchmarks.peers import MinGPT, NanoGPT, Raschka, RaschkaFast, TransformersGPT2
from benchmarks.printing import lines
from benchmarks.race import measure_race
from benchmarks.stamp import stamp
from benchmarks.training_step import measure_training_step
from benchmarks.worth import measure_worth

KINDS = (
    *("train", "loss", "worth", "generate", "attention", "scaling", "cost", "gpu"),
    *("masks", "implementations", "museum"),
)


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the library beside other implementations, in one run. "
        "What is not given is not measured.",
        epilog="train: one training step. loss: seconds of training to a loss. "
        "worth: the loss without each choice. generate: tokens a second. attention: "
        "the layer, time and memory. scaling: attention against length. cost: a step "
        "against each size. gpu: all that wants one. masks: how others read one. "
        "implementations: ways to write attention. museum: the loss with each bug.",
    )
    made.add_argument("kind", choices=KINDS, help="what to measure")
    for flag, what in (
        ("--nanogpt", "a checkout of karpathy/nanoGPT"),
        ("--mingpt", "a checkout of karpathy/minGPT"),
        ("--llms-from-scratch", "a checkout of rasbt/LLMs-from-scratch"),
        ("--shakespeare", "tiny Shakespeare, as a text file"),
        ("--out", "the JSON file to write"),
    ):
        made.add_argument(flag, type=Path, metavar="PATH", help=what)
    made.add_argument("--threads", type=int, default=2, help="for PyTorch; default 2")
    made.add_argument("--compiled", action="store_true", help="torch.compile, too")
    made.add_argument("--quick", action="store_true", help="only try it out")
    made.add_argument(
        "--only", default="", metavar="NAME", help="loss: ours with this in their name"
    )
    return made


def peers(options: argparse.Namespace) -> tuple[list[Contender], dict[str, str]]:
    """Load the peers that can be had, and say which version each is.

    Raises:
        ValueError: If a path is not that of such a checkout.
    """
    found: list[Contender] = []
    if options.nanogpt:
        found.append(NanoGPT(options.nanogpt))
    if options.mingpt:
        found.append(MinGPT(options.mingpt))
    if options.llms_from_scratch:
        found += [kind(options.llms_from_scratch) for kind in (Raschka, RaschkaFast)]
    with contextlib.suppress(ImportError):
        found.append(TransformersGPT2())
    kinds = (NanoGPT, MinGPT, Raschka, RaschkaFast, TransformersGPT2)
    versions = {kind.name: "not measured" for kind in kinds}
    return found, versions | {peer.name: peer.version for peer in found}


def read_text(path: Path | None) -> tuple[str, Tensor]:
    """Read the text, and number its characters in their order.

    Raises:
        ValueError: If there is none.
    """
    if path is None:
        raise ValueError("--shakespeare is wanted: a path to tiny Shakespeare")
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--shakespeare={path} cannot be read: {error}") from None
    number = {character: index for index, character in enumerate(sorted(set(text)))}
    if len(number) != 65:
        raise ValueError(
            f"--shakespeare={path} has {len(number)} different characters; "
            "tiny Shakespeare has 65"
        )
    return text, torch.tensor([number[character] for character in text])


def measure(options: argparse.Namespace, found: list[Contender]) -> dict:
    """Measure what was asked for."""
    quick = options.quick

    def training() -> dict:
        tokens = read_text(options.shakespeare)[1]
        contenders = [*found, *contestants()]
        return measure_training_step(
            contenders, tokens, quick=quick, compiled=options.compiled
        )

    def race() -> dict:
        text, tokens = read_text(options.shakespeare)
        where = {"nanogpt": options.nanogpt, "threads": options.threads}
        some = [each for each in racers() if options.only in each.contender.name]
        return measure_race(some, text, tokens, quick=quick, **where)

    def generation() -> dict:
        without_copies = [peer for peer in found if not isinstance(peer, RaschkaFast)]
        return measure_generation(
            [*without_copies, *contestants()],
            count=40 if quick else 500,
            threads=range(1, options.threads + 1),
            quick=quick,
        )

    measures: dict[str, Callable[[], dict]] = {
        "train": training,
        "loss": race,
        "generate": generation,
        "attention": lambda: measure_attention(
            raschka=options.llms_from_scratch, quick=quick
        ),
        "scaling": lambda: measure_scaling(quick=quick),
        "cost": lambda: measure_cost(read_text(options.shakespeare)[1], quick=quick),
        "gpu": lambda: measure_gpu(
            found, *read_text(options.shakespeare), nanogpt=options.nanogpt, quick=quick
        ),
        "masks": measure_masks,
        "museum": lambda: measure_museum(
            read_text(options.shakespeare)[1], quick=quick
        ),
        "implementations": lambda: measure_implementations(quick=quick),
        "worth": lambda: measure_worth(read_text(options.shakespeare)[1], quick=quick),
    }
    return measures[options.kind]()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the JSON."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    made = parser()
    options = made.parse_args(arguments)
    if options.threads < 1:
        made.error(f"--threads={options.threads} must be positive")
    if options.out and not options.out.parent.is_dir():
        made.error(f"--out={options.out}: there is no such folder")
    torch.set_num_threads(options.threads)
    try:
        found, versions = peers(options)
        report = {
            "kind": options.kind,
            "quick": options.quick,
            "stamp": stamp(arguments, threads=options.threads, peers=versions),
            "results": measure(options, found),
        }
    except ValueError as error:
        made.error(str(error))
    print("\n".join(lines(report)))
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
