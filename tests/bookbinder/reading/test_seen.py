"""What functions had when they ended is kept: shapes, and the sizes of letters."""

import sys

import torch
from torch import nn

from bookbinder.reading.seen import Seen, note_frame


class Model(nn.Module):
    """A module that knows its sizes."""

    def __init__(self, num_heads: int = 3) -> None:
        super().__init__()
        self.num_heads = num_heads


def test_shapes_and_sizes_of_a_frame_are_kept() -> None:
    def attend(
        x: torch.Tensor, mask: torch.Tensor | None, d_k: int, model: Model
    ) -> None:
        pieces = [x, [x[0]]]
        seen.append(note_frame(sys._getframe(), (x, {"no": "tensor"}, pieces[:1])))

    seen: list[Seen] = []
    attend(torch.ones(2, 5), None, 5, Model())
    (ended,) = seen
    assert vars(ended) == {
        "line": attend.__code__.co_firstlineno,
        "values": {"x": [(2, 5)], "pieces": [(2, 5), (5,)]},
        "returned": [(2, 5), (2, 5)],
        "sizes": {"d_k": 5, "H": 3},
    }


def test_a_letter_of_two_sizes_is_none() -> None:
    def both(one: Model, other: Model) -> Seen:
        return note_frame(sys._getframe(), None)

    assert both(Model(3), Model(3)).sizes == {"H": 3}
    assert both(Model(3), Model(4)).sizes == {}
