"""*Which attention* is found by the words of engineers, and its cases are short."""

from itertools import takewhile
from pathlib import Path

from bookbinder.page import load_page
from tested_transformer.attentions import ATTENTIONS

ROOT = Path(__file__).parents[2]
WORDS = "KV cache, Sliding window, RoPE, ALiBi, bias, Soft cap, GQA, MQA, MLA"


def test_each_case_has_its_word_in_a_heading_and_blocks_of_twelve_lines() -> None:
    page = load_page(ROOT / "docs/which-attention.md", ROOT)
    lines = [*takewhile(lambda line: "A whole model" not in line, page.lines)]
    headings = "\n".join(line for line in lines if line.startswith("## "))
    assert [word for word in WORDS.split(", ") if word not in headings] == []
    codes = [block.code for block in page.blocks if block.line < len(lines)]
    assert len(codes) > 15
    assert [code for code in codes if sum(map(bool, code.splitlines())) > 12] == []


def test_every_way_to_attend_has_a_row() -> None:
    page = load_page(ROOT / "docs/which-attention.md", ROOT)
    rows = [line.split("|")[1] for line in page.lines if line.startswith("| [`")]
    missing = [name for name in ATTENTIONS if f"`{name}`" not in "".join(rows)]
    assert not missing, (
        "give it a row in docs/which-attention.md: a link to its chapter"
    )
