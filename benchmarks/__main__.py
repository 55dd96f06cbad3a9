"""The command line of the benchmarks."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import torch

from benchmarks.printing import outdated_lines, shown
from benchmarks.registry import MEASUREMENTS, OPTIONS
from benchmarks.run import Run
from benchmarks.stamp import stamp, write_record
from transformer_book import RECORDS

__all__ = ["main"]


def parser() -> argparse.ArgumentParser:
    """Return the parser: a command for each measurement, with its own options."""
    command = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the library, and other implementations if you give their "
        "paths, and write the record of that name.",
    )
    names = command.add_subparsers(dest="name", metavar="NAME", required=True)
    names.add_parser("outdated", help="records made with code that has changed since")
    for name, measurement in MEASUREMENTS.items():
        about = measurement.about
        one = names.add_parser(name, help=about, description=f"Measure: {about}.")
        one.add_argument("--threads", type=int, default=2, help="of PyTorch; default 2")
        one.add_argument(
            "--out", type=Path, help="the file to write; default: the record"
        )
        one.add_argument(
            "--quick", action="store_true", help="only try it; writes only to --out"
        )
        for name in measurement.options:
            option = OPTIONS[name]
            if option.type is bool:
                one.add_argument(
                    f"-{name[0]}", f"--{name}", action="store_true", help=option.about
                )
                continue
            one.add_argument(
                f"--{name}",
                type=option.type,
                choices=option.choices,
                metavar="PATH" if option.type is Path else None,
                help=option.about,
            )
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the record."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    command = parser()
    options = vars(command.parse_args(arguments))
    name = options["name"]
    if name == "outdated":
        print("\n".join(outdated_lines()))
        return
    known = {field.name for field in fields(Run)}
    run = Run(
        **{key: value for key, value in options.items() if key in known and value}
    )
    measurement = MEASUREMENTS[name]
    if options["threads"] < 1:
        command.error(f"--threads={options['threads']} must be positive")
    if run.out and not run.out.parent.is_dir():
        command.error(f"--out={run.out}: there is no such folder")
    torch.set_num_threads(run.threads)
    try:
        peers = measurement.peer_versions(run)
        results = measurement.function()(run)
    except ValueError as error:
        command.error(str(error))
    record = {
        "kind": name,
        "quick": run.quick,
        "stamp": stamp(arguments, threads=run.threads, peers=peers),
        "results": results,
    }
    print(shown(record, measurement.prints))
    if run.out or not run.quick:
        write_record(run.out or RECORDS / f"{name}.json", record)


if __name__ == "__main__":
    main()
