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
