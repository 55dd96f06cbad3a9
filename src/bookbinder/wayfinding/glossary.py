"""The terms of the glossary, read from its page: there is no second list.

What a tip says of a term is the first sentence of its entry, in plain text. Words that
the book also uses in their everyday sense are named in the front matter of the page,
as ``everyday``: no machine can tell which sense is meant, so they get no tips.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from mkdocs.utils import meta
from pymdownx.slugs import slugify

__all__ = ["GLOSSARY", "GlossaryError", "Term", "read_glossary", "terms_of"]

GLOSSARY = "glossary.md"

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]*)[^)]*\)")
_ENTRY = re.compile(r"^## (?P<name>.+)$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->\s*", re.DOTALL)
# A sentence ends at a stop before a capital; there is none inside a term or a formula.
_SENTENCE = re.compile(r"(?P<first>.+?)(?<!vs)\.(?= [A-Z\[]|$)")
# What a formula's words become in plain text. The glossary needs no others.
_PLAIN = [
    (re.compile(r"\\text\{(\w+)\}|\{(\w+)\}"), r"\1\2"),
    (re.compile(r"\\sqrt\s*\{?([\w\\]+)\}?"), r"√\1"),
    (re.compile(r"\\infty"), "∞"),
    (re.compile(r"(?<![\w)])-(?=[\d∞])"), "−"),
]


class GlossaryError(ValueError):
    """An entry that no tip can be made of; the message names it."""


@dataclass(frozen=True)
class Term:
    """A term, what a tip says of it, its anchor, and the pages that explain it."""

    name: str
    tip: str
    anchor: str
    explained: frozenset[str]


def terms_of(docs: Path) -> tuple[Term, ...]:
    """Give the terms of a book that get tips; none where there is no glossary."""
    file = docs / GLOSSARY
    if not file.is_file():
        return ()
    return read_glossary(file.read_text(encoding="utf-8"))


def read_glossary(text: str) -> tuple[Term, ...]:
    """Read the terms out of the page's text.

    Raises:
        GlossaryError: If an entry begins with no plain sentence, or if a word that is
            said to be an everyday one is no entry.
    """
    text, front = meta.get_data(text)
    everyday: set[str] = {*front.get("everyday", ())}
    slug = slugify(case="lower")
    _, *parts = _ENTRY.split(text)
    entries = dict(zip(parts[::2], parts[1::2], strict=True))
    if unknown := everyday - entries.keys():
        raise GlossaryError(f"no entry is called {', '.join(sorted(unknown))}")
    return tuple(
        Term(
            name=name,
            tip=_tip(name, body),
            anchor=slug(name, "-"),
            explained=frozenset(target for _, target in _LINK.findall(body)),
        )
        for name, body in entries.items()
        if name not in everyday
    )


def _tip(name: str, body: str) -> str:
    """Give the first sentence of an entry, without marks."""
    # A colon before a link leads on to the chapter; the tip leads to the entry.
    entry = re.sub(r":? \[[^\]]*\]\([^)]*\)(?=\.)", "", _COMMENT.sub("", body).strip())
    found = _SENTENCE.match(entry.partition("\n\n")[0])
    if not found or "](" in found["first"]:
        raise GlossaryError(f"{name}: its first sentence has to stand without a link")
    plain = re.sub(r"\$([^$]+)\$", _plain_formula, found["first"])
    plain = re.sub(r"[`*]", "", plain)
    if "\\" in plain:
        raise GlossaryError(f"{name}: a tip cannot show the formula in {plain!r}")
    return f"{plain}."


def _plain_formula(formula: re.Match[str]) -> str:
    text = formula[1]
    for pattern, plain in _PLAIN:
        text = pattern.sub(plain, text)
    return text
