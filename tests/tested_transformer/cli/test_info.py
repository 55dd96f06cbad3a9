from importlib.metadata import version

import torch

from tested_transformer.checkpoints import load_checkpoint, save_checkpoint
from tested_transformer.cli import info as module


def test_a_machine_says_what_it_offers(command):
    report = command("info", "--json").json
    assert report["torch"] == torch.__version__
    assert (
        report["would_train_on"] in report["devices"]
        or report["would_train_on"] == "cuda"
    )
    assert report["in"].split()[0] in ("fp32", "bf16", "fp16")
    assert report["threads"] == 1
    assert report["instructions"].split()[0] == torch.backends.cpu.get_cpu_capability()
    lines = command("info").out.splitlines()
    assert len(lines) == len(report)
    assert any(line.split() == ["torch", torch.__version__] for line in lines)


def test_what_a_machine_lacks_is_left_out(command, monkeypatch):
    monkeypatch.setattr(module, "_PACKAGES", ("rich", "no_such_package"))
    # Older releases of PyTorch cannot list instructions.
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    monkeypatch.setattr(module.training, "choose_precision", lambda _: "fp32")
    report = command("info", "--json").json
    assert report["packages"] == {"rich": version("rich")}
    assert report["instructions"] == torch.backends.cpu.get_cpu_capability()


def test_a_run_says_what_it_is(trained_here, text, command):
    report = command("info", str(trained_here), "--json").json
    model = load_checkpoint(trained_here).model()
    assert report["parameters"] == report["active"] == model.num_parameters()
    assert report["bytes"] == sum(
        file.stat().st_size for file in trained_here.iterdir()
    )
    assert (report["step"], report["tokenizer"]) == (6, "17 characters")
    assert report["text"]["name"] == str(text)
    assert report["held_out_loss"] > 0
    assert abs(report["honest_loss"] - report["one_pass_loss"]) < 1e-5
    shown = command("info", str(trained_here)).out
    assert ["step", "6"] in [line.split() for line in shown.splitlines()]
    assert "d_model 12, num_heads 3, num_layers 2, attention softmax" in shown


def test_a_run_that_only_began_has_no_loss(trained, command, refused):
    checkpoint = load_checkpoint(trained)
    save_checkpoint("alone", config=checkpoint.config, weights=checkpoint.weights)
    report = command("info", "alone", "--json").json
    assert {"step", "loss", "text", "tokenizer"} & report.keys() == set()
    assert refused("info", "nowhere") == "there is no folder 'nowhere'"
