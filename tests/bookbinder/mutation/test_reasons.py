"""A reason why a mutant may live belongs to a mutant that there is."""

from pathlib import Path

from bookbinder.mutation.operators import mutants
from bookbinder.mutation.report import reviewed

LIBRARY = Path(__file__).resolve().parents[3] / "src" / "tested_transformer"


def test_every_reason_has_its_mutant():
    made = {
        (name, mutant.text, mutant.change)
        for name in {file for file, *_ in reviewed()[0]}
        for mutant in mutants((LIBRARY / name).read_text("utf-8"))
    }
    assert not reviewed()[0].keys() - made
