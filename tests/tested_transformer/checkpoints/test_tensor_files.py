"""Models in several files: one tensor is read at a time, or the folder refused."""

import json
import os
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.tested_transformer.checkpoints.folders import (
    CONFIG,
    INDEX,
    ONE,
    TWO,
    put_in_parts,
    write,
)
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tested_transformer.checkpoints import (
    CheckpointError,
    load_pretrained,
    ship_model,
    to_gpt2,
)
from tested_transformer.checkpoints.loading import fill_model
from tested_transformer.checkpoints.saving import check_fit
from tested_transformer.checkpoints.tensor_files import TensorFiles
from tested_transformer.gpt import GPT


def change(path: Path, **changes: Any) -> None:
    write(path, {**json.loads(path.read_text()), **changes})


def change_index(folder: Path, changes: dict[str, Any]) -> None:
    places = json.loads((folder / INDEX).read_text())["weight_map"]
    write(folder / INDEX, {"weight_map": {**places, **changes}})


def change_weights(folder: Path, changes: dict[str, Tensor]) -> None:
    save_file({**load_file(folder / ONE), **changes}, folder / ONE)


@pytest.fixture
def folder(tmp_path):
    put_in_parts(tmp_path / "model", *to_gpt2(GPT(CONFIG)))
    return tmp_path / "model"


# What is read.


def test_tensors_are_read_from_all_files(folder):
    expected = load_file(folder / ONE) | load_file(folder / TWO)
    loaded = TensorFiles(folder / ONE, folder / TWO)
    assert len(loaded) == len(expected)
    torch.testing.assert_close(dict(loaded), expected, rtol=0, atol=0)
    for name, shape in loaded.on_meta().items():
        assert (shape.shape, shape.dtype) == (loaded[name].shape, loaded[name].dtype)
        assert shape.is_meta
    with pytest.raises(KeyError):
        loaded["other"]
    check_fit(expected, loaded.on_meta(), "it")


def test_progress_is_told_once_for_each_tensor(folder):
    steps: list[tuple[int, int]] = []
    tensors = TensorFiles(folder / ONE, folder / TWO, tell=lambda *x: steps.append(x))
    size = sum(tensor.nbytes for tensor in dict(tensors).values())
    dict(tensors)
    done, totals = zip(*steps, strict=True)
    assert totals == (size,) * len(tensors)
    assert [*done] == sorted(set(done))
    assert done[-1] == size
    load_pretrained(folder, tell=lambda *x: steps.append(x))
    assert steps[-1] == (size, size)


