"""The example trains and writes: on a text so small that a moment is enough."""

from pathlib import Path

import pytest
import torch
from examples.minigpt import Config, MiniGPT, Text, evaluate, main, train, write

RHYME = "this is the cat that killed the rat that ate the malt in the house. "


def tiny(text: Text) -> MiniGPT:
    sizes = {"max_seq_len": 12, "num_layers": 2, "num_heads": 3, "d_model": 30}
    return MiniGPT(Config(vocab_size=len(text.characters), **sizes))


@pytest.mark.parametrize("seed", range(3))
def test_it_learns(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(seed)
    text = Text(RHYME * 10)
    model = tiny(text)
    before = evaluate(model, text.held_out)
    losses = train(model, text, steps=40, batch_size=7, peak_rate=1e-2)
    assert len(losses) == 11
    assert losses[-1] < 0.6 * before
    assert losses[-1] == evaluate(model, text.held_out)
    assert capsys.readouterr().out.count("held-out loss") == 11


def test_the_cache_changes_nothing() -> None:
    """Before the window of 12 is full, and after."""
    text = Text(RHYME * 2)
    torch.manual_seed(0)
    model = tiny(text).double()
    for parameter in model.parameters():
        parameter.data *= 5  # else the last token alone decides what comes next
    for length, count in ((1, 29), (12, 2), (17, 5)):
        prompt = text.train[:length]
        torch.manual_seed(3)
        with_cache = write(model, prompt, count)
        torch.manual_seed(3)
        without = write(model, prompt, count, cached=False)
        assert with_cache.tolist() == without.tolist(), length
        assert with_cache[:length].tolist() == prompt.tolist()
        assert len(with_cache) == length + count
        # It goes on from as much of the prompt as it can see.
        torch.manual_seed(3)
        assert write(model, prompt[-12:], 1)[-1] == with_cache[length], length


def test_the_command_trains_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rhyme.txt").write_text(RHYME * 10)
    arguments = ["--text", str(tmp_path / "rhyme.txt"), "--device", "cpu"]
    main([*arguments, "--steps", "2", "--prompt", "the cat", "--count", "9"])
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "680 characters, 795,520 parameters, cpu"
    assert last.startswith("the cat")
    assert len(last) == len("the cat") + 9


def test_a_text_that_does_not_serve_is_refused() -> None:
    text = Text(RHYME)
    with pytest.raises(ValueError, match=r"^the model never read 'XY'$"):
        text.encode("the YX")
    with pytest.raises(ValueError, match="must have more than 120 characters to learn"):
        train(tiny(text), text)


def test_what_is_wrong_is_told_before_it_trains(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option, value, message in (
        ("--prompt", "", "--prompt must not be empty: the model continues it"),
        ("--prompt", "\a", "the model never read '\\x07'"),
        ("--text", "gone.txt", "No such file or directory: 'gone.txt'"),
    ):
        with pytest.raises(SystemExit):
            main([option, value, "--steps", "1"])
        out, err = capsys.readouterr()
        assert out == ""
        assert err.endswith(f"{message}\n")
