"""What the benchmarks compute from what they measured, and what they refuse."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import __main__ as command_line, gpu
from benchmarks.contenders import SMALL, Size, continued, formula
from benchmarks.cost import counted_operations
from benchmarks.gpu import NOT_MEASURED, Setting, measure_gpu, run_part, seconds
from benchmarks.measuring import Times, in_turns, peak_memory, slope
from benchmarks.nanogpt import documented_seconds
from benchmarks.ours import FAST, Ours, scatter
from benchmarks.race import whole_loss
from benchmarks.training_step import batches_of, training_step
from benchmarks.worth import CHOICES, conclude
from torch import Tensor

from tested_transformer.gpt import GPTConfig
from tested_transformer.training import Recipe

TINY = Size(vocab_size=7, context=5, width=8, heads=2, layers=3, batch=2)


def test_the_median_is_that_of_all_calls() -> None:
    times = Times.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert times == Times(3.0, 1.0, 2.0, 4.0, 5)
    assert Times.of([7.0]) == Times(7.0, 7.0, 7.0, 7.0, 1)
    assert times.to_json() == {
        "median_ms": 3000.0,
        "fastest_ms": 1000.0,
        "lower_quartile_ms": 2000.0,
        "upper_quartile_ms": 4000.0,
        "count": 5,
    }
    with pytest.raises(ValueError, match="seconds is empty: nothing was measured"):
        Times.of([])


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    clock = iter(range(100))
    times = in_turns(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")},
        rounds=2,
        calls=3,
        warm_up=1,
        clock=lambda: next(clock),
    )
    assert "".join(calls) == "ab" + "aaabbb" * 2
    assert times == dict.fromkeys("ab", Times(1, 1, 1, 1, 6))


def test_a_slope_is_the_power_of_growth() -> None:
    assert slope([2, 3, 5], [4, 9, 25]) == pytest.approx(2)
    assert slope([2, 3, 5], [14, 21, 35]) == pytest.approx(1)
    with pytest.raises(ValueError, match="a slope needs two points, not 1"):
        slope([2], [4])


@pytest.mark.nightly
def test_peak_memory_is_that_of_the_call() -> None:
    def call() -> None:
        torch.ones(64 * 2**20, dtype=torch.uint8)

    if not Path("/proc/self/clear_refs").exists():
        with pytest.raises(OSError, match="clear_refs"):
            peak_memory(call)
        return
    # In a process of its own: memory that other tests gave back would be used again.
    code = (
        "import torch; from benchmarks.measuring import peak_memory\n"
        "call = lambda: torch.ones(64 * 2**20, dtype=torch.uint8)\n"
        "print(peak_memory(call), peak_memory(lambda: None))"
    )
    command = [sys.executable, "-c", code]
    root = Path(__file__).parents[2]
    printed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    peak, nothing = map(int, printed.split())
    assert 60 * 2**20 < peak < 80 * 2**20
    assert nothing < 4 * 2**20


def test_beyond_the_context_the_last_half_is_read_anew() -> None:
    read: list[tuple[list[int], int]] = []

    def generate(tokens: list[int], room: int) -> list[int]:
        read.append((tokens, room))
        return [tokens[-1] + 1 + i for i in range(room)]

    assert continued(generate, [0, 1], 9, 6) == list(range(2, 11))
    assert read == [([0, 1], 4), ([3, 4, 5], 3), ([6, 7, 8], 2)]


def test_operations_are_counted_as_the_formula_says() -> None:
    tokens = torch.randint(7, (50,))
    assert counted_operations(TINY, tokens) == formula(TINY)
    # By hand: 10 tokens; 3 layers of 12 * 64 numbers, 7 * 8 in the head.
    matrices = 3 * 12 * 64 + 56
    assert formula(TINY) == 3 * 10 * (2 * matrices + 3 * 4 * 5 * 8)


def test_ours_has_as_many_parameters_as_nanogpt() -> None:
    # 65 tokens and 64 positions, 4 blocks of 12 matrices and 2 norms, 1 norm.
    expected = (65 + 64) * 128 + 4 * (12 * 128**2 + 2 * 128) + 128
    assert Ours().model(SMALL).num_parameters() == expected == 804_096


def test_batches_are_windows_and_the_tokens_after_them() -> None:
    batches = batches_of(torch.arange(30), TINY, 3)
    assert len(batches) == 3
    for inputs, targets in batches:
        assert inputs.shape == targets.shape == (2, 5)
        assert torch.equal(inputs + 1, targets)
        assert (inputs.diff(dim=1) == 1).all()
    (shortest,) = batches_of(torch.arange(6), TINY, 1)
    assert torch.equal(shortest[0], torch.arange(5).expand(2, 5))


def test_a_training_step_trains() -> None:
    torch.manual_seed(0)
    contender, tokens = Ours(), torch.arange(7).repeat(9)
    step = training_step(
        contender, contender.model(TINY), batches_of(tokens, TINY, 4), fused=True
    )
    losses = [step() for _ in range(9)]
    assert losses[-1] < losses[0] - 0.03


def test_the_cache_must_not_change_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    contender = Ours()
    model = scatter(contender.model(TINY))
    assert contender.same_tokens(model, [3], 13)
    honest = Ours.generate

    def wrong(*given: Any, cached: bool, temperature: float) -> list[int]:
        tokens = honest(*given, cached=cached, temperature=temperature)
        return [*tokens[:-1], tokens[-1] ^ 1] if cached and not temperature else tokens

    monkeypatch.setattr(Ours, "generate", wrong)
    assert not contender.same_tokens(model, [3], 13)


def test_scattered_models_guess_unevenly_and_alike() -> None:
    options, tokens = {"zero_init": True, "tie_head": False}, torch.arange(5)[None]
    assert Ours(options).model(TINY)(tokens).abs().max() == 0
    torch.manual_seed(0)
    first = scatter(Ours(options).model(TINY))
    torch.manual_seed(0)
    second = scatter(Ours(options).model(TINY))
    assert first(tokens).std() > 0.01
    assert torch.equal(first(tokens), second(tokens))


def test_the_whole_loss_predicts_every_token_once() -> None:
    seen: list[tuple[int, ...]] = []

    def logits(x: Tensor) -> Tensor:
        seen.append(tuple(x.shape))
        # As sure as can be that 1 comes after 0 and 2 after 1; of the rest, nothing.
        return torch.eye(3).roll(1, dims=1)[x] * 100.0

    # 0 1 2 0 1 2 0 0: only the last token is a surprise, and costs 100.
    tokens = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])
    assert whole_loss(logits, tokens, context=3, batch=5) == pytest.approx(100 / 7)
    assert seen == [(2, 3), (1, 1)]


def test_nanogpts_own_times_are_read() -> None:
    printed = "number of parameters: 0.80M\nstep 0: train loss 4.2, val loss 4.2\n"
    for i in range(252):
        took = 900.0 if i in (0, 250) else 20.0 if i < 126 else 40.0
        printed += f"iter {i}: loss 3.1000, time {took:.2f}ms, mfu 0.10%\n"
    # 250 plain steps, half of them 20 ms; two that evaluate count as a median one.
    total, median = documented_seconds(printed, steps=252)
    assert median == pytest.approx(0.030)
    assert total == pytest.approx(125 * 0.020 + 125 * 0.040 + 2 * 0.030)
    with pytest.raises(ValueError, match="printed no time for step 252 of 300"):
        documented_seconds(printed, steps=300)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["train"], "--shakespeare must be given: a path to tiny Shakespeare"),
        (["train", "--threads=0"], "--threads=0 must be positive"),
        (["train", "--nanogpt=."], ". is no checkout of nanoGPT: it has no model.py"),
        (["cost", "--out=a/b.json"], "--out=a/b.json: there is no such folder"),
    ],
)
def test_bad_arguments_are_one_line_and_status_2(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    with pytest.raises(SystemExit) as ended:
        command_line.main(arguments)
    torch.set_num_threads(before)
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"python -m benchmarks: error: {complaint}"


def test_without_a_gpu_it_says_not_measured(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    text = tmp_path / "text.txt"
    text.write_text("".join(chr(40 + i) for i in range(65)) * 3)
    out = tmp_path / "gpu.json"
    before = torch.get_num_threads()
    command_line.main(["gpu", f"--shakespeare={text}", f"--out={out}"])
    torch.set_num_threads(before)
    report = json.loads(out.read_text())
    assert report["results"] == NOT_MEASURED
    assert report["stamp"]["peers"]["nanoGPT"] == "not measured"
    assert NOT_MEASURED in capsys.readouterr().out


@pytest.mark.nightly
def test_the_parts_for_a_gpu_run_anywhere(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat that ate the rat that ate the malt. " * 50)
    setting = Setting("cpu", quick=True, text=str(text))
    report = {name: {"error": "not measured"} for name in gpu.PARTS}
    for name in ("device", "training", "decoding", "attention", "shakespeare"):
        report[name] = gpu.PARTS[name](setting)
    assert report["attention"]["lengths"] == [64, 128]
    losses = [each["loss"] for each in report["shakespeare"]["losses"]]
    assert losses[-1] < losses[0]
    assert gpu.PARTS["nanogpt"](setting) == "not measured: --nanogpt was not given"
    report["transformers"] = {"tokens_per_second": 1.0}
    report["nanogpt"] = {"best_loss": losses[-1], "seconds_to_best": 900.0}
    found = gpu.together(report)
    assert 0 < found["part_of_matrix_peak"] < 1
    assert found["decoding_over_transformers"] == pytest.approx(
        report["decoding"]["tokens_per_second"], rel=0.01
    )
    assert found["shakespeare"]["target_loss"] == losses[-1]
    assert found["shakespeare"]["nanogpt_over_ours"] > 1
    assert "shakespeare_rotary" not in found
    calls: list[int] = []
    assert seconds(lambda: calls.append(1), "cpu", rounds=4) < 1
    assert len(calls) == 5


def test_a_part_that_fails_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = Setting("cpu", text="/there/is/no/such.txt")
    monkeypatch.setattr(gpu, "PARTS", dict.fromkeys(["shakespeare", "device"]))
    monkeypatch.setattr(gpu, "together", lambda report: {})
    report = measure_gpu(failing)
    assert isinstance(report, dict)
    assert "FileNotFoundError" in report["shakespeare"]["error"]
    assert report["device"]["name"] == "cpu"


def test_a_part_without_time_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    none = {"error": "not measured: no time was left"}
    assert run_part("training", Setting("cpu"), now) == none
    monkeypatch.setattr(gpu, "LEAST", 0)
    report = run_part("training", Setting("cpu"), time.monotonic() + 1)
    assert report["error"] == "not finished after 1 s"


def test_what_a_choice_is_worth_is_compared_seed_by_seed() -> None:
    found = conclude(
        {"all": [2.0, 1.0], "without": [2.25, 1.75], "no gain": [1.9, 1.0]}
    )
    assert found["all"]["worth"] == found["all"]["least"] == found["all"]["most"] == 0.0
    assert found["without"] == {
        "losses": [2.25, 1.75],
        "mean": 2.0,
        "worth": 0.5,
        "least": 0.25,
        "most": 0.75,
    }
    assert found["no gain"]["worth"] == -0.05


def test_every_choice_undone_is_another_model_or_another_recipe() -> None:
    whole, *others = CHOICES.values()
    assert (whole.model, whole.recipe) == ({}, {})
    for choice in others:
        changes_model = any(FAST.get(k, 0) != v for k, v in choice.model.items())
        recipe = Recipe.fast(**choice.recipe)
        assert changes_model != (recipe != Recipe.fast())
        GPTConfig(vocab_size=7, **{**FAST, **choice.model})
