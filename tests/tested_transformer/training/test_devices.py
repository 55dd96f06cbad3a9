"""Which device is taken, and which numbers; machines that are not there are played."""

import re

import pytest
import torch

from tested_transformer.training import devices
from tested_transformer.training.devices import (
    autocast,
    choose_device,
    choose_precision,
    seed_dropout,
)


def machine(monkeypatch: pytest.MonkeyPatch, gpus: int, apple: bool) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)


@pytest.mark.parametrize(
    ("gpus", "apple", "name", "chosen"),
    [
        (0, False, "auto", "cpu"),
        (0, True, "auto", "mps"),
        (2, False, "auto", "cuda"),
        (2, False, "cuda:1", "cuda:1"),
        (1, False, "cuda", "cuda"),
        (1, True, "mps", "mps"),
        (1, True, "cpu", "cpu"),
    ],
)
def test_the_best_device_is_chosen_or_the_one_named(
    monkeypatch: pytest.MonkeyPatch, gpus: int, apple: bool, name: str, chosen: str
):
    machine(monkeypatch, gpus, apple)
    assert choose_device(name) == torch.device(chosen)


@pytest.mark.parametrize(
    ("gpus", "apple", "name", "there"),
    [
        (0, False, "cuda", "cpu"),
        (0, True, "cuda", "mps, cpu"),
        (2, False, "cuda:2", "cuda:0, cuda:1, cpu"),
        (1, False, "mps", "cuda:0, cpu"),
        (0, False, "tpu", "cpu"),
        (0, False, "cpu:x", "cpu"),
        (0, False, "", "cpu"),
    ],
)
def test_a_device_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, gpus: int, apple: bool, name: str, there: str
):
    machine(monkeypatch, gpus, apple)
    message = f"device={name!r} is not there; there is {there}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        choose_device(name)


@pytest.mark.parametrize(
    ("capability", "precision"), [((7, 5), "fp16"), ((8, 0), "bf16"), ((9, 0), "bf16")]
)
def test_a_gpu_multiplies_in_what_it_is_fast_in(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], precision: str
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert choose_precision(torch.device("cuda")) == precision


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [
        ({"avx512_f": True, "amx_bf16": False}, "fp32"),
        ({"avx512_bf16": True}, "bf16"),
        ({"amx_bf16": True}, "bf16"),
        ({}, "fp32"),
    ],
    ids=str,
)
def test_a_cpu_multiplies_in_bfloat16_only_with_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], precision: str
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert choose_precision(torch.device("cpu")) == precision


def test_elsewhere_it_is_float32_and_what_is_named_is_taken():
    assert choose_precision(torch.device("mps")) == "fp32"
    for name in ("fp32", "bf16", "fp16"):
        assert choose_precision(torch.device("cpu"), name) == name
    message = "precision='int8' must be one of auto, fp32, bf16, fp16"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        choose_precision(torch.device("cpu"), "int8")


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)],
)
def test_products_are_in_the_precision_and_sums_are_not(
    precision: str, dtype: torch.dtype
):
    x = torch.randn(2, 3)
    with autocast(torch.device("cpu"), precision):
        product = x @ x.mT
        assert product.dtype == dtype
        target = torch.tensor([0, 1])
        loss = torch.nn.functional.cross_entropy(product, target)
        assert loss.dtype == torch.float32


def test_dropout_is_drawn_from_the_seed_on_each_kind_of_device(
    monkeypatch: pytest.MonkeyPatch,
):
    seed_dropout(torch.device("cpu"), 7)
    first = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(first, torch.rand(3))
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda s: told.append(("cuda", s)))
    monkeypatch.setattr(torch.mps, "manual_seed", lambda s: told.append(("mps", s)))
    for kind in ("cpu", "cuda", "mps"):
        seed_dropout(torch.device(kind), 5)
    assert told == [("cuda", 5), ("mps", 5)]
    assert devices.__all__ == sorted(devices.__all__)
