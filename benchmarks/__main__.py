"""The command line of the benchmarks."""

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.printing import lines, outdated_lines
from benchmarks.stamp import stamp, write_record
from transformer_book import RECORDS

KINDS = (
    *("train", "loss", "worth", "text", "generate", "attention", "scaling", "cost"),
    *("sharing", "steps", "gpu", "masks", "implementations", "museum"),
    *("public", "recall", "latent", "lengths", "softmaxes", "blocks"),
    *("tiles", "several", "found"),
)
SETS = ("learn", "held_out", "unseen")  # of public modules
BESIDE_PEERS = ("train", "loss", "generate", "attention", "gpu")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the library, and other implementations if you give their "
        "paths, and write the record of that name.",
        epilog="train: one training step. loss: seconds of training to a loss. "
        "worth: the loss without choices of the fast recipe. text: losses and "
        "samples of small models. generate: tokens per second. attention: time and "
        "memory of attention layers. scaling: attention by length. cost: a training "
        "step by each size. sharing: ways to share keys. steps: latency and throughput "
        "of generation. lengths: the loss beyond the trained length. gpu: everything "
        "that needs a GPU, as JSON. masks: how libraries read a mask. implementations: "
        "ways to write attention. museum: the loss with each bug. public: the checks "
        "on modules of public projects. found: the checks on modules that may be "
        "wrong. recall: what a state forgets. latent: losses at equal cache size. "
        "softmaxes: sinks and outliers. blocks: what block attention misses. tiles: "
        "what it costs, gathered and by FlexAttention. several: speculative decoding "
        "and batching. outdated: which records were made with code that has "
        "changed.",
    )
    made.add_argument("kind", choices=(*KINDS, "outdated"), help="what to measure")
    for flag, what in (
        ("--nanogpt", "a checkout of karpathy/nanoGPT"),
        ("--mingpt", "a checkout of karpathy/minGPT"),
        ("--llms-from-scratch", "a checkout of rasbt/LLMs-from-scratch"),
        ("--shakespeare", "tiny Shakespeare, as a text file"),
        ("--projects", "public, found: a folder with a checkout of each"),
        ("--parts", "public: a folder for answers; a run that stopped goes on from it"),
        ("--out", "the JSON file to write; by default the record of that name"),
    ):
        made.add_argument(flag, type=Path, metavar="PATH", help=what)
    made.add_argument("--threads", type=int, default=2, help="for PyTorch; default 2")
    made.add_argument("--compiled", action="store_true", help="torch.compile, too")
    made.add_argument(
        "--quick", action="store_true", help="only try it out; writes only to --out"
    )
    made.add_argument(
        "--only",
        default="",
        metavar="NAME",
        help="loss: only our runs named so; public, found: only modules named so",
    )
    made.add_argument("--set", choices=SETS, help="public: one set; default all")
    made.add_argument(
        "-v", "--verbose", action="store_true", help="public, found: print more of each"
    )
    return made


def load_peers(options: argparse.Namespace) -> tuple[list[Any], dict[str, str]]:
    """Load the available peers, and return them with the version of each.

    Raises:
        ValueError: If a path is not a checkout of its project.
    """
    from benchmarks.peers import MinGPT, NanoGPT, Raschka, RaschkaFast, TransformersGPT2

    found: list[Any] = []
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
    """Return the text, and its characters as sorted ids.

    Raises:
        ValueError: If it is missing, unreadable, or not tiny Shakespeare.
    """
    if path is None:
        raise ValueError("--shakespeare must be given: a path to tiny Shakespeare")
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


