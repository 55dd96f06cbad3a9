"""``python -m bookbinder.places``: run every chain elsewhere.

Each chain runs alone, in a process that has imported nothing but PyTorch, away from the
repository, with the library as a wheel installs it, with another seed, two threads, and
without the processor's vector instructions, all at once. A chain that fails there runs
again with each of these differences alone, so that it is known which one it is. Then
all chains run in one process, in an order by chance.

A chain that asks the library where its files lie (``__file__``) reads results that are
kept in the repository, and takes the library from there.
"""

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from bookbinder.page import Chain, Page, load_page

__all__ = ["DIFFERENCES", "Place", "main", "run_in"]

ROOT = Path(__file__).resolve().parents[2]
_ANOTHER_SEED = 20_171


@dataclass(frozen=True)
class Place:
    """Where chains run, and how it differs from where the tests run them."""

    name: str
    seed: int = 0
    threads: int = 1
    capability: str = ""
    wheel: bool = False
    together: bool = False


DIFFERENCES = (
    Place("alone"),
    Place("another seed", seed=_ANOTHER_SEED),
    Place("two threads", threads=2),
    Place("no vector instructions", capability="default"),
    Place("an installed wheel", wheel=True),
)
ELSEWHERE = Place(
    "elsewhere", seed=_ANOTHER_SEED, threads=2, capability="default", wheel=True
)
TOGETHER = Place("in one process, in an order by chance", together=True)


@dataclass(frozen=True)
class PageChain:
    """A chain, and the page that it is on, as they were when the command began."""

    page: Page
    chain: Chain

    @property
    def name(self) -> str:
        """The page, and the line where the chain begins."""
        return f"{self.page.path}:{self.chain.line}"

    @property
    def reads_repository(self) -> bool:
        """Whether it asks the library where its files lie."""
        return any("__file__" in block.code for block in self.chain.blocks)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 1 if a chain fails anywhere."""
    parser = argparse.ArgumentParser(
        prog="python -m bookbinder.places", description=__doc__
    )
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--sample", type=int, help="so many chains, by chance")
    parser.add_argument("--seed", type=int, default=1, help="of what chance decides")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    names = options.pages or [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    chance = random.Random(options.seed)
    chains = [
        PageChain(page, chain)
        for page in (load_page(ROOT / name, ROOT) for name in sorted(map(str, names)))
        for chain in page.chains
    ]
    if options.sample:
        chains = chance.sample(chains, min(options.sample, len(chains)))
    problems = defaultdict[str, list[str]](list)
    with tempfile.TemporaryDirectory() as folder:
        wheel = installed_wheel(Path(folder))
        print(f"{len(chains)} chains {ELSEWHERE.name}", flush=True)
        failed = dict(run_in(ELSEWHERE, chains, wheel, options.jobs))
        again = [chain for chain in chains if chain.name in failed]
        for place in DIFFERENCES if again else ():
            for name, reason in run_in(place, again, wheel, options.jobs):
                problems[name].append(f"{place.name}: {reason}")
        for name, reason in failed.items():
            if name not in problems:
                problems[name].append(f"{ELSEWHERE.name}: {reason}")
        print(f"{len(chains)} chains {TOGETHER.name}", flush=True)
        shuffled = chance.sample(chains, len(chains))
        for name, reason in run_in(TOGETHER, shuffled, wheel, 1):
            problems[name].append(f"{TOGETHER.name}: {reason}")
    for _, found in sorted(problems.items()):
        print(*found, sep="\n")
    print(f"{len(chains) - len(problems)} of {len(chains)} chains pass everywhere")
    return int(bool(problems))


def installed_wheel(folder: Path) -> Path:
    """Build the wheel, and lay it out as an installation does; give the folder."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "installed")
    return folder / "installed"


def run_in(
    place: Place, chains: list[PageChain], wheel: Path, jobs: int = 1
) -> Iterator[tuple[str, str]]:
    """Run chains in a place; give the names of those that fail, and why."""
    for at_home in (False, True):
        some = [each for each in chains if each.reads_repository is at_home]
        away = place.wheel and not at_home
        if some:
            yield from _run(place, some, [wheel] if away else [], jobs)


def _run(
    place: Place, chains: list[PageChain], library: list[Path], jobs: int
) -> Iterator[tuple[str, str]]:
    path = [*library, ROOT / "src"]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, path)))
    environment.pop("ATEN_CPU_CAPABILITY", None)
    if place.capability:
        environment["ATEN_CPU_CAPABILITY"] = place.capability
    with tempfile.TemporaryDirectory() as away:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from bookbinder.places import work; work()",
            ],
            input=pickle.dumps((place, chains, jobs, str(path[0]))),
            cwd=away,
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
    for line in done.stdout.splitlines():
        name, reason = json.loads(line)
        yield name, reason


def work() -> None:
    """Run the chains that are asked for on the standard input; tell what fails."""
    place, chains, jobs, library = pickle.load(sys.stdin.buffer)
    import_module("torch")  # and nothing else that a chain might miss

    from bookbinder.running.figures import draw_as_the_book
    from bookbinder.running.forking import each_in_a_fork

    draw_as_the_book()
    if place.together:
        for each in chains:
            _tell(each.name, _reason(place, each, library))
        return
    pieces = (
        (each.name, lambda each=each: _reason(place, each, library), 300.0)
        for each in chains
    )
    for name, outcome in each_in_a_fork(pieces, jobs):
        _tell(name, outcome.died or outcome.value)


def _tell(name: str, reason: str) -> None:
    if reason:
        print(json.dumps([name, reason]), flush=True)


def _reason(place: Place, each: PageChain, library: str) -> str:
    """Run one chain; give what is wrong, or nothing."""
    from bookbinder.evidence import Evidence
    from bookbinder.running import blocks as running
    from bookbinder.running.figures import figures_folder, same_drawing

    page, chain = each.page, each.chain
    running.THREADS = place.threads
    evidence = Evidence()
    try:
        with evidence.gathered(chain, ROOT, place.seed):
            printed = running.run_chain(chain)
    except Exception as error:
        return str(running.explain(page, chain, error))
    home = sys.modules.get("tested_transformer")
    if home and not str(home.__file__).startswith(library):
        return f"{each.name}: the library came from {home.__file__}"
    if problem := running.compare(page, chain, printed):
        return str(problem)
    for name, drawn in evidence.drawn.items():
        kept = figures_folder(page, ROOT) / name
        if not kept.is_file() or not same_drawing(kept.read_text("utf-8"), drawn):
            return f"{each.name}: {name} is another picture"
    return ""


if __name__ == "__main__":
    # By its own name, under which other processes know what they are handed.
    sys.exit(import_module("bookbinder.places").main())
