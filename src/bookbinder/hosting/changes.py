"""Tell which pages a change alters for a reader, and say so on the pull request.

Two halves, run in two places. ``compare`` runs where the pull request's own code runs,
which may be anyone's: it compares two built sites and leaves one file of names and
numbers. ``comment`` runs with the right to write a comment: it believes nothing in that
file but page names of one form, and numbers. Standard library only, so that the second
half needs nothing installed.
"""

import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

__all__ = ["Change", "body", "changes_from", "compare", "main", "pull_request_of"]

_MARK = "<!-- the pages that this changes -->"
_PAGE = re.compile(r"[a-z0-9][a-z0-9-]*(/[a-z0-9][a-z0-9-]*)*/?")
_MOST = 100
_BLOCKS = {"p", "li", "pre", "tr", "h1", "h2", "h3", "h4", "summary", "figcaption"}


@dataclass(frozen=True)
class Change:
    """A page that a reader would find changed.

    Args:
        page: Its address below the site's, ``chapters/06-no-peeking``; "" for the home
            page.
        added: Lines of its text that are new.
        removed: Lines of its text that are gone.
        before: Whether it was there before.
        after: Whether it is there now.
    """

    page: str
    added: int
    removed: int
    before: bool = True
    after: bool = True


# What stands in an article and nobody wrote: it says which run verified the page.
_MADE = {"ran", "published"}


