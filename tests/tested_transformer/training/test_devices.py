"""Which device is taken, and which numbers; machines that are not there are played."""

import inspect
import re

import pytest
import torch

from tested_transformer.training import devices
from tested_transformer.training.devices import (
    autocast,
    choose_device,
    choose_precision,
    compiling_pays,
    float32_products,
    seed_dropout,
)


@pytest.fixture(autouse=True)
def _measure(monkeypatch):
    """Take what is faster here, where make elsewhere has it decided."""
    ours = inspect.unwrap(devices.faster_precision)
    monkeypatch.setattr(devices, "faster_precision", ours)


def test_the_best_device_is_chosen_or_the_one_named(monkeypatch):
    for gpus, apple, name, chosen in (
        (0, False, "auto", "cpu"),
        (0, True, "auto", "mps"),
        (2, True, "auto", "cuda"),
        (2, False, "cuda:1", "cuda:1"),
        (1, True, "mps", "mps"),
        (1, True, "cpu", "cpu"),
        (0, True, "cuda", "one of mps, cpu"),
        (2, False, "cuda:2", "one of cuda:0, cuda:1, cpu"),
        (0, False, "cpu:x", "one of cpu"),
        (0, False, "", "one of cpu"),
    ):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda is_=apple: is_)
        if chosen.startswith("one of"):
            message = f"device={name!r} is not available; it must be {chosen}"
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                choose_device(name)
        else:
            assert choose_device(name) == torch.device(chosen)


def test_a_gpu_multiplies_in_what_it_is_fast_in(monkeypatch):
    for capability, precision in (((6, 1), "fp32"), ((7, 5), "fp16"), ((8, 0), "bf16")):
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda _, value=capability: value
        )
        assert choose_precision(torch.device("cuda")) == precision


@pytest.mark.parametrize(
    ("products", "steps", "precision"),
    [
        ({"fp32": 2.0, "bf16": 1.0}, {"fp32": 3.0, "bf16": 2.0}, "bf16"),
        ({"fp32": 2.0, "bf16": 1.0}, {"fp32": 3.0, "bf16": 2.99}, "fp32"),
        ({"fp32": 1.0, "bf16": 5.0}, None, "fp32"),
    ],
    ids=str,
)
def test_a_cpu_takes_what_is_faster_in_whole_steps(
    monkeypatch, products, steps, precision
):
    times = iter([products, steps])
    monkeypatch.setattr(devices, "_best_seconds", lambda *_, **__: next(times))
    step = list[str]().append
    assert choose_precision(torch.device("cpu"), step=step) == precision
    assert choose_precision(torch.device("cpu")) == "fp32"
    # What is not needed is not measured.
    assert (steps is None) == (len(list(times)) == 1)


def test_times_are_the_shortest_of_turns_after_a_warm_up(monkeypatch):
    clock = [0.0]
    takes = {"fp32": iter([9.0, 5.0, 4.0, 6.0]), "bf16": iter([1.0, 3.0, 2.5, 2.0])}
    order: list[str] = []

    def work(name):
        order.append(name)
        clock[0] += next(takes[name])

    monkeypatch.setattr(devices.time, "perf_counter", lambda: clock[0])
    assert devices._best_seconds(work, rounds=3) == {"fp32": 4.0, "bf16": 2.0}
    assert order == ["fp32", "bf16"] * 4


def test_a_gpu_multiplies_float32_in_tf32_for_a_while():
    now, cuda = torch.get_float32_matmul_precision, torch.device("cuda")
    before = now()
    with float32_products(torch.device("cpu"), "high"):
        assert now() == before
    with float32_products(cuda, "high"):
        assert now() == "high"
    # Threads share the most precise setting, and the last one restores.
    exact, fast = (
        float32_products(cuda, precision) for precision in ("highest", "high")
    )
    exact.__enter__()
    fast.__enter__()
    assert now() == "highest"
    exact.__exit__(None, None, None)
    assert now() == "high"
    fast.__exit__(None, None, None)
    assert now() == before


def test_a_real_cpu_is_measured():
    steps: list[str] = []
    chosen = choose_precision(torch.device("cpu"), step=steps.append)
    assert chosen in ("fp32", "bf16")
    # No step is measured if products in bfloat16 are not faster.
    assert steps in ([], ["fp32", "bf16"] * 3)


def test_long_runs_on_a_gpu_are_compiled(monkeypatch):
    for kind, major, triton, steps, pays in (
        ("cuda", 9, True, 5000, True),
        ("cuda", 9, True, 4999, False),
        ("cuda", 9, False, 5000, False),
        ("cuda", 6, True, 5000, False),
        ("cpu", 9, True, 5000, False),
    ):
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda _, major=major: (major, 1)
        )
        spec = object() if triton else None
        monkeypatch.setattr(devices, "find_spec", lambda _, spec=spec: spec)
        assert compiling_pays(torch.device(kind), steps) is pays


def test_elsewhere_it_is_float32_and_what_is_named_is_taken():
    assert choose_precision(torch.device("mps")) == "fp32"
    for name in ("fp32", "bf16", "fp16"):
        assert choose_precision(torch.device("cpu"), name) == name
    with pytest.raises(ValueError, match=r"^precision='int8' must be one of auto, fp3"):
        choose_precision(torch.device("cpu"), "int8")


def test_products_are_in_the_precision_and_sums_are_not():
    x = torch.randn(2, 3)
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with autocast(torch.device("cpu"), precision):
            assert (x @ x.mT).dtype == dtype
            loss = torch.nn.functional.cross_entropy(x @ x.mT, torch.tensor([0, 1]))
            assert loss.dtype == torch.float32


def test_dropout_is_drawn_from_the_seed_on_each_kind_of_device(monkeypatch):
    seed_dropout(torch.device("cpu"), 7)
    first = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(first, torch.rand(3))
    seeds: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda s: seeds.append(("cuda", s)))
    monkeypatch.setattr(torch.mps, "manual_seed", lambda s: seeds.append(("mps", s)))
    for kind in ("cpu", "cuda", "mps"):
        seed_dropout(torch.device(kind), 5)
    assert seeds == [("cuda", 5), ("mps", 5)]
