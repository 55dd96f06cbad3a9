"""An exported folder does in transformers what the model does here."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.checkpoints import CheckpointError, load_pretrained
from tested_transformer.checkpoints.exporting import export_model
from tested_transformer.data import (
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    bpe_tokenizer,
)
from tested_transformer.decoding import Sampling, generate
from tested_transformer.gpt import GPT, GPTConfig

TEXT = "to be, or not to be:\nthat is the question; größer, süß 😀.\n" * 3
TOKENIZERS: dict[str, Tokenizer] = {
    "characters": CharTokenizer.from_text(TEXT),
    "words": WordTokenizer.from_text(TEXT),
    "byte pairs": bpe_tokenizer(TEXT, 270),
}
LLAMA = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False}
SETTINGS = {
    "llama": {**LLAMA, "d_ff": 20, "num_kv_heads": 1},
    "qwen3": {**LLAMA, "d_ff": 20, "num_kv_heads": 1, "qk_norm": "heads"},
    "gpt2": {},
}
FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def model_like(family: str, tokenizer: Tokenizer) -> GPT:
    torch.manual_seed(1)
    sizes = {"d_model": 12, "num_heads": 3, "num_layers": 2, "max_seq_len": 31}
    settings = {"vocab_size": tokenizer.vocab_size, **sizes, **SETTINGS[family]}
    return with_large_weights(GPT(GPTConfig(**settings))).eval()


def export(folder: Path, family: str = "gpt2", **how: Any) -> str:
    tokenizer = TOKENIZERS["words"]
    return export_model(folder, model_like(family, tokenizer), tokenizer, **how)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("llama", "characters"), ("qwen3", "words"), ("gpt2", "byte pairs")],
)
def test_transformers_writes_the_same_text(family, kind, tmp_path):
    tokenizer, folder = TOKENIZERS[kind], tmp_path / "a" / "model"
    model = model_like(family, tokenizer)
    assert export_model(folder, model, tokenizer) == family
    assert sorted(file.name for file in folder.iterdir()) == FILES
    assert [*folder.parent.iterdir()] == [folder]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    pieces = transformers.AutoTokenizer.from_pretrained(folder)
    prompt = "to be: größer 😀,\nnot"
    ids = pieces(prompt)["input_ids"]
    assert ids == tokenizer.encode(prompt)
    how = {"max_new_tokens": 31 - len(ids)}
    (answer,) = theirs.generate(torch.tensor([ids]), do_sample=False, **how).tolist()
    greedy = Sampling(temperature=0.0)
    assert answer == ids + generate(model, [ids], sampling=greedy, **how)[0]
    assert pieces.decode(answer) == tokenizer.decode(answer)
    again = load_pretrained(folder).state_dict()
    torch.testing.assert_close(again, model.state_dict(), rtol=0, atol=0)


def test_tokens_that_end_a_text_are_named(tmp_path):
    for ends, written in (((), None), ((3,), 3), ((3, 5), [3, 5])):
        export(tmp_path / "m", end_tokens=ends, overwrite=True)
        config = transformers.AutoConfig.from_pretrained(tmp_path / "m")
        assert (config.eos_token_id, config.bos_token_id) == (written, None)


def test_what_families_lack_is_named(tmp_path):
    tokenizer = TOKENIZERS["words"]
    sizes = {"vocab_size": tokenizer.vocab_size, "d_model": 12, "num_heads": 3}
    model = GPT(GPTConfig(positions="alibi", **sizes))
    lacks = "has no positions='alibi', activation='gelu', norm='layer', "
    lacks += "bias=True, qkv_bias=True"
    for family, message in (
        (
            None,
            f"the model fits no family: LlamaForCausalLM {lacks}; Qwen3ForCausalLM "
            f"{lacks}, qk_norm=False; GPT2LMHeadModel has no positions='alibi'. Train ",
        ),
        ("gpt2", "GPT2LMHeadModel has no positions='alibi'"),
        ("bert", "family='bert' must be one of gpt2, llama"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            export_model(tmp_path / "m", model, tokenizer, family=family)
    assert [*tmp_path.iterdir()] == []


def test_only_an_exported_model_is_replaced(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    export(folder)
    with pytest.raises(CheckpointError, match="already holds a model"):
        export(folder)
    export(folder, "llama", overwrite=True)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    assert [*tmp_path.iterdir()] == [folder]
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds notes.txt, which is not of an"):
        export(folder, overwrite=True)
    with pytest.raises(CheckpointError, match=r"notes.txt is a file: name a folder$"):
        export(folder / "notes.txt", overwrite=True)


@pytest.mark.parametrize("file", FILES[1:3])
def test_a_failure_leaves_the_old_model(file, tmp_path, monkeypatch):
    folder = tmp_path / "m"
    export(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(path, mode):
        if Path(path).name == file:
            raise OSError(28, "No space left on device", str(path))
        return open(path, mode)

    for module in ("exporting", "saving"):
        name = f"tested_transformer.checkpoints.{module}.open"
        monkeypatch.setattr(name, full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        export(folder, "llama", overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [*tmp_path.iterdir()] == [folder]
