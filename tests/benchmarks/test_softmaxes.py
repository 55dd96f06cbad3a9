"""The task of a silent layer, and the record that the page on softmaxes reads."""

import pytest
import torch
from benchmarks.softmaxes import (
    FROM,
    KINDS,
    LENGTH,
    WIDER,
    draw_questions,
    make_layer,
)

from transformer_book import load_record


@pytest.mark.parametrize("marked", [True, False])
def test_half_of_the_tokens_ask_for_the_mean(marked: bool) -> None:
    x, targets = draw_questions(50, torch.Generator().manual_seed(0), marked=marked)
    asks = x[:, FROM:, 1] > 0
    assert 0.4 < asks.float().mean() < 0.6
    assert not targets[:, FROM:][~asks].any()
    assert not targets[..., :2].any()
    first = 1 if marked else 0
    means = torch.stack(
        [x[:, first : t + 1].mean(dim=1) for t in range(FROM, LENGTH)], dim=1
    )
    torch.testing.assert_close(
        targets[:, FROM:, 2:], torch.where(asks[..., None], means[..., 2:], 0.0)
    )
    assert (x[:, 0, 0] == float(marked)).all()
    assert not x[:, 1:, 0].any()


def test_the_kinds_differ() -> None:
    x = torch.randn(2, 5, 16)
    outputs = []
    for kind in KINDS:
        torch.manual_seed(0)
        layer = make_layer(kind, 16, 2, 0, bias=True)
        for proj in (layer.q_proj, layer.k_proj):
            proj.weight.data.mul_(9)  # so that a cap does something
        outputs.append(layer(x, causal=True))
    for i in range(len(outputs)):
        for j in range(i):
            assert (outputs[i] - outputs[j]).abs().max() > 0.01


def test_the_wider_softmax_has_as_many_parameters_as_the_gate() -> None:
    text = load_record("softmaxes")["results"]["text"]
    wider, gate = (text[kind]["parameters"][0] for kind in (WIDER, "gate"))
    assert abs(wider - gate) < 100
    assert wider - text["softmax"]["parameters"][0] > 8000
