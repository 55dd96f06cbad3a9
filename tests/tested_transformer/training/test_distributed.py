"""Two processes do what one does."""

import json
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tested_transformer.training.distributed import (
    World,
    gathered,
    gradients_stay,
    join_world,
    leave_world,
    mean_over,
    share_of,
    spread,
)

SCRIPT = Path(__file__).with_name("gloo.py")


def test_torchrun_says_who_is_who():
    environment = {"RANK": "5", "WORLD_SIZE": "7", "LOCAL_RANK": "1", "HOME": "x"}
    assert World.from_environment(environment) == World(rank=5, size=7, local_rank=1)
    assert World.from_environment({"HOME": "x"}) == World(0, 1, 0)
    del environment["LOCAL_RANK"]
    message = r"^the environment lacks LOCAL_RANK: start with torchrun$"
    with pytest.raises(ValueError, match=message):
        World.from_environment(environment)


def test_alone_nothing_is_sent(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    world = join_world(torch.device("cpu"))
    assert world == World()
    assert not torch.distributed.is_initialized()
    leave_world()
    model, tensor = nn.Linear(2, 3), torch.ones(5)
    assert spread(model, world) is model
    assert spread(model, world, shard=True) is model
    assert mean_over(world, tensor) is tensor
    assert gathered(tensor) is tensor
    assert share_of(tensor, model.weight) is tensor
    with gradients_stay(model, True):
        pass


def largest_gap(first: object, second: object) -> float:
    """Compare numbers, in lists and dictionaries of one form."""
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        return max(largest_gap(first[name], second[name]) for name in first)
    if isinstance(first, list):
        return max(largest_gap(a, b) for a, b in zip(first, second, strict=True))
    return abs(first - second)


@pytest.mark.nightly
@pytest.mark.slow
def test_two_processes_are_as_one(tmp_path):
    runpy.run_path(str(SCRIPT))["tell"](str(tmp_path), World())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"),
        *("--master-addr=127.0.0.1", f"--master-port={port}"),
        *(str(SCRIPT), str(tmp_path)),
    ]
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    one, first, second = (
        json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("0-of-1", "0-of-2", "1-of-2")
    )
    for expected, report, quiet in zip(one, first, second, strict=True):
        assert expected["stopped"] == report["stopped"] == quiet["stopped"] == 3
        for what in ("losses", "validations"):
            # A run adds its losses up in the default type, single precision.
            assert largest_gap(expected[what], report[what]) < 1e-6
            # All processes know the same.
            assert report[what] == quiet[what]
        assert largest_gap(expected["weights"], report["weights"]) < 1e-12
        assert report["weights"] == quiet["weights"]
        assert largest_gap(expected["memory"], report["memory"]) < 1e-12
        assert max(report["gaps"]) < 1e-5
        kind = "DTensor" if report["name"].endswith("sharded") else "Parameter"
        assert report["kinds"] == quiet["kinds"] == [kind]
        # One of them reports and saves.
        assert (report["reports"], report["saved"]) == (3, [3, 6])
        assert (quiet["reports"], quiet["saved"]) == (0, [])
