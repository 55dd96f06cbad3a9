"""Who reads whom, of attentions that are known to the last weight."""

import torch
from torch import Tensor

from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.reading import is_constant, reads
from tested_transformer.multihead import MultiHeadAttention


def test_a_causal_layer_reads_the_past_and_itself() -> None:
    subject = make_subject(MultiHeadAttention(d_model=20, num_heads=5))
    triangle = torch.ones(7, 7, dtype=torch.bool).tril()
    assert torch.equal(reads(subject), triangle)
    assert reads(subject, causal=False).all()


def test_nan_that_stays_is_not_moved() -> None:
    def broken(x: Tensor) -> Tensor:
        later = x.roll(-1, dims=1)
        return torch.cat([later[:, :-1], torch.full_like(x[:, :1], torch.nan)], dim=1)

    found = reads(make_subject(broken, d_model=20))
    assert torch.equal(found, torch.ones(7, 7).triu(1).tril(1).bool())


def test_what_never_moves_is_constant_unless_it_is_nan() -> None:
    def of(function) -> bool:
        return is_constant(make_subject(function, d_model=20))

    assert of(lambda x: torch.ones_like(x))
    assert not of(lambda x: x)
    assert not of(lambda x: x * torch.nan)
