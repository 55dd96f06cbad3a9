"""Reading a text whose end is taken back, against reading it from the start."""

import pytest
import torch

from tested_transformer.attentions import DeltaRule
from tested_transformer.decoding import TextReader

KINDS = [
    {},
    {"positions": "rotary", "num_kv_heads": 1, "qk_norm": True},
    {"positions": "alibi", "smear": True},
    {"windows": 5},
    {"attention": DeltaRule(gated=True)},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_reader_may_be_taken_back_anywhere(kind, make):
    model, lengths = make(**kind), list[int]()
    reader = TextReader(model)
    texts = [[3, 1, 4], [3, 1, 4, 1, 5], [3, 1, 4, 2], [3, 9, 2, 6], [7], [7, 7, 7]]
    for text in texts:
        for count in (1, len(text)):
            with torch.no_grad():
                expected = model(torch.tensor([text]))[0, -count:]
            torch.testing.assert_close(reader.read(text, count), expected)
    if not kind:  # only what is new is read
        model.register_forward_pre_hook(lambda _, x: lengths.append(x[0].shape[1]))
        for text in ([3, 1, 4], [3, 1, 4, 1, 5], [3, 1, 4, 2]):
            reader.read(text, 1)
        assert lengths == [3, 2, 1]
