"""What contributors do wrong: each message names the page, the line and the remedy."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookbinder.contributing.checking import Checker
from bookbinder.page import Problem
from bookbinder.warming import warm_up

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

# In two pieces, for the spelling of this file is looked at, too.
MISSPELT = "rec" + "ieve"


@dataclass(frozen=True)
class Mistake:
    """A piece of a page with something wrong on one of its lines.

    Args:
        text: The piece; the line that is to be named ends with ``~``, which is no part
            of it.
        what: Words of the message that say what is wrong.
        remedy: Words of the message that say what to do.
    """

    text: str
    what: str
    remedy: str


# What does not read: the page is not run, and its faults of form are told alone.
UNREADABLE = {
    "a language that is none": Mistake(
        "```pythn~\nx = 1\n```",
        "```pythn is none of the forms",
        "they are ```python (run)",
    ),
    "an output that is typed under nothing": Mistake(
        "```python\nprint(1)\n```\n\n```text~\n1\n```",
        "this output is compared with nothing",
        "put <!--pytest-codeblocks:expected-output--> here",
    ),
    "a private name that is imported": Mistake(
        "```python\nfrom tested_transformer.masks import _check_length~\n\n"
        "_check_length(1)\n```",
        "_check_length is private",
        "import a public name",
    ),
    "a tab that is not closed": Mistake(
        "/// tab | One way~\nWords.",
        "no /// ends this call-out or tab",
        "ends",
    ),
    "a marker with a slip": Mistake(
        "<!--pytest-codeblocks:continue-->~\n```python\nx = 1\n```",
        "this comment is not a marker",
        "these are <!--pytest-codeblocks:cont-->",
    ),
    "a section of a listing with a slip": Mistake(
        '```py title="src/tested_transformer/masks.py"~\n'
        '--8<-- "src/tested_transformer/masks.py:casual"\n```',
        "has no section 'casual'",
        "it has additive, causal",
    ),
    "a listing that is typed": Mistake(
        '```py title="src/tested_transformer/masks.py"~\ndef causal_mask(): ...\n```',
        "no code of its own",
        '--8<-- "src/tested_transformer/masks.py:section"',
    ),
}

# What reads and runs, and shows, says or leads to something else than it should.
WRONG = {
    "a page that the navigation does not have": Mistake(
        "# Sampling~",
        "no entry of the navigation leads here",
        "add the line '- Sampling: chapters/wrong.md'",
    ),
    "a title that another page has": Mistake(
        "", "docs/chapters/19-sampling.md has this title too", "give this page another"
    ),
    "a link to nothing": Mistake(
        "See [No peeking](06-no-peking.md).~",
        "there is no such file",
        "06-no-peeking.md?",
    ),
    "an absolute link": Mistake(
        "See [Notation](/notation/).~",
        "there is no such file",
        "a link begins at the folder of its page, as ../notation.md",
    ),
    "a link that says something else": Mistake(
        "See [the cache](06-no-peeking.md).~", "no word of it is one of", "'No peeking'"
    ),
    "a name that nothing has": Mistake(
        "Call `causal_masks` first.~", "nothing is called causal_masks", "causal_mask?"
    ),
    "a slip in a formula": Mistake(
        r"It is $\fraq{q}{k}$ here.~", r"Undefined control sequence: \fraq", r"\frac?"
    ),
    "a word that is misspelled": Mistake(
        f"We {MISSPELT} it.~",
        f"{MISSPELT!r} is a common misspelling",
        "write receive",
    ),
    "a number that nothing backs": Mistake(
        "There are 1234 of them.~", "1234", "print it there, or bind it beside the text"
    ),
    "a number that is bound to no value": Mistake(
        '<!-- holds: "four tokens": they are four -->~\nThere it begins.',
        "after the quotation stands",
        "= and an expression",
    ),
    "a value that is no expression": Mistake(
        '<!-- holds: "four tokens" = four of them -->~\nThere it goes on.',
        "four of them is no expression",
        "invalid syntax",
    ),
    "a letter whose value is no expression": Mistake(
        "<!-- where: Q = q[ -->~", "q[ is no expression", "was never closed"
    ),
    "a number that no run can know": Mistake(
        "It is said in 17 languages.~",
        "17 (said in 17 languages.)",
        'what no run can know is given, <!-- given: "…": why -->',
    ),
    "a share that is bound as a percentage": Mistake(
        '```python\nshare = 0.672\n```\n\n<!-- holds: "67 %" = share -->\n'
        "It is 67 % of all.~",
        "the run gives 0.672, the page 67",
        "write 100 * (share)",
    ),
    "a work that is on no list": Mistake(
        "It began with Nobody and Nemo (2031).~",
        "2031",
        "src/bookbinder/numbers/works.txt has the work, in a line",
    ),
    "a logarithm without a base": Mistake(
        "```python\nhalf = 0.5\n```\n\n<!-- where: p = half; n = -0.693147 -->\n"
        r"With $n = \log p$ it is negative.~",
        r"\log has no base",
        r"write \ln, or \log_2",
    ),
    "a chapter without exercises": Mistake(
        "", "a chapter has two exercises, here are 0", "write each under a heading ###"
    ),
    "a diagram that is not drawn": Mistake(
        "```mermaid\nflowchart LR~\n    accTitle: Two boxes\n"
        "    accDescr: One box leads to another box.\n"
        '    a["one"] --> b["another"]\n```',
        "diagram not drawn",
        "run make diagrams",
    ),
    "a picture without words": Mistake(
        "![](../assets/figures/wrong/bars.svg)~",
        "no text alternative",
        "say in the brackets what is to be seen",
    ),
    "a picture that is not kept": Mistake(
        '```python\nfrom pathlib import Path\n\nPath("bars.svg").write_text("<svg/>")\n'
        "```",
        "bars.svg is drawn but not kept",
        "make outputs",
    ),
    "a statement that never runs": Mistake(
        "```python\nif 1 > 2:\n    print(3)~\n```",
        "this line never runs",
        "take it out",
    ),
    "a listing that nothing runs": Mistake(
        '```py title="src/tested_transformer/masks.py"~\n'
        '--8<-- "src/tested_transformer/masks.py:window"\n```',
        "but no block of this page executes it",
        "run it here, or list a smaller section",
    ),
    "an output that was typed": Mistake(
        "```python\nprint(2 + 2)\n```\n\n<!--pytest-codeblocks:expected-output-->\n"
        "```text\n5~\n```",
        "the page shows '5', the run gives '4'",
        "make outputs",
    ),
    "a heading of the wrong level": Mistake(
        "#### Too deep~", "Heading levels should only increment by one", "Expected: h2"
    ),
    "a heading that is there twice": Mistake(
        "## Again\n\nWords.\n\n## Again~\n\nWords.",
        "Multiple headings with the same content",
        "rule MD024",
    ),
}

# What breaks off when it runs.
BREAKING = {
    "a block that does not go on from the one before": Mistake(
        "```python\nfirst = 1\n```\n\n```python\nprint(first)~\n```",
        "NameError: name 'first' is not defined",
        "go on from it with <!--pytest-codeblocks:cont-->",
    ),
    "a name that is imported with a slip": Mistake(
        "```python\nfrom tested_transformer import MultiheadAttention~\n```",
        "cannot import name 'MultiheadAttention'",
        "MultiHeadAttention?",
    ),
    "a mask the other way around in an exercise": Mistake(
        "```python\nimport torch\n\nfrom tested_transformer import causal_mask\n\n\n"
        "def check_window(answer):\n    got = answer(4)\n"
        "    assert not torch.equal(got, ~causal_mask(4)), (~\n"
        '        "turned around: True = may attend"\n    )\n\n\n'
        "check_window(lambda size: ~causal_mask(size))\n```",
        "AssertionError: turned around",
        "True = may attend",
    ),
}

PAGES = {"unreadable": UNREADABLE, "wrong": WRONG, "breaking": BREAKING}
EVERY = [(page, title) for page, mistakes in PAGES.items() for title in mistakes]


def composed(page: str) -> tuple[str, dict[str, int]]:
    """Put the pieces of a page together; give the line that each has to be told at."""
    lines = [] if page == "wrong" else [f"# The {page} page", ""]
    places: dict[str, int] = {}
    for title, mistake in PAGES[page].items():
        places[title] = 1
        for line in [*mistake.text.splitlines(), ""] if mistake.text else []:
            if line.endswith("~"):
                places[title] = len(lines) + 1
            lines.append(line.removesuffix("~"))
    # A picture that is drawn and not kept is told where it is shown.
    if page == "wrong":
        places["a picture that is not kept"] = places["a picture without words"]
    return "\n".join(lines).rstrip("\n") + "\n", places


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Problem]]:
    """Check the pages as make page does, in a book that is like ours but for them."""
    root = tmp_path_factory.mktemp("book")
    # All that a page may ask for but the pages themselves, which are copied.
    for there in ROOT.iterdir():
        if there.name != "docs" and (there.name[0] != "." or there.suffix == ".yaml"):
            (root / there.name).symlink_to(there)
    docs = shutil.ignore_patterns("assets")
    shutil.copytree(ROOT / "docs", root / "docs", ignore=docs)
    (root / "docs/assets").symlink_to(ROOT / "docs/assets")
    warm_up(root)
    checker = Checker(root)
    found: dict[str, list[Problem]] = {}
    for page in PAGES:
        file = root / f"docs/chapters/{page}.md"
        file.write_text(composed(page)[0], "utf-8")
        found[page] = checker.check(file)
        file.unlink()
    return found


@pytest.mark.parametrize(("page", "title"), EVERY, ids=[title for _, title in EVERY])
def test_a_mistake_is_told_with_its_line_and_what_to_do(
    page: str, title: str, told: dict[str, list[Problem]]
) -> None:
    mistake, line = PAGES[page][title], composed(page)[1][title]
    assert any(
        problem.line == line
        and mistake.what in problem.reason
        and mistake.remedy in problem.reason
        for problem in told[page]
    ), "\n".join([f"wanted at line {line}", *map(str, told[page])])


@pytest.mark.parametrize("page", PAGES)
def test_no_other_line_is_named(page: str, told: dict[str, list[Problem]]) -> None:
    # No page of these has an entry in the navigation.
    lines = {1, *composed(page)[1].values()}
    others = [str(problem) for problem in told[page] if problem.line not in lines]
    assert others == []


def test_there_are_twenty_and_more() -> None:
    assert len(EVERY) >= 20
