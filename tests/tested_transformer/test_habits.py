"""A call in another library's manner is answered with the line to write here."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tested_transformer import (
    GPT,
    GPTConfig,
    MultiHeadAttention,
    check_attention,
    generate,
)
from tested_transformer.checkpoints import load_pretrained
from tested_transformer.decoding import Sampling
from tested_transformer.training import (
    Recipe,
    honest_loss,
    train,
)

LAYER = MultiHeadAttention(d_model=12, num_heads=3)


@pytest.mark.parametrize(
    ("sizes", "settings", "written"),
    [
        ((512, 8), {}, "d_model=512, num_heads=8"),
        ((), {"d_model": 512, "nhead": 8}, "d_model=512, num_heads=8"),
        (
            (512, 8, 0.1, False),
            {"batch_first": True},
            "d_model=512, num_heads=8, dropout=0.1, bias=False",
        ),
        (
            (512, 8),
            {"kdim": 64, "vdim": 64, "dtype": torch.half},
            "d_model=512, num_heads=8, d_context=64, dtype=dtype",
        ),
        ((), {"num_heads": 2, "key_dim": 4}, "num_heads=2, d_model=num_heads * 4"),
    ],
)
def test_settings_of_other_layers_are_answered_with_ours(sizes, settings, written: str):
    with pytest.raises(TypeError) as caught:
        MultiHeadAttention(*sizes, **settings)
    assert str(caught.value) == (
        "MultiHeadAttention takes keyword arguments: "
        f"write MultiHeadAttention({written})"
    )


X, Y, PAD = torch.ones(2, 5, 12), torch.ones(2, 7, 12), torch.zeros(2, 5).bool()


@pytest.mark.parametrize(
    ("sequences", "options", "written"),
    [
        ((X, X, X), {}, "x"),
        ((X, PAD), {}, "x, mask=mask"),
        ((X, X, Y, PAD), {}, "x, context=keys, mask=mask"),
        (
            (X, X, X),
            {"key_padding_mask": PAD, "need_weights": False},
            "x, mask=token_mask(~key_padding_mask), return_weights=False",
        ),
        ((X,), {"attention_mask": PAD}, "x, mask=token_mask(attention_mask)"),
        (
            (X,),
            {"attention_mask": torch.zeros(2, 1, 5, 5)},
            "x, mask=from_additive(attention_mask)",
        ),
        (
            (),
            {"query": X, "key": Y, "value": Y, "average_attn_weights": False},
            "x, context=key",
        ),
        ((X,), {"use_causal_mask": True}, "x, causal=True"),
    ],
)
def test_calls_of_other_layers_are_answered_with_ours(sequences, options, written: str):
    with pytest.raises(TypeError) as caught:
        LAYER(*sequences, **options)
    assert str(caught.value) == (
        "MultiHeadAttention takes one sequence x, and for cross-attention a context: "
        f"write layer({written})"
    )


def test_a_mask_the_other_way_round_is_answered_with_the_convention():
    with pytest.raises(TypeError) as caught:
        LAYER(X, attn_mask=PAD, is_causal=True)
    assert str(caught.value).endswith(
        "write layer(x, mask=~attn_mask, causal=True); in a mask True = may attend, "
        "and from_additive converts a mask of floats"
    )


def test_what_nobody_knows_is_pythons_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        MultiHeadAttention(d_model=12, num_heads=3, colour=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        LAYER(X, colour=3)


def config(**changes: Any) -> GPTConfig:
    sizes = {"vocab_size": 11, "max_seq_len": 8, "d_model": 12, "num_heads": 3}
    return GPTConfig(**sizes, num_layers=1, **changes)


MODEL, TOKENS = GPT(config()), torch.randint(11, (50,))
LINE = TOKENS[None, :3]
RECIPE = Recipe(steps=2, warmup=0, batch_size=2, precision="fp32")


def write(**options: Any) -> list[list[int]]:
    return generate(MODEL, [[1]], **{"max_new_tokens": 2, **options})


def at(*positions: int) -> Any:
    return MODEL(LINE, positions=torch.tensor([positions]))


CALLS: dict[str, Callable[[], Any]] = {
    "GPTConfig has no setting 'n_embd': write d_model=8": lambda: config(n_embd=8),
    "bias='no' must be True or False": lambda: config(bias="no"),
    "num_experts=2.5 must be an int": lambda: config(num_experts=2.5),
    "Recipe has no setting 'max_iters': write steps=9": lambda: Recipe(max_iters=9),
    "steps=20.5 must be an int": lambda: Recipe(steps=20.5),
    "lr='1e-3' must be a number": lambda: Recipe(lr="1e-3"),
    "top_k=1.5 must be an int": lambda: Sampling(top_k=1.5),
    "must be a Sampling(...); it is a dict": lambda: write(sampling={}),
    "tokens must be token ids; their dtype is torch.float32": lambda: train(
        MODEL, TOKENS.float(), RECIPE
    ),
    "it is a str: write torch.tensor(tokenizer.encode(text))": lambda: train(
        MODEL, "hello", RECIPE
    ),
    "validation must be one text, (N); their shape is (2, 25)": lambda: train(
        MODEL, TOKENS, RECIPE, validation=TOKENS.view(2, 25)
    ),
    "shape is (2, 25): write tokens.flatten()": lambda: honest_loss(
        MODEL, TOKENS.view(2, 25)
    ),
    "write torch.tensor(tokens)": lambda: MODEL([[1, 2]]),
    "write torch.tensor([ids])": lambda: MODEL([1, 2]),
    "write next_token_loss(model(tokens), targets)": lambda: MODEL(LINE, LINE),
    "not a loss": lambda: MODEL(LINE, labels=LINE),
    "write model(input_ids)": lambda: MODEL(input_ids=LINE),
    "write mask=token_mask(attention_mask)": lambda: MODEL(
        LINE, attention_mask=torch.ones(1, 3)
    ),
    "positions go from -1 to 1; they must be at least 0": lambda: at(-1, 0, 1),
    "at least 0 and less than max_seq_len=8": lambda: at(0, 8, 1),
    "positions must be (1, 3); it is (1, 2)": lambda: at(0, 1),
    "causal='no' must be True or False": lambda: LAYER(X, causal="no"),
    "it is 'causal': write causal=True": lambda: LAYER(X, mask="causal"),
    "For ones and zeros, write mask=mask.bool()": lambda: LAYER(
        X, mask=torch.ones(5, 5).tril()
    ),
    "weights float32: write x.to(torch.float32)": lambda: LAYER(X.long()),
    "d_model=config.d_model": lambda: MultiHeadAttention(config()),
    "MultiHeadAttention is a class: make a layer of it": lambda: check_attention(
        MultiHeadAttention, d_model=12
    ),
}


@pytest.mark.usefixtures("as_a_caller")
@pytest.mark.parametrize("advice", CALLS)
def test_an_error_says_what_to_write(advice: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(advice)) as caught:
        CALLS[advice]()
    assert "\n" not in str(caught.value)


def test_what_is_right_is_not_refused() -> None:
    torch.testing.assert_close(at(0, 1, 2), MODEL(LINE))
    assert len(write(stop=[[3], (4, 5)])) == 1
    assert train(MODEL, TOKENS.to(torch.uint8), RECIPE, validation=TOKENS).step == 2


def test_a_file_is_no_model_to_download(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(b"weights")
    with pytest.raises(ValueError, match="is a file: name the folder of a model"):
        load_pretrained(file)


def test_what_a_run_returns_is_shown_in_one_line() -> None:
    state = train(MODEL, TOKENS, RECIPE)
    assert state.weights
    assert len(repr(state)) < 300
