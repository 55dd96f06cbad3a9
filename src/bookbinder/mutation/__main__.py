"""``python -m bookbinder.mutation``: break the library and the pages, and count.

Everything is kept as it comes in ``.cache/mutants``: a run that is stopped goes on
from there, with all that still holds: a mutant that a test has noticed is judged anew
when the library or that test's file has changed, one that no test has noticed when any
has; slips, when anything of the book has.
"""

import argparse
import hashlib
import json
import os
import random
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from bookbinder.mutation.library import (
    MODULES,
    Broken,
    Verdict,
    all_mutants,
    library_tests,
    try_mutants,
)
from bookbinder.mutation.report import (
    Journal,
    library_results,
    page_results,
    table,
)
from bookbinder.mutation.slips import MEANT, Slip, slips

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "src" / "tested_transformer"
SLIPS, BY_PAGES = 600, 200  # in a whole run
_WANTED = {"library": 0.95, "pages": 0.98}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 1 where too little was noticed."""
    parser = argparse.ArgumentParser(
        prog="python -m bookbinder.mutation", description=__doc__
    )
    parser.add_argument("side", nargs="*", metavar="SIDE", help="library, pages: both")
    parser.add_argument("--sample", type=int, help="how many of each, by chance")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--module", action="append", choices=MODULES)
    parser.add_argument("--page", action="append", help="these pages alone")
    parser.add_argument("--tests", action="append", help="these tests alone")
    parser.add_argument("--no-links", action="store_true", help="leave mkdocs out")
    parser.add_argument("--out", type=Path, help="a folder for the report's files")
    parser.add_argument("--kept", type=Path, default=ROOT / ".cache" / "mutants")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    os.chdir(ROOT)
    whole = not (options.sample or options.module or options.page)
    out = options.out or (ROOT / "benchmarks" / "results" if whole else None)
    good = True
    for side in options.side or ["library", "pages"]:
        results = {"library": _library, "pages": _pages}[side](options)
        good &= _told(side, results)
        if out:
            _write(out / f"mutants-{side}.json", side, results, given, options)
    return int(not good)


def _library(options: argparse.Namespace) -> dict[str, Any]:
    chosen = all_mutants(LIBRARY, tuple(options.module or MODULES))
    chance = random.Random(options.seed)
    by_chance = chance.sample(chosen, len(chosen))
    if options.sample:
        chosen = by_chance[: options.sample]
    tests = [Path(test) for test in options.tests or []] or library_tests(ROOT)
    print(
        f"{len(chosen)} mutants of {', '.join(options.module or MODULES)}; on a quiet "
        f"machine a core judges about two a second",
        flush=True,
    )
    verdicts = _judged(chosen, "library", tests, options, tests=tests)
    by_pages: list[Verdict] = []
    if options.page or not options.tests:
        some = by_chance[: min(BY_PAGES, options.sample or BY_PAGES)]
        pages = [ROOT / page for page in options.page or []]
        pages = pages or sorted((ROOT / "docs").rglob("*.md"))
        print(f"{len(some)} of them for the pages alone", flush=True)
        by_pages = _judged(some, "library-by-pages", pages, options, pages=pages)
    return library_results(verdicts, by_pages, LIBRARY)


def _judged(
    chosen: list[Broken],
    name: str,
    files: list[Path],
    options: argparse.Namespace,
    **judges: Any,
) -> list[Verdict]:
    folder = options.kept
    digest_of = cache(_digest)

    def rests_on(said: tuple[str, int]) -> str:
        """What a test has noticed rests on its file; what none has, on all files."""
        file, is_test, _ = said[0].partition("::")
        return digest_of((ROOT / file,) if is_test else tuple(files))

    kept_in = folder / f"{name}-{_digest([LIBRARY])}.jsonl"
    journal = Journal(kept_in, rests_on)
    keys = {_key(broken): broken for broken in chosen}
    left = [broken for key, broken in keys.items() if key not in journal.known]

    def told(verdict: Verdict) -> None:
        journal.write(_key(verdict.broken), [verdict.by, verdict.tests])
        _progress(len(journal.known.keys() & keys.keys()), len(keys))

    kept = folder / f"{name}-{_digest([LIBRARY, *files])}.pickle"
    if left:
        # pytest, and the shape checks that come with it, can begin once in a process.
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                try_mutants(ROOT, left, told, jobs=options.jobs, kept=kept, **judges)
                status = 0
            finally:
                sys.stdout.flush()
                os._exit(status)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit("mutants: the tests could not be run")
        journal = Journal(kept_in, rests_on)
    return [
        Verdict(broken, *journal.known[key], seconds=0.0)
        for key, broken in keys.items()
        if key in journal.known
    ]


def _key(broken: Broken) -> str:
    return f"{broken.file.relative_to(LIBRARY).as_posix()} {broken.mutant.number}"


def _pages(options: argparse.Namespace) -> dict[str, Any]:
    import torch  # once here, and in no fork

    from bookbinder.mutation.judging import Judge, Site, record
    from bookbinder.reading.pages import load_page
    from bookbinder.running.figures import draw_as_the_book
    from bookbinder.warming import warm_up

    draw_as_the_book()
    torch.set_num_threads(1)
    names = options.page or [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    read = [load_page(ROOT / name, ROOT) for name in sorted(map(str, names))]
    pages = {page.path: page for page in read}
    count = options.sample or SLIPS
    chosen = slips({n: p.lines for n, p in pages.items()}, count, options.seed)
    print(
        f"{len(chosen)} slips on {len(pages)} pages; on a quiet machine a core runs "
        "the pages in some minutes, and then judges about one a second",
        flush=True,
    )
    folder = options.kept
    state = _digest([ROOT / "src", ROOT / "benchmarks", *map(ROOT.joinpath, pages)])
    links = "" if options.no_links else "-links"
    journal = Journal(folder / f"pages-{state}{links}.jsonl")
    left = [slip for slip in chosen if str(slip) not in journal.known]
    if left:
        records = record(read, ROOT, kept=folder / "pages", jobs=options.jobs)
        failed = {name: done.failed for name, done in records.items() if done.failed}
        asked = {slip.page for slip in left} - failed.keys()
        warm_up(ROOT, (pages[name] for name in sorted(asked)))
        judge = Judge(ROOT, records, None if options.no_links else Site(ROOT))
        failed |= judge.failing((pages[name] for name in asked), options.jobs)
        for name, why in failed.items():
            print(f"left out, for it fails as it is: {name}: {why}")
        left = [slip for slip in left if slip.page not in failed]
        for slip, by, _ in judge.judge(left, pages, options.jobs):
            journal.write(str(slip), by)
            _progress(len(journal.known), len(chosen))
    said: list[tuple[Slip, str]] = [
        (slip, journal.known[str(slip)])
        for slip in chosen
        if str(slip) in journal.known
    ]
    return page_results(said)


def _digest(places: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for place in places:
        files = place.rglob("*") if place.is_dir() else [place]
        for file in sorted(files):
            # What is reported of mutants changes no verdict on them.
            kept = file.suffix in (".py", ".md", ".json") and "mutants" not in file.name
            if kept and file.is_file():
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _progress(done: int, of: int) -> None:
    if done % 50 == 0 or done == of:
        print(f"  {done} of {of}", flush=True)


def _told(side: str, results: dict[str, Any]) -> bool:
    """Print what came of it; return whether enough was noticed."""
    tallies = results["modules" if side == "library" else "kinds"]
    print(f"\n{table(tallies)}\n")
    if results.get("pages"):
        print(f"by the pages alone\n{table(results['pages'])}\n")
    for each in results["survivors"]:
        if not each["reason"]:
            place = f"{each.get('file') or each['page']}:{each['line']}"
            what = each.get("change") or f"{each['before']}\n    -> {each['after']}"
            print(f"not noticed: {place}: {each.get('operator', each.get('kind'))}")
            print(f"    {each.get('code', '')}\n    {what}")
    demanded = [each for kind, each in tallies.items() if kind not in MEANT]
    made = sum(each["made"] for each in demanded)
    noticed = sum(each["noticed"] for each in demanded)
    least = (
        [
            # What a person has found to make no difference could not be noticed.
            each["noticed"] / max(each["made"] - each["explained"], 1)
            for each in tallies.values()
        ]
        if side == "library"
        else [noticed / max(made, 1)]
    )
    return min(least, default=1.0) >= _WANTED[side]


def _write(
    file: Path,
    side: str,
    results: dict[str, Any],
    given: list[str],
    options: argparse.Namespace,
) -> None:
    from benchmarks.stamp import shown_command, stamp

    command = shown_command(given).replace("benchmarks", "bookbinder.mutation", 1)
    report = {
        "kind": f"mutants-{side}",
        "stamp": {**stamp([], threads=1, peers={}), "command": command},
        "seed": options.seed,
        "results": results,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"written: {file}")


if __name__ == "__main__":
    sys.exit(main())
