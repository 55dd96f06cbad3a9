"""The recall task asks for what was shown, and no answer reads ahead."""

import torch
from benchmarks.recall import KINDS, Recall, draw_pairs


def test_every_key_that_was_shown_is_asked_once() -> None:
    keys, values, answers = draw_pairs(3, 5, torch.Generator().manual_seed(0))
    assert keys.shape == values.shape == (3, 10)
    for row in range(3):
        shown = dict(zip(keys[row, :5].tolist(), values[row, :5].tolist(), strict=True))
        questions = keys[row, 5:].tolist()
        assert len(shown) == 5
        assert {*questions} == {*shown}
        assert [shown[key] for key in questions] == answers[row].tolist()
    assert (values[:, 5:] == 16).all()


def test_no_answer_reads_what_comes_after_it() -> None:
    keys, values, _ = draw_pairs(2, 4, torch.Generator().manual_seed(0))
    for layers in KINDS.values():
        model = Recall(layers)
        before = model(keys, values)
        changed = keys.clone()
        changed[:, -1] = (changed[:, -1] + 1) % 64
        torch.testing.assert_close(model(changed, values)[:, :-1], before[:, :-1])