def test_a_file_that_shrinks_while_it_is_read_is_refused(folder):
    loaded = TensorFiles(folder / ONE)
    os.truncate(folder / ONE, (folder / ONE).stat().st_size // 2)
    with pytest.raises(CheckpointError, match=f"^{folder / ONE} is cut short$"):
        dict(loaded)


class Watch(TorchDispatchMode):
    """Count the bytes of all tensors that are in memory, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.known = weakref.WeakSet[torch.UntypedStorage]()
        self.most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(result):
            if isinstance(leaf, Tensor) and not leaf.is_meta:
                self.known.add(leaf.untyped_storage())
        self.most = max(self.most, sum(storage.nbytes() for storage in self.known))
        return result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, None])
def test_a_model_is_in_memory_only_once(tmp_path, dtype):
    model = GPT(CONFIG, dtype=torch.bfloat16)
    saved = max(weight.nbytes for weight in model.parameters())
    # Queries, keys and values are one tensor in GPT-2's file.
    saved = max(saved, 3 * model.blocks[0].attention.q_proj.weight.nbytes)
    if dtype is None:
        ship_model(tmp_path, model)  # which is float32 first
    else:
        put_in_parts(tmp_path, *to_gpt2(model))
    with Watch() as watch:
        loaded = load_pretrained(tmp_path, dtype=dtype)
    size = sum(weight.nbytes for weight in loaded.parameters())
    assert size <= watch.most <= size + saved


def test_weights_must_come_once_each():
    model = GPT(CONFIG)
    pairs = list(model.state_dict().items())
    filled = fill_model(CONFIG, reversed(pairs), "it", dtype=torch.float64)
    state = model.double().state_dict()
    torch.testing.assert_close(filled.state_dict(), state, rtol=0, atol=0)
    wrong = "it does not have the weights that its settings require: "
    more, turned = ("more", torch.ones(1)), ("norm.bias", torch.ones(6, 1))
    for some, message in (
        (pairs[1:], f"{wrong}token_embedding.weight is missing"),
        ([*pairs, more], f"{wrong}more is unknown"),
        ([*pairs, pairs[3]], f"it has {pairs[3][0]} twice"),
        ([turned, *pairs], f"{wrong}norm.bias is (6, 1), not (6,)"),
    ):
        with pytest.raises(CheckpointError, match=f"^{re.escape(message)}$"):
            fill_model(CONFIG, iter(some), "it")


# What is broken.


def only_a_pickle(folder: Path) -> None:
    for file in (ONE, TWO, INDEX):
        (folder / file).unlink()
    torch.save({}, folder / "pytorch_model.bin")


def one_name_in_two_files(folder: Path) -> None:
    save_file({**load_file(folder / TWO), **load_file(folder / ONE)}, folder / TWO)


def a_long_index(folder: Path) -> None:
    with (folder / INDEX).open("ab") as file:
        file.truncate(10**9)  # which takes no room on most disks


SETTINGS, LN_F = "config.json", "transformer.ln_f.weight"
MORE = {"more": torch.ones(1)}
HUGE_HEADER = (2**60).to_bytes(8, "little") + b"{}"
# What is done to the folder, and how the message goes on after it.
BROKEN: list[tuple[Callable[[Path], object], str]] = [
    (lambda at: (at / TWO).unlink(), f" has no {TWO}, which {INDEX} names"),
    (only_a_pickle, f" has no model.safetensors and no {INDEX}; pick"),
    (
        lambda at: change(at / SETTINGS, vocab_size=11),
        " does not have the weights that its settings require: "
        "transformer.wte.weight is (13, 6), not (11, 6)",
    ),
    (
        lambda at: (
            change_weights(at, {"ln_f.weight": torch.ones(6)}),
            change_index(at, {"ln_f.weight": ONE}),
        ),
        f" has {LN_F} twice",
    ),
    (
        lambda at: change_index(at, {"more": TWO}),
        f"/{INDEX} says that more is in {TWO}, but it is in none",
    ),
    (
        lambda at: change_weights(at, MORE),
        f"/{INDEX} says that more is in no file, but it is in {ONE}",
    ),
    (
        lambda at: change_index(at, {LN_F: "../other.safetensors"}),
        f"/{INDEX} names an unexpected file, '../other.safetensors'",
    ),
    (lambda at: write(at / INDEX, {}), f"/{INDEX} has no weight_map"),
    (a_long_index, f"/{INDEX} has more than 100,000,000 bytes"),
    (
        lambda at: (at / ONE).write_bytes(HUGE_HEADER),
        f"/{ONE} is cut short or not a safetensors file: ",
    ),
    (one_name_in_two_files, f"/{TWO} has transformer.h."),
    (lambda at: write(at / SETTINGS, [13]), "/config.json holds no settings"),
    (
        lambda at: (at / SETTINGS).write_text("{'n_embd': 6}"),
        "/config.json is cut short or not JSON",
    ),
    (
        lambda at: change(at / SETTINGS, n_layer=10**9),
        " has settings that do not fit: num_layers=1000000000 is more than its ",
    ),
    (
        lambda at: change(at / SETTINGS, n_embd=3 * 10**15),
        " has settings that do not fit: Storage size calculation overflowed ",
    ),
]


def test_a_broken_folder_is_refused_in_one_line(tmp_path):
    model = GPT(CONFIG)
    for number, (spoil, message) in enumerate(BROKEN):
        folder = tmp_path / str(number)
        put_in_parts(folder, *to_gpt2(model))
        spoil(folder)
        with pytest.raises(CheckpointError) as refused:
            load_pretrained(folder)
        line = str(refused.value)
        assert line.startswith(f"{folder}{message}"), line
        assert "\n" not in line


def test_the_cache_of_the_hub_is_a_folder_of_links(folder):
    expected = load_pretrained(folder).state_dict()
    cache = folder.parent / "models--some--tiny"
    blobs, snapshot = cache / "blobs", cache / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    folder.rename(blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    (folder.parent / "linked").symlink_to(snapshot)
    for place in (snapshot, folder.parent / "linked"):
        state = load_pretrained(place).state_dict()
        torch.testing.assert_close(state, expected, rtol=0, atol=0)
    (blobs / ONE).rename(folder.parent / ONE)
    (snapshot / ONE).unlink()
    (snapshot / ONE).symlink_to(folder.parent / ONE)
    with pytest.raises(CheckpointError, match=r" is a link that leads out of "):
        load_pretrained(snapshot)
