"""A command that a page shows is one that there is, with its options."""

from pathlib import Path

import pytest

from bookbinder.names.commands import command_problems
from bookbinder.reading.pages import read_page

ROOT = Path(__file__).parents[3]


def problems(command: str) -> list[str]:
    text = f"# A page\n\n```console\n$ make test\n$ {command}\n```\n"
    page = read_page(text, "page.md")
    assert page.problems == []
    return [str(problem) for problem in command_problems(page, ROOT)]


@pytest.mark.parametrize(
    "command",
    [
        "tested-transformer --help",
        'tested-transformer generate runs/mine --prompt "The "  # writes',
        "tested-transformer heads gpt2 play.txt --tokens 2048",
        "torchrun --nproc-per-node 2 -m tested_transformer.cli train text.txt",
        "make outputs PAGE=docs/index.md",
        "make site SITE_URL=https://example.com/",
        "python -m benchmarks scaling",
        "pip install .",
    ],
)
def test_a_command_of_something_is_accepted(command: str) -> None:
    assert problems(command) == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("tested-transformer compose", "the command has no compose"),
        ("tested-transformer heads gpt2 --length 2",
         "tested-transformer heads has no --length"),
        ("tested-transformer generate --token 2",
         "tested-transformer generate has no --token"),
        ("torchrun -m tested_transformer.cli train --epoch 2",
         "tested-transformer train has no --epoch"),
        ("make pages", "the Makefile has no pages"),
        ("make outputs PAGES=docs/index.md",
         "neither the Makefile nor mkdocs.yml has a variable PAGES"),
        ("python -m benchmark scaling", "there is no module benchmark"),
        ("python -m benchmarks scale", "benchmarks knows no scale"),
        ('make chapter NAME="A', "no shell reads this: No closing quotation"),
    ],
)  # fmt: skip
def test_a_command_of_nothing_is_refused(command: str, reason: str) -> None:
    assert problems(command) == [f"page.md:5: {command}: {reason}"]


CHAPTER = 'make chapter QUESTION="Why?" NAME="Attention sinks"'


def test_a_page_that_is_handed_over_is_there_or_would_be_begun() -> None:
    last = max(file.name for file in (ROOT / "docs/chapters").glob("[0-9]*.md"))
    new = f"docs/chapters/{int(last[:2]) + 1}-attention-sinks.md"
    assert problems(f"{CHAPTER}\n$ make page PAGE={new}") == []
    for other in (new, new.replace("sinks", "sink"), f"docs/{last}"):
        begun = "" if other == new else f"{CHAPTER}\n$ "
        wanted = f"page.md:{6 if begun else 5}: make page PAGE={other}: "
        assert problems(f"{begun}make page PAGE={other}") == [
            f"{wanted}there is no {other}"
        ]


def test_an_address_has_the_port_of_the_server() -> None:
    assert problems("make serve  # at http://127.0.0.1:8000") == []
    assert problems("make serve PORT=8123  # at http://localhost:8123/") == []
    (problem,) = problems("make serve  # at http://127.0.0.1:8080")
    assert problem == "page.md:5: 127.0.0.1:8080: make serve listens on 8000"