class _Text(HTMLParser):
    """Gather the text of a page's article, and where its pictures lie."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = self.listing = False
        self.made = ""
        self.lines = [""]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if _MADE.intersection((dict(attrs).get("class") or "").split()):
            self.made = tag
        if tag == "article":
            self.inside = True
        elif tag in _BLOCKS:
            self.lines.append("")
            self.listing = tag == "pre"
        if tag == "img" and self.inside:
            self.lines[-1] += f" [{dict(attrs).get('alt') or ''}]"

    def handle_endtag(self, tag: str) -> None:
        if tag == self.made:
            self.made = ""
        if tag == "article":
            self.inside = False
        elif tag in _BLOCKS:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if self.inside and not self.made:
            # Only in a listing does a new line in the source mean one to the reader.
            first, *rest = data.split("\n") if self.listing else [data]
            self.lines[-1] += first
            self.lines += rest


def _lines(page: Path) -> list[str]:
    if not page.is_file():
        return []
    reader = _Text()
    reader.feed(page.read_text("utf-8"))
    return [line for line in (" ".join(line.split()) for line in reader.lines) if line]


def compare(before: Path, after: Path) -> list[Change]:
    """Compare two built sites as a reader sees them: the text of each page.

    Args:
        before: The folder of the one.
        after: The folder of the other.

    Returns:
        A change for each page whose text differs, in the order of their names.
    """
    names = {
        page.parent.relative_to(site).as_posix()
        for site in (before, after)
        for page in site.rglob("index.html")
    }
    changes: list[Change] = []
    for name in sorted(names):
        old, new = (_lines(site / name / "index.html") for site in (before, after))
        if old == new:
            continue
        steps = [line[0] for line in difflib.ndiff(old, new)]
        page = "" if name == "." else name
        changes.append(
            Change(page, steps.count("+"), steps.count("-"), bool(old), bool(new))
        )
    return changes


def changes_from(text: str) -> list[Change]:
    """Read what ``compare`` left, from somebody who may not mean well.

    Raises:
        ValueError: If it holds anything but the names of pages, numbers, and truths.
    """
    found: Any = json.loads(text)
    if not isinstance(found, list) or len(found) > _MOST:
        raise ValueError(f"wanted a list of at most {_MOST} changes")
    changes: list[Change] = []
    for each in found:
        match each:
            case {
                "page": str(page),
                "added": int(added),
                "removed": int(removed),
                "before": bool(before),
                "after": bool(after),
            } if len(each) == 5 and (not page or _PAGE.fullmatch(page)):
                changes.append(Change(page, added, removed, before, after))
            case _:
                raise ValueError(f"no change of a page: {str(each)[:200]!r}")
    return changes


def body(changes: list[Change], *, site: str, check: str) -> str:
    """Write the comment.

    Args:
        changes: What to tell.
        site: The address of the published site, "" if there is none.
        check: The address of the run that built the new one.
    """
    if not changes:
        return f"{_MARK}\nNo page reads differently.\n"
    rows = ["| page | before | after |", "|---|---|---|"]
    for change in changes:
        name = change.page or "Home"
        address = f"{site.rstrip('/')}/{change.page}".rstrip("/") + "/"
        before = (f"[as published]({address})" if site else "") if change.before else ""
        before = before or ("there" if change.before else "not there")
        after = f"+{change.added} −{change.removed} lines" if change.after else "gone"
        rows.append(f"| `{name}` | {before} | {after} |")
    table = "\n".join(rows)
    return (
        f"{_MARK}\nThis changes what a reader sees on these pages:\n\n{table}\n\n"
        f"To read them as they will be: *preview*, at the foot of [the check]({check}),"
        " is the whole site; unpack it and run `python3 -m http.server` in it.\n"
    )


def pull_request_of(pulls: list[dict[str, Any]], sha: str) -> int | None:
    """Find the pull request whose newest commit was checked.

    It is asked of the host, not of the file: whoever wrote the file could name any.
    """
    numbers = [pull["number"] for pull in pulls if pull["head"]["sha"] == sha]
    return int(numbers[0]) if numbers else None


def _gh(*arguments: str, send: str | None = None) -> Any:
    done = subprocess.run(
        ["gh", "api", *arguments], input=send, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"gh api {arguments[0]}: {done.stderr.strip()}")
    return json.loads(done.stdout or "null")


def _comment(file: Path, gh: Callable[..., Any] = _gh) -> str:
    """Write the comment on the host, or write the old one anew; say what was done."""
    changes = changes_from(file.read_text("utf-8"))
    environ = os.environ
    repository = f"repos/{environ['GH_REPO']}"
    head = f"{environ['HEAD_OWNER']}:{environ['HEAD_BRANCH']}"
    query = ("--method", "GET", "-f", "state=open", "-f", f"head={head}")
    number = pull_request_of(gh(f"{repository}/pulls", *query), environ["HEAD_SHA"])
    if number is None:
        return "the pull request has moved on: nothing to say"
    pages = gh(repository).get("has_pages")
    site = gh(f"{repository}/pages")["html_url"] if pages else ""
    text = json.dumps({"body": body(changes, site=site, check=environ["CHECK_URL"])})
    thread = f"{repository}/issues/{number}/comments"
    # Only our own, or anyone could have their comment written over by the mark.
    ours = [
        comment["id"]
        for comment in gh(thread, "--method", "GET", "-f", "per_page=100")
        if comment["user"]["type"] == "Bot" and comment["body"].startswith(_MARK)
    ]
    if ours:
        where = f"{repository}/issues/comments/{ours[0]}"
        gh(where, "--method", "PATCH", "--input", "-", send=text)
        return f"wrote the comment on #{number} anew"
    gh(thread, "--method", "POST", "--input", "-", send=text)
    return f"commented on #{number}"


def main(arguments: list[str]) -> int:
    """Run one half: ``compare BEFORE AFTER OUT`` or ``comment FILE``."""
    match arguments:
        case ["compare", before, after, out]:
            changes = compare(Path(before), Path(after))
            file = Path(out)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps([asdict(c) for c in changes], indent=1), "utf-8")
            for change in changes:
                name = change.page or "Home"
                print(f"{name}: +{change.added} −{change.removed} lines")
            print(f"{len(changes)} pages read differently")
        case ["comment", file_name]:
            try:
                print(_comment(Path(file_name)))
            except ValueError as error:
                print(f"changes: {error}", file=sys.stderr)
                return 1
        case _:
            print("usage: changes.py compare BEFORE AFTER OUT | comment FILE")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
