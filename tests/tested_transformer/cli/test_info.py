from importlib.metadata import version

import torch

from tested_transformer.checkpoints import load_checkpoint, save_checkpoint
from tested_transformer.cli import info as module


def test_a_machine_says_what_it_offers(command):
    told = command("info", "--json").json
    assert told["torch"] == torch.__version__
    assert told["would_train_on"] in told["devices"] or told["would_train_on"] == "cuda"
    assert told["in"].split()[0] in ("fp32", "bf16", "fp16")
    assert told["threads"] == 1
    assert told["instructions"].split()[0] == torch.backends.cpu.get_cpu_capability()
    lines = command("info").out.splitlines()
    assert len(lines) == len(told)
    assert any(line.split() == ["torch", torch.__version__] for line in lines)


def test_what_a_machine_lacks_is_left_out(command, monkeypatch):
    monkeypatch.setattr(module, "_PACKAGES", ("rich", "no_such_package"))
    # Older releases of PyTorch cannot list instructions.
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    monkeypatch.setattr(module.training, "choose_precision", lambda _: "fp32")
    told = command("info", "--json").json
    assert told["packages"] == {"rich": version("rich")}
    assert told["instructions"] == torch.backends.cpu.get_cpu_capability()


def test_a_run_says_what_it_is(trained_here, text, command):
    told = command("info", str(trained_here), "--json").json
    model = load_checkpoint(trained_here).model()
    assert told["parameters"] == told["active"] == model.num_parameters()
    assert told["bytes"] == sum(file.stat().st_size for file in trained_here.iterdir())
    assert (told["step"], told["tokenizer"]) == (6, "17 characters")
    assert told["text"]["name"] == str(text)
    assert told["held_out_loss"] > 0
    assert abs(told["honest_loss"] - told["one_pass_loss"]) < 1e-5
    shown = command("info", str(trained_here)).out
    assert ["step", "6"] in [line.split() for line in shown.splitlines()]
    assert "d_model 12, num_heads 3, num_layers 2, attention softmax" in shown


def test_a_run_that_only_began_has_no_loss(trained, command, refused):
    checkpoint = load_checkpoint(trained)
    save_checkpoint("alone", config=checkpoint.config, weights=checkpoint.weights)
    told = command("info", "alone", "--json").json
    assert {"step", "loss", "text", "tokenizer"} & told.keys() == set()
    assert refused("info", "nowhere") == "there is no folder 'nowhere'"
