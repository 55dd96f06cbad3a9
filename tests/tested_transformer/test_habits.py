"""What users of other libraries type gets one error, with what to write instead."""

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
from tested_transformer.generation import Sampling
from tested_transformer.training import Recipe, honest_loss, train

pytestmark = pytest.mark.usefixtures("as_a_caller")


def config(**changes: Any) -> GPTConfig:
    sizes = {"vocab_size": 11, "max_seq_len": 8, "d_model": 12, "num_heads": 3}
    return GPTConfig(**sizes, num_layers=1, **changes)


MODEL, TOKENS = GPT(config()), torch.randint(11, (50,))
LAYER, X = MultiHeadAttention(d_model=12, num_heads=3), torch.randn(2, 5, 12)
RECIPE = Recipe(steps=2, warmup=0, batch_size=2, precision="fp32")


def write(**options: Any) -> Callable[[], Any]:
    return lambda: generate(MODEL, [[1]], **{"max_new_tokens": 2, **options})


def at(*positions: int) -> Callable[[], Any]:
    return lambda: MODEL(TOKENS[None, :3], positions=torch.tensor([positions]))


CALLS: dict[str, Callable[[], Any]] = {
    "GPTConfig has no setting 'n_embd': write d_model=8": lambda: config(n_embd=8),
    "block_size=8 does not fit attention='softmax': leave it out, or for the longest "
    "sequence write max_seq_len": lambda: config(block_size=8),
    "bias='no' must be True or False": lambda: config(bias="no"),
    "num_experts=2.5 must be an int": lambda: config(num_experts=2.5),
    "Recipe has no setting 'learning_rate': write lr=0.1": lambda: Recipe(
        learning_rate=0.1
    ),
    "steps=20.5 must be an int": lambda: Recipe(steps=20.5),
    "lr='1e-3' must be a number": lambda: Recipe(lr="1e-3"),
    "top_k=1.5 must be an int": lambda: Sampling(top_k=1.5),
    "must be a Sampling(...); it is a dict": write(sampling={}),
    "'ab' is text: write stop=[tokenizer.encode(text)]": write(stop="ab"),
    "3 is one id: write stop=[[3]]": write(stop=[3]),
    "no argument 'eos_token_id': write stop=...": write(eos_token_id=3),
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
    "positions go from -1 to 1; they must be at least 0": at(-1, 0, 1),
    "positions go from 0 to 8; they must be at least 0 and less than max_seq_len=8": at(
        0, 8, 1
    ),
    "positions must have the shape of tokens, (1, 3)": at(0, 1),
    "it is 'causal': write causal=True": lambda: LAYER(X, mask="causal"),
    "For ones and zeros, write mask=mask.bool()": lambda: LAYER(
        X, mask=torch.ones(5, 5).tril()
    ),
    "weights float32: write x.to(torch.float32)": lambda: LAYER(X.long()),
    "write layer(x, causal=True)": lambda: LAYER(X, use_causal_mask=True),
    "d_model=config.d_model": lambda: MultiHeadAttention(config()),
    "write MultiHeadAttention(num_heads=2, d_model=num_heads * 4)": lambda: (
        MultiHeadAttention(num_heads=2, key_dim=4)
    ),
    "not its class: write MultiHeadAttention(...)": lambda: check_attention(
        MultiHeadAttention, d_model=12
    ),
}


@pytest.mark.parametrize("told", CALLS)
def test_an_error_says_what_to_write(told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(told)) as caught:
        CALLS[told]()
    assert "\n" not in str(caught.value)


def test_what_is_right_is_not_refused() -> None:
    given = MODEL(TOKENS[None, :3], positions=torch.tensor([[0, 1, 2]]))
    torch.testing.assert_close(given, MODEL(TOKENS[None, :3]))
    assert len(write(stop=[[3], (4, 5)])()) == 1
    assert train(MODEL, TOKENS.to(torch.uint8), RECIPE, validation=TOKENS).step == 2


def test_a_file_is_no_model_to_download(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(b"weights")
    with pytest.raises(ValueError, match="is a file: name the folder of a model"):
        GPT.from_pretrained(file)


def test_what_a_run_returns_is_shown_in_one_line() -> None:
    state = train(MODEL, TOKENS, RECIPE)
    assert state.weights
    assert len(repr(state)) < 300
