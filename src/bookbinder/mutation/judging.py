"""Ask of a page with a slip in it all that is asked of every page, the cheap first.

What its blocks print, execute and draw is recorded once. A slip that changes a block
makes that block's chain run again; for every other the record is compared with what
the page now says.
"""

import copy
import hashlib
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bookbinder.audit import audit
from bookbinder.contributing.placing import place_problems
from bookbinder.drawing import katex
from bookbinder.evidence import Evidence, evidence_problems
from bookbinder.mutation.slips import Slip
from bookbinder.reading.pages import Chain, Page, Problem, read_page
from bookbinder.running.blocks import compare, explain, program, run_chain
from bookbinder.running.forking import each_in_a_fork
from bookbinder.wayfinding.appearances import PACKAGE, exports

__all__ = ["Judge", "Record", "Site", "record"]

_UNDRAWN = "diagram not drawn"
_SECONDS = 120.0


@dataclass
class Record:
    """What the chains of a page did: by its program, what each printed."""

    evidence: Evidence = field(default_factory=Evidence)
    printed: dict[str, str] = field(default_factory=dict[str, str])
    failed: str = ""


def record(
    pages: list[Page], root: Path, *, kept: Path | None = None, jobs: int = 2
) -> dict[str, Record]:
    """Run the chains of pages, each page in a process of its own.

    Args:
        pages: The pages.
        root: The repository.
        kept: A folder in which records are kept, for as long as page and code stay.
        jobs: How many processes run at once.
    """
    code = _digest(
        file.read_bytes()
        for folder in ("src", "benchmarks")
        for file in sorted((root / folder).rglob("*"))
        if file.suffix in (".py", ".json") and "mutants" not in file.name
    )
    records: dict[str, Record] = {}
    work: list[tuple[str, Callable[[], Record], float]] = []
    for page in pages:
        file = kept and kept / f"{_digest([code, *page.lines])}.pickle"
        with suppress(Exception):
            if file:
                records[page.path] = pickle.loads(file.read_bytes())
        if page.path not in records:
            work.append((page.path, lambda page=page: _recorded(page, root), 600.0))
    by_name = {page.path: page for page in pages}
    for name, outcome in each_in_a_fork(work, jobs):
        done = outcome.value or Record(failed=outcome.died)
        records[name] = done
        if kept and not done.failed:
            kept.mkdir(parents=True, exist_ok=True)
            named = _digest([code, *by_name[name].lines])
            (kept / f"{named}.pickle").write_bytes(pickle.dumps(done))
    return records


def _digest(parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:24]


def _recorded(page: Page, root: Path) -> Record:
    done = Record()
    for chain in page.chains:
        problem = _run(page, chain, root, done)
        if problem:
            done.failed = str(problem)
            break
    return done


def _run(page: Page, chain: Chain, root: Path, done: Record) -> Problem | None:
    try:
        with done.evidence.gathered(chain, root):
            done.printed[program(chain)] = run_chain(chain)
    except BaseException as error:
        return explain(page, chain, error)
    return None


class Judge:
    """Who judges slips; made once, before any process is forked off.

    Args:
        root: The repository.
        records: What the pages do as they are.
        site: The site, if links are to be judged too.
    """

    def __init__(
        self, root: Path, records: dict[str, Record], site: "Site | None" = None
    ) -> None:
        self.root, self.records, self.site = root, records, site

    def judge(
        self, slips: list[Slip], pages: dict[str, Page], jobs: int = 2
    ) -> Iterator[tuple[Slip, str, float]]:
        """Give for each slip what is said about it, "" if nothing, and the seconds."""
        katex.close()  # a process that forks cannot share its KaTeX
        work = (
            (slip, lambda slip=slip: self.reason(slip, pages[slip.page]), _SECONDS)
            for slip in slips
        )
        for slip, outcome in each_in_a_fork(work, jobs):
            yield slip, outcome.died or outcome.value, outcome.seconds

    def failing(self, pages: Iterable[Page], jobs: int = 2) -> dict[str, str]:
        """Give the pages of which something is said without any slip: no proof.

        Whatever is said of a page as it is would be said of every slip on it.
        """
        named = {page.path: page for page in pages if page.lines}
        same = [
            Slip(name, "none", 1, page.lines[0], page.lines[0])
            for name, page in named.items()
        ]
        judged = self.judge(same, named, jobs)
        return {slip.page: said for slip, said, _ in judged if said}

    def reason(self, slip: Slip, right: Page) -> str:
        """Give the first thing that is found wrong with a page and its slip."""
        text = "\n".join(slip.made_in(right.lines)) + "\n"
        page = read_page(text, right.path)
        known = {(each.line, each.reason) for each in right.problems}
        for problems in self._questions(page, text):
            for problem in problems:
                # A diagram is drawn anew when its words change: that is no proof of
                # what its shapes say.
                if _UNDRAWN in problem.reason and "shape" in slip.kind:
                    continue
                if (problem.line, problem.reason) not in known:
                    return str(problem)
        return ""

    def _questions(self, page: Page, text: str) -> Iterator[list[Problem]]:
        yield page.problems
        done = copy.deepcopy(self.records[page.path])
        done.evidence.chains &= {chain.line for chain in page.chains}
        for chain in page.chains:
            if program(chain) not in done.printed:
                problem = _run(page, chain, self.root, done)
                yield [problem] if problem else []
            problem = compare(page, chain, done.printed[program(chain)])
            yield [problem] if problem else []
        yield evidence_problems(page, done.evidence, self.root)
        yield audit(page, self.root)
        yield place_problems(page, self.root)
        if self.site:
            yield self.site.problems(page, text)


class Site:
    """The site as mkdocs builds it, to ask it what a strict build refuses: links.

    Args:
        root: The repository.
    """

    def __init__(self, root: Path) -> None:
        from mkdocs.config import load_config
        from mkdocs.structure.files import get_files
        from mkdocs.structure.pages import Page as SitePage

        self.config = load_config(str(root / "mkdocs.yml"), strict=True)
        self.files = get_files(self.config)
        self.pages: dict[str, Any] = {}
        for file in self.files.documentation_pages():
            page = SitePage(None, file, self.config)
            page.read_source(self.config)
            page.render(self.config, self.files)
            self.pages[f"docs/{file.src_uri}"] = page
        # What mkdocstrings makes of the library comes later, in a whole build.
        for module, names in exports(root).items():
            reference = self.pages.get(f"docs/reference/{module}.md")
            if reference:
                full = {f"{PACKAGE}.{module}.{name}" for name in names}
                reference.present_anchor_ids |= full

    def problems(self, page: Page, text: str) -> list[Problem]:
        """Give what a strict build would say of a page; only in a fork."""
        if page.path not in self.pages:
            return []
        told: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: told.append(record.getMessage())
        logger = logging.getLogger("mkdocs")
        logger.addHandler(handler)
        built = self.pages[page.path]
        built.markdown = text
        try:
            built.render(self.config, self.files)
            built.validate_anchor_links(files=self.files, log_level=logging.WARNING)
        except Exception as error:
            told.append(str(error))
        return [Problem(page.path, 1, reason) for reason in told]
