"""A setting that does not fit is named before anything is made of it."""

import pytest

from tested_transformer.encoder_decoder import EncoderDecoderConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 0}, r"^vocab_size=0 must be positive$"),
        ({"max_seq_len": 0}, r"^max_seq_len=0 must be positive$"),
        ({"num_encoder_layers": 0}, r"^num_encoder_layers=0 must be positive$"),
        ({"num_decoder_layers": -1}, r"^num_decoder_layers=-1 must be positive$"),
        ({"d_model": 9}, r"^d_model=9 must be positive and even$"),
        ({"d_model": 0}, r"^d_model=0 must be positive and even$"),
        (
            {"d_model": 10, "num_heads": 3},
            r"^d_model=10 must be divisible by num_heads=3$",
        ),
        ({"norm": "batch"}, r"^norm='batch' must be one of layer, rms$"),
        ({"activation": "tan"}, r"^activation='tan' must be one of gelu,"),
        ({"dropout": 1.5}, r"^dropout=1.5 must lie between 0 and 1$"),
        ({"d_ff": 0}, r"^d_model=128 and d_ff=0 must be positive$"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        EncoderDecoderConfig(**{"vocab_size": 11, **settings})