def measure(options: argparse.Namespace, found: list[Any]) -> Any:
    """Run one kind of measurement.

    Each kind imports only what it needs, because the stamp lists the imported modules.
    """
    quick = options.quick
    match options.kind:
        case "train":
            from benchmarks.ours import contestants
            from benchmarks.training_step import measure_training_step

            tokens = read_text(options.shakespeare)[1]
            return measure_training_step(
                [*found, *contestants()], tokens, quick=quick, compiled=options.compiled
            )
        case "loss":
            from benchmarks.ours import racers
            from benchmarks.race import measure_race

            some = [each for each in racers() if options.only in each.contender.name]
            text, tokens = read_text(options.shakespeare)
            where = {"nanogpt": options.nanogpt, "threads": options.threads}
            return measure_race(some, text, tokens, quick=quick, **where)
        case "generate":
            from benchmarks.generation_speed import measure_generation
            from benchmarks.ours import contestants

            copies = "LLMs-from-scratch, fast"  # generates as the other one does
            return measure_generation(
                [*(peer for peer in found if peer.name != copies), *contestants()],
                count=40 if quick else 500,
                threads=range(1, options.threads + 1),
                quick=quick,
            )
        case "attention":
            from benchmarks.attention_layer import measure_attention

            return measure_attention(raschka=options.llms_from_scratch, quick=quick)
        case "gpu":
            from benchmarks.gpu import Setting, measure_gpu

            # To try it out, a processor will do.
            trying = quick and not torch.cuda.is_available()
            paths = (options.shakespeare, options.nanogpt)
            text, nanogpt = (path and str(path.resolve()) for path in paths)
            device = "cpu" if trying else "cuda"
            return measure_gpu(Setting(device, quick, text, nanogpt))
        case "scaling":
            from benchmarks.attention_scaling import measure_scaling

            return measure_scaling(quick=quick)
        case "sharing":
            from benchmarks.sharing import measure_sharing

            return measure_sharing(quick=quick)
        case "recall":
            from benchmarks.recall import measure_recall

            return measure_recall(quick=quick)
        case "latent":
            from benchmarks.latent import measure_latent

            return measure_latent(quick=quick)
        case "softmaxes":
            from benchmarks.softmaxes import measure_softmaxes

            return measure_softmaxes(quick=quick)
        case "blocks":
            from benchmarks.blocks import measure_blocks

            return measure_blocks(quick=quick)
        case "tiles":
            from benchmarks.tiles import measure_tiles

            return measure_tiles(quick=quick)
        case "several":
            from benchmarks.several import measure_several

            return measure_several(quick=quick)
        case "steps":
            from benchmarks.steps import measure_steps

            return measure_steps(quick=quick)
        case "lengths":
            from benchmarks.lengths import measure_lengths

            return measure_lengths(quick=quick)
        case "cost":
            from benchmarks.cost import measure_cost

            return measure_cost(read_text(options.shakespeare)[1], quick=quick)
        case "worth":
            from benchmarks.worth import measure_worth

            return measure_worth(read_text(options.shakespeare)[1], quick=quick)
        case "text":
            from benchmarks.writing import measure_writing

            return measure_writing(quick=quick)
        case "masks":
            from benchmarks.masks import measure_masks

            return measure_masks()
        case "implementations":
            from benchmarks.implementations import measure_implementations

            return measure_implementations(quick=quick)
        case "public":
            from benchmarks.public import measure_public

            sets = [options.set] if options.set else [*SETS]
            only, parts = options.only, options.parts
            return measure_public(options.projects, sets, only=only, parts=parts)
        case "found":
            from benchmarks.public import measure_found

            return measure_found(options.projects, only=options.only)
        case _:
            from benchmarks.museum import measure_museum

            return measure_museum(read_text(options.shakespeare)[1], quick=quick)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the record."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    made = parser()
    options = made.parse_args(arguments)
    if options.kind == "outdated":
        print("\n".join(outdated_lines()))
        return
    if options.threads < 1:
        made.error(f"--threads={options.threads} must be positive")
    if options.out and not options.out.parent.is_dir():
        made.error(f"--out={options.out}: there is no such folder")
    torch.set_num_threads(options.threads)
    try:
        beside = options.kind in BESIDE_PEERS
        found, versions = load_peers(options) if beside else ([], {})
        results = measure(options, found)
    except ValueError as error:
        made.error(str(error))
    made_with = stamp(arguments, threads=options.threads, peers=versions)
    record = {
        "kind": options.kind,
        "quick": options.quick,
        "stamp": made_with,
        "results": results,
    }
    if options.kind == "gpu":
        print(json.dumps(record, indent=2))
    else:
        of_public = options.kind in {"public", "found"}
        print("\n".join(lines({**record, "results": {}} if of_public else record)))
        if of_public:
            from benchmarks.public.telling import told, told_found

            tell = told if options.kind == "public" else told_found
            print("\n".join(tell(results, verbose=options.verbose)))
    if options.kind == "public" and not options.out:
        from benchmarks.public import shortened

        record["results"] = shortened(results)
    if options.out or not options.quick:
        write_record(options.out or RECORDS / f"{options.kind}.json", record)


if __name__ == "__main__":
    main()
