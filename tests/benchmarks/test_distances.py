"""The lists ask for what stood there, and no answer reads ahead."""

import pytest
import torch
from benchmarks.distances import KINDS, draw_lines, make


@pytest.mark.parametrize("few", [False, True])
def test_a_question_is_answered_by_the_animal_at_its_place(few: bool) -> None:
    tokens, answers = draw_lines(5, 7, torch.Generator().manual_seed(0), few=few)
    assert tokens.shape == (5, 15)
    assert answers.shape == (5, 4)
    for line, expected in zip(tokens.tolist(), answers.tolist(), strict=True):
        places = [number - 20 for number in line[7::2]]
        assert [line[place] for place in places] == expected == line[8::2]
        assert max(places) < (4 if few else 7)


def test_no_answer_reads_what_comes_after_it() -> None:
    tokens, _ = draw_lines(2, 7, torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 8
    for kind in KINDS:
        model = make(kind, 0)
        before = model(tokens)[:, :-1]
        torch.testing.assert_close(model(changed)[:, :-1], before)
        assert not torch.equal(before[:, 0], before[:, 1])
