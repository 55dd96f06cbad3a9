"""Loading: what was saved comes back to the bit, and all else is refused by name."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tested_transformer.attentions import AdjustedSoftmax
from tested_transformer.checkpoints import (
    CheckpointError,
    has_checkpoint,
    load_checkpoint,
    loading,
    save_checkpoint,
    saving,
)
from tested_transformer.checkpoints.configs import describe_config
from tested_transformer.gpt import GPT, GPTConfig

CONFIG = GPTConfig(vocab_size=11, max_seq_len=5, d_model=6, num_heads=3, num_layers=2)
SETTINGS = {"recipe": {"lr": 0.1, "steps": 7}, "tokenizer": {"characters": "abc" * 30}}
TRAINING = {"step": torch.tensor(3.0), "mean": torch.arange(10.0).view(2, 5)}


def save(folder: Path, model: GPT, **changes: object) -> None:
    save_checkpoint(
        folder,
        **{
            "config": model.config,
            "weights": model.state_dict(),
            "settings": SETTINGS,
            "training": (TRAINING, {"step": 3}),
            **changes,
        },
    )


def file_of(folder: Path, kind: str) -> Path:
    (file,) = folder.glob(f"{kind}-*.safetensors")
    return file


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        (torch.float32, {"positions": "alibi", "smear": True, "num_experts": 2}),
        (
            torch.bfloat16,
            {"positions": "rotary", "norm": "rms", "tie_head": False}
            | {"num_kv_heads": 1},
        ),
    ],
)
def test_the_model_comes_back_to_the_bit(tmp_path, dtype, changes):
    model = GPT(replace(CONFIG, **changes)).to(dtype)
    save(tmp_path, model)
    state = torch.get_rng_state()
    loaded = load_checkpoint(tmp_path).model()
    assert torch.equal(torch.get_rng_state(), state)
    assert loaded.config == model.config
    assert loaded.training
    tokens = torch.randint(CONFIG.vocab_size, (2, 4))
    for gpt in (model, loaded):
        gpt(tokens).float().square().mean().backward()
    assert torch.equal(loaded(tokens), model(tokens))
    expected = dict(model.named_parameters())
    assert [name for name, _ in loaded.named_parameters()] == [*expected]
    for name, parameter in loaded.named_parameters():
        assert parameter.dtype == dtype
        assert parameter.is_contiguous()
        bits = parameter.view(torch.uint8)
        assert torch.equal(bits, expected[name].view(torch.uint8))
        assert torch.equal(parameter.grad, expected[name].grad)
    for name, table in model.named_buffers():
        assert loaded.get_buffer(name).dtype == table.dtype


def test_all_of_it_comes_back(tmp_path):
    assert not has_checkpoint(tmp_path)
    save(tmp_path, GPT(CONFIG))
    assert has_checkpoint(tmp_path)
    loaded = load_checkpoint(str(tmp_path))
    assert (loaded.folder, loaded.config) == (tmp_path, CONFIG)
    assert loaded.settings == SETTINGS
    tensors, values = loaded.training
    assert values == {"step": 3}
    assert tensors.keys() == TRAINING.keys()
    assert all(torch.equal(tensors[name], TRAINING[name]) for name in tensors)
    # What is not wanted is not read.
    file_of(tmp_path, "training").write_bytes(b"")
    loaded = load_checkpoint(tmp_path, training=False)
    assert loaded.training is None
    assert loaded.model().config == CONFIG


def test_names_from_before_attention_had_a_core_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "check_fit", lambda *names: None)
    model = GPT(replace(CONFIG, attention=AdjustedSoftmax(learned_sink=True)))
    torch.nn.init.normal_(model.blocks[1].attention.core.sink)
    weights = {name.replace(".core.", "."): w for name, w in model.state_dict().items()}
    means = {f"optimizer/{name}/exp_avg": weight for name, weight in weights.items()}
    training = (means, {"step": 3})
    save(tmp_path, model, weights=weights, training=training)
    checkpoint = load_checkpoint(tmp_path)
    tokens = torch.randint(CONFIG.vocab_size, (2, 4))
    assert torch.equal(checkpoint.model()(tokens), model(tokens))
    assert checkpoint.training is not None
    loaded = {name.split("/")[1] for name in checkpoint.training[0]}
    assert loaded == set(model.state_dict())


def test_a_model_in_training_does_not_change_what_was_loaded(tmp_path):
    save(tmp_path, GPT(CONFIG))
    checkpoint = load_checkpoint(tmp_path)
    first = checkpoint.model()
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.fill_(5.0)
    second = checkpoint.model()
    assert second.token_embedding.weight.max() < 1.0
    for tensor in [*checkpoint.weights.values(), *checkpoint.training[0].values()]:
        tensor.fill_(5.0)
    load_checkpoint(tmp_path)  # compares the files with what was written


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path, tmp_path / "gone", tmp_path / "file"):
        message = f"^{folder} holds no checkpoint: there is no checkpoint.json$"
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(folder)


def test_a_file_that_is_not_what_was_written_is_named(tmp_path):
    save(tmp_path, GPT(CONFIG))
    for kind in ("model", "training"):
        path = file_of(tmp_path, kind)
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(CheckpointError, match=f"^{path} was altered: its sha256 "):
            load_checkpoint(tmp_path)
        path.unlink()
        with pytest.raises(CheckpointError, match=f"^{path} is missing$"):
            load_checkpoint(tmp_path)
        path.write_bytes(data)
    path = tmp_path / "checkpoint.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=f"^{path} is cut short or not JSON$"):
        load_checkpoint(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path):
    model = GPT(CONFIG)
    weights = model.state_dict()
    weights["norm.weight"] = torch.ones(7)
    weights["more"] = weights.pop("norm.bias")
    save(tmp_path, model)
    checkpoint = load_checkpoint(tmp_path)
    for others, message in (
        (
            weights,
            "norm.bias is missing; more is unknown; norm.weight is (7,), not (6,)",
        ),
        (
            {"a": torch.ones(24), "b": torch.ones(1)},
            "token_embedding.weight is missing; position_embedding.weight is missing; "
            "blocks.0.attention_norm.weight is missing; and 35 more",
        ),
    ):
        message = re.escape(f"the weights that its settings require: {message}")
        with pytest.raises(CheckpointError, match=f"{message}$"):
            replace(checkpoint, weights=others).model()


# Asked to go on with other settings.


def test_all_that_differs_is_named(tmp_path):
    save(tmp_path, GPT(CONFIG))
    checkpoint = load_checkpoint(tmp_path)
    checkpoint.require({**SETTINGS, "config": describe_config(CONFIG)})
    checkpoint.require({"recipe": {"lr": 0.1}})
    changed = replace(CONFIG, d_model=12, positions="rotary")
    with pytest.raises(CheckpointError) as refused:
        checkpoint.require(
            {
                "config": describe_config(changed),
                "recipe": {"lr": 0.2, "steps": 7, "clip": 1.0},
                "tokenizer": {"characters": "abd" * 30},
                "text": "shakespeare",
            }
        )
    assert str(refused.value) == (
        f"{tmp_path} was saved with config.d_model=6, not 12; "
        "config.positions='learned', not 'rotary'; recipe.lr=0.1, not 0.2; "
        "no recipe.clip, not 1.0; "
        "tokenizer.characters='abcabcabcabc...cabcabcabcabc', not "
        "'abdabdabdabd...dabdabdabdabd'; no text, not 'shakespeare'"
    )


# Read while another process saves.


def test_a_checkpoint_that_is_exchanged_meanwhile_is_read_anew(tmp_path, monkeypatch):
    model = GPT(CONFIG)
    for moment in (loading.check_file, loading.TensorFiles):
        with monkeypatch.context() as patch:
            times = [2, 1]
            save(tmp_path, model, settings={"number": 0})

            def slow(*args, times=times, moment=moment):
                # Twice, as this is about to look, what it looks for is removed.
                if times:
                    model.token_embedding.weight.data += 1.0
                    save(tmp_path, model, settings={"number": times.pop()})
                return moment(*args)

            patch.setattr(loading, moment.__name__, slow)
            loaded = load_checkpoint(tmp_path)
        assert times == []
        assert loaded.settings == {"number": 2}
        expected = model.token_embedding.weight
        assert torch.equal(loaded.weights["token_embedding.weight"], expected)
