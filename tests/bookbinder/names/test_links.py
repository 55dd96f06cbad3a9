"""A link leads where it says, and what is cited is among the sources."""

from pathlib import Path

import pytest

from bookbinder.names.links import anchors_of, link_problems
from bookbinder.reading.pages import read_page
from bookbinder.reading.rendering import render

ROOT = Path(__file__).parents[3]


def problems(prose: str, path: str = "docs/chapters/page.md") -> list[str]:
    page = read_page(f"# A page\n\n{prose}\n\n## A measured table\n\nIt.\n", path)
    return [str(problem) for problem in link_problems(page, ROOT)]


@pytest.mark.parametrize(
    "link",
    [
        "[No peeking](06-no-peeking.md)",
        "[peeking](06-no-peeking.md)",
        "[fewer queries](06-no-peeking.md#fewer-queries-than-keys)",
        "[`attention_weights`](03-attention-by-hand.md)",
        "[a query on paper](03-attention-by-hand.md#one-query-on-paper)",
        "[`padding_mask`](08-cross-attention.md#padding-the-context)",
        "[measured](#a-measured-table)",
        "[The legend of notation](../notation.md)",
        "[nanoGPT](https://github.com/karpathy/nanoGPT)",
        "[pytorch #41508](https://github.com/pytorch/pytorch/issues/41508)",
        "PyTorch [issue 41508](https://github.com/pytorch/pytorch/issues/41508)",
        "[a page](https://example.com/anywhere)",
        "`[no link](nowhere.md)`",
    ],
)
def test_a_link_that_says_where_it_leads_is_accepted(link: str) -> None:
    assert problems(f"See {link}.") == []


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("[No peeking](06-no-peek.md)", "there is no such file"),
        ("[No peeking](07-padding.md)", "no word of it is one of 'Padding and the two"),
        ("[fewer queries](06-no-peeking.md#fewer)", "06-no-peeking.md has no heading"),
        ("[fewer queries](06-no-peeking.md#the-mask)", "no word of it is one of"),
        ("[below](#a-measured-table)", "no word of it is one of 'A measured table'"),
        ("[the first query on paper](03-attention-by-hand.md#backwards-on-paper)",
         "its words are nearer to 'One query on paper' than to 'Backwards, on paper'"),
        ("[`attention_weights`](06-no-peeking.md)",
         "06-no-peeking.md lists no attention_weights"),
        ("[`padding_mask`](08-cross-attention.md#what-it-costs-and-what-to-keep)",
         "08-cross-attention.md lists no padding_mask"),
        ("[a page](http://example.com)", "not an address that begins https://"),
        ("[mingpt](https://github.com/karpathy/nanoGPT)", "this page never calls it"),
        ("[a slip](https://github.com/pytorch/pytorch/issues/41508)",
         "this page never calls it pytorch #41508"),
        ("[pytorch #41509](https://github.com/pytorch/pytorch/issues/41508)",
         "the text says #41509"),
        ("[pytorch #1](https://github.com/pytorch/pytorch/tree/main)",
         "neither a repository nor an issue"),
    ],
)  # fmt: skip
def test_a_link_that_leads_elsewhere_is_refused(link: str, reason: str) -> None:
    (problem,) = problems(f"See {link}.")
    assert problem.startswith(f"docs/chapters/page.md:3: {link}: {reason}")


def test_a_page_outside_the_book_links_from_the_root() -> None:
    assert problems("[Contributing](CONTRIBUTING.md)", "README.md") == []
    assert problems("[MIT license](LICENSE)", "README.md") == []
    assert len(problems("[Contributing](docs/CONTRIBUTING.md)", "README.md")) == 1


CITING = """# A page

{prose}

## Sources

- Ashish Vaswani et al., *Attention Is All You Need*, 2017.
- Ofir Press and Lior Wolf, *Using the Output Embedding*, 2017.
"""


@pytest.mark.parametrize(
    ("prose", "missing"),
    [
        ("It was so before (Vaswani et al., 2017).", None),
        ("Press and Wolf (2017, section 2) tie them.", None),
        ("(Press and Wolf, 2017)", None),
        ("It was so before (Vaswani et al., 2018).", "Vaswani et al., 2018"),
        ("Shazeer (2019) shares keys.", "Shazeer (2019"),
        ("Press and Wulf (2017) tie them, so does Vasvani et al. (2017).", "Vasvani"),
    ],
)
def test_who_is_cited_is_among_the_sources(prose: str, missing: str | None) -> None:
    page = read_page(CITING.format(prose=prose), "docs/page.md")
    found = [str(problem) for problem in link_problems(page, ROOT)]
    if missing is None:
        assert found == []
    else:
        (problem,) = found
        assert problem.startswith(f"docs/page.md:3: {missing}")
        assert problem.endswith("not among the sources")


@pytest.mark.parametrize("name", ["06-no-peeking", "13-fast-paths"])
def test_anchors_are_those_of_the_site(name: str) -> None:
    text = (ROOT / f"docs/chapters/{name}.md").read_text(encoding="utf-8")
    headings = [f"# {name}", *(x for x in text.split("\n") if x.startswith("#"))]
    again = "\n\n".join([*headings, "## The mask", "## `is_causal` is *a* hint"])
    html = render(again, ROOT)
    shown = [element["id"] for element in html.select("h1, h2, h3, h4, h5, h6")]
    assert [anchor for anchor in anchors_of(again) if anchor] == shown


def test_the_sentence_tells_which_of_two_headings_is_meant() -> None:
    where = "03-attention-by-hand.md"
    slope = f"Its slope is the derivative that is worked out [on paper]({where}#{{}})."
    assert problems(slope.format("backwards-on-paper")) == []
    (problem,) = problems(slope.format("one-query-on-paper"))
    assert problem.endswith(
        "its sentence is nearer to 'Backwards, on paper' than to 'One query on paper'"
    )
