"""An exported folder does in transformers what the model does here."""

import json
from pathlib import Path

import pytest
import torch
import transformers

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
LLAMA = {
    "positions": "rotary",
    "norm": "rms",
    "activation": "swiglu",
    "bias": False,
    "d_ff": 20,
    "num_kv_heads": 1,
}
SETTINGS = {
    "llama": LLAMA,
    "qwen3": {**LLAMA, "qk_norm": "heads"},
    "gpt2": {},
    "gemma2": {**LLAMA, "activation": "geglu_tanh", "norm_place": "both"}
    | {"embedding_scale": 12**0.5, "windows": (3, None)},
}
FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def model_like(family: str, vocab_size: int) -> GPT:
    torch.manual_seed(1)
    sizes = {"vocab_size": vocab_size, "d_model": 12, "num_heads": 3, "num_layers": 2}
    model = GPT(GPTConfig(max_seq_len=31, **sizes, **SETTINGS[family])).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return model


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llama", "characters"),
        ("qwen3", "words"),
        ("gpt2", "byte pairs"),
        ("gemma2", "characters"),
    ],
)
def test_transformers_writes_the_same_text(family, kind, tmp_path):
    tokenizer, folder = TOKENIZERS[kind], tmp_path / "a" / "model"
    model = model_like(family, tokenizer.vocab_size)
    assert export_model(folder, model, tokenizer) == family
    assert sorted(file.name for file in folder.iterdir()) == FILES
    assert [*folder.parent.iterdir()] == [folder]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    pieces = transformers.AutoTokenizer.from_pretrained(folder)
    prompt = "to be: größer 😀,\nnot"
    ids = pieces(prompt)["input_ids"]
    assert ids == tokenizer.encode(prompt)
    count = 31 - len(ids)
    answer = theirs.generate(
        torch.tensor([ids]), max_new_tokens=count, do_sample=False
    )[0].tolist()
    [written] = generate(
        model, [ids], max_new_tokens=count, sampling=Sampling(temperature=0.0)
    )
    assert answer == ids + written
    assert pieces.decode(answer) == tokenizer.decode(answer)
    again = load_pretrained(folder)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight)


def test_tokens_that_end_a_text_are_named(tmp_path):
    tokenizer = TOKENIZERS["words"]
    model = model_like("gpt2", tokenizer.vocab_size)
    for ends, said in (((), None), ((3,), 3), ((3, 5), [3, 5])):
        export_model(tmp_path / "m", model, tokenizer, end_tokens=ends, overwrite=True)
        config = transformers.AutoConfig.from_pretrained(tmp_path / "m")
        assert config.eos_token_id == said
        assert config.bos_token_id is None


def test_what_families_lack_is_named(tmp_path):
    tokenizer = TOKENIZERS["words"]
    config = GPTConfig(
        vocab_size=tokenizer.vocab_size, d_model=12, num_heads=3, positions="alibi"
    )
    with pytest.raises(ValueError, match="fits no family") as error:
        export_model(tmp_path / "m", GPT(config), tokenizer)
    assert str(error.value) == (
        "the model fits no family: LlamaForCausalLM has no positions='alibi', "
        "activation='gelu', norm='layer', bias=True, qkv_bias=True; Qwen3ForCausalLM "
        "has no positions='alibi', activation='gelu', norm='layer', bias=True, "
        "qkv_bias=True, qk_norm=False; GPT2LMHeadModel has no positions='alibi'. Train "
        "one with tested-transformer train --like llama, or --recipe plain for a GPT-2"
    )
    with pytest.raises(ValueError, match=r"^GPT2LMHeadModel has no positions='alibi'$"):
        export_model(tmp_path / "m", GPT(config), tokenizer, family="gpt2")
    with pytest.raises(ValueError, match=r"^family='bert' must be one of gpt2, llama"):
        export_model(tmp_path / "m", GPT(config), tokenizer, family="bert")
    assert [*tmp_path.iterdir()] == []


def test_only_an_exported_model_is_replaced(tmp_path):
    tokenizer, folder = TOKENIZERS["words"], tmp_path / "m"
    model = model_like("gpt2", tokenizer.vocab_size)
    folder.mkdir()
    export_model(folder, model, tokenizer)
    with pytest.raises(CheckpointError, match="already holds a model"):
        export_model(folder, model, tokenizer)
    other = model_like("llama", tokenizer.vocab_size)
    export_model(folder, other, tokenizer, overwrite=True)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    assert [*tmp_path.iterdir()] == [folder]
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds notes.txt, which is not of an"):
        export_model(folder, model, tokenizer, overwrite=True)
    with pytest.raises(CheckpointError, match=r"notes.txt is a file: name a folder$"):
        export_model(folder / "notes.txt", model, tokenizer, overwrite=True)


@pytest.mark.parametrize("file", FILES[1:3])
def test_a_failure_leaves_the_old_model(file, tmp_path, monkeypatch):
    tokenizer, folder = TOKENIZERS["words"], tmp_path / "m"
    model = model_like("gpt2", tokenizer.vocab_size)
    export_model(folder, model, tokenizer)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}

    def full(path, mode):
        if Path(path).name == file:
            raise OSError(28, "No space left on device", str(path))
        return open(path, mode)

    for module in ("exporting", "saving"):
        name = f"tested_transformer.checkpoints.{module}.open"
        monkeypatch.setattr(name, full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        export_model(
            folder, model_like("llama", tokenizer.vocab_size), tokenizer, overwrite=True
        )
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before
    assert [*tmp_path.iterdir()] == [folder]
