"""Writing token by token: what greedy choice gives, and where it stops."""

import pytest
import torch

from tested_transformer import padding_mask
from tested_transformer.encoder_decoder import (
    EncoderDecoder,
    EncoderDecoderConfig,
    translate,
)

B, S, V, BOS, EOS = 3, 5, 13, 1, 2
MASK = padding_mask(torch.tensor([5, 4, 2]))


@pytest.fixture
def model() -> EncoderDecoder:
    return EncoderDecoder(
        EncoderDecoderConfig(vocab_size=V, max_seq_len=7, d_model=12, num_heads=3)
    ).double()


def by_hand(model: EncoderDecoder, source: torch.Tensor, longest: int) -> list[int]:
    """Run the whole model anew for each token of one sentence."""
    written = [BOS]
    while len(written) <= longest and EOS not in written:
        logits = model(source[None], torch.tensor([written]))
        written.append(int(logits[0, -1].argmax()))
    return written[1:]


def test_each_sentence_is_what_the_whole_model_writes_for_it_alone(
    model: EncoderDecoder,
):
    # Tokens that are likely by themselves, so that sentences end at different times.
    lengths = set()
    for seed in range(12):
        torch.manual_seed(seed)
        model.reset_parameters()
        source = torch.randint(3, V, (B, S))
        written = translate(model, source, source_mask=MASK, bos=BOS, eos=EOS)
        for row, tokens, length in zip(written, source, (5, 4, 2), strict=True):
            expected = by_hand(model, tokens[:length], 7)
            lengths.add(len(expected))
            filled = expected + [EOS] * (written.shape[1] - len(expected))
            assert row.tolist() == filled
    assert len(lengths) > 1


def test_it_stops_at_the_length_it_is_given(model: EncoderDecoder):
    source = torch.randint(3, V, (B, S))
    whole = translate(model, source, bos=BOS, eos=EOS)
    short = translate(model, source, bos=BOS, eos=EOS, max_length=1)
    assert torch.equal(short, whole[:, :1])
    assert not short.requires_grad


def test_the_encoder_runs_once(model: EncoderDecoder):
    calls = []
    model.encoder[0].register_forward_hook(lambda *_: calls.append(1))
    translate(model, torch.randint(3, V, (B, S)), bos=BOS, eos=EOS)
    assert len(calls) == 1


def test_a_length_that_does_not_fit_is_named(model: EncoderDecoder):
    source = torch.randint(3, V, (B, S))
    for max_length in (0, 8):
        with pytest.raises(
            ValueError,
            match=rf"^max_length={max_length} must lie between 1 and max_seq_len=7$",
        ):
            translate(model, source, bos=BOS, eos=EOS, max_length=max_length)


def test_what_a_model_says_after_the_end_is_not_kept(
    model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch
):
    script = torch.tensor([[EOS, 5, 6], [7, EOS, 8], [9, 10, EOS]])
    steps = iter(script.unbind(dim=1))

    def decode(target: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return torch.nn.functional.one_hot(next(steps), V)[:, None].double()

    monkeypatch.setattr(model, "decode", decode)
    written = translate(model, torch.randint(3, V, (B, S)), bos=BOS, eos=EOS)
    assert written.tolist() == [[EOS, EOS, EOS], [7, EOS, EOS], [9, 10, EOS]]
