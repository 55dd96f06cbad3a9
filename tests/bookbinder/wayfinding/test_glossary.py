"""What a tip says is the first sentence of the glossary's entry."""

from pathlib import Path

import pytest

from bookbinder.wayfinding.glossary import GlossaryError, read_glossary, terms_of

DOCS = Path(__file__).parents[3] / "docs"

ENTRIES = """---
everyday: [Block]
---

# Glossary

## Head width

<!-- constants: 1 -->
Features of a head, $d_k$ and `head_dim`; *not* of $H_\\text{kv}$. See
[Why](chapters/04.md#why). Also: *d_head*.

## Pruning

Taking heads out, at $1 / \\sqrt{d_k}$ or $-\\infty$: [Pruning](chapters/22.md).

## Block

Whatever [this](x.md) says.
"""


def test_a_term_has_its_first_sentence_in_plain_text() -> None:
    width, pruning = read_glossary(ENTRIES)
    assert (width.name, width.anchor) == ("Head width", "head-width")
    assert width.tip == "Features of a head, d_k and head_dim; not of H_kv."
    assert width.explained == {"chapters/04.md"}
    assert pruning.tip == "Taking heads out, at 1 / √d_k or −∞."


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[Block]", "[Brick]", "no entry is called Brick"),
        ("everyday: [Block]", "title: x", "Block: its first sentence has to stand"),
        ("\\sqrt{d_k}", "\\frac{1}{2}", "Pruning: a tip cannot show the formula"),
    ],
)
def test_an_entry_without_a_tip_is_refused(old: str, new: str, reason: str) -> None:
    assert old in ENTRIES
    with pytest.raises(GlossaryError, match=reason):
        read_glossary(ENTRIES.replace(old, new))


def test_the_book_s_own_tips_are_short_and_lead_to_pages_that_are_there() -> None:
    terms = terms_of(DOCS)
    assert len(terms) > 50
    assert [term.name for term in terms if not 20 < len(term.tip) < 160] == []
    targets = {path for term in terms for path in term.explained}
    assert [path for path in sorted(targets) if not (DOCS / path).is_file()] == []


def test_a_book_without_a_glossary_has_no_terms(tmp_path: Path) -> None:
    assert terms_of(tmp_path) == ()
