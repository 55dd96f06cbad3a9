"""GPT-2 from a folder, and from a hub that runs here and has files made on the spot."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from tested_transformer.checkpoints import (
    CheckpointError,
    hub,
    hub_file,
    load_gpt2,
    load_nanogpt,
    to_gpt2,
)
from tested_transformer.gpt import GPT, GPTConfig

CONFIG = GPTConfig(
    vocab_size=13,
    max_seq_len=7,
    d_model=6,
    num_heads=3,
    num_layers=2,
    activation="gelu_tanh",
)


@pytest.fixture
def model() -> GPT:
    return GPT(CONFIG)


def put(folder: Path, weights: dict[str, Tensor], settings: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    safetensors.torch.save_file(weights, folder / "model.safetensors")


def put_in_parts(folder: Path, weights: dict[str, Tensor], settings: dict) -> None:
    put(folder, weights, settings)
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, some in parts.items():
        part = {name: weights[name] for name in some}
        safetensors.torch.save_file(part, folder / file)
    places = {name: file for file, some in parts.items() for name in some}
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def check_same(one: GPT, other: GPT) -> None:
    assert one.config == other.config
    found = one.state_dict()
    for name, weight in other.state_dict().items():
        assert torch.equal(found[name], weight), name


@pytest.mark.parametrize("put_there", [put, put_in_parts])
def test_a_folder_is_loaded(tmp_path: Path, model: GPT, put_there: Any) -> None:
    put_there(tmp_path, *to_gpt2(model))
    check_same(load_gpt2(tmp_path), model)
    check_same(load_gpt2(str(tmp_path)), model)
    assert load_gpt2(tmp_path, dropout=0.3).config.dropout == 0.3


def test_what_transformers_saves_is_loaded(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    config = GPT2Config(
        vocab_size=13,
        n_positions=7,
        n_embd=6,
        n_layer=2,
        n_head=3,
        bos_token_id=None,
        eos_token_id=None,
    )
    expected = GPT2LMHeadModel(config).eval()
    expected.save_pretrained(tmp_path)
    tokens = torch.randint(13, (2, 5))
    logits = load_gpt2(tmp_path).eval()(tokens)
    torch.testing.assert_close(logits, expected(tokens).logits, rtol=1e-5, atol=1e-6)


def test_a_folder_that_lacks_something_is_refused(tmp_path: Path, model: GPT) -> None:
    weights, settings = to_gpt2(model)
    with pytest.raises(CheckpointError, match=f"^{tmp_path} has no config.json$"):
        load_gpt2(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError) as refused:
        load_gpt2(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path} has no model.safetensors and no model.safetensors.index.json; "
        "pickles, such as pytorch_model.bin, are not read"
    )
    put_in_parts(tmp_path, weights, settings)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError) as refused:
        load_gpt2(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path} has no model-00002-of-00002.safetensors, which "
        "model.safetensors.index.json names"
    )


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", b'{"n_embd": ', "/config.json is cut short or no JSON"),
        ("config.json", b"[1]", "/config.json holds no settings"),
        (
            "model.safetensors",
            b"\0" * 40,
            "/model.safetensors is cut short or no file ",
        ),
    ],
)
def test_a_damaged_file_is_named(
    tmp_path: Path, model: GPT, file: str, content: bytes, message: str
) -> None:
    put(tmp_path, *to_gpt2(model))
    (tmp_path / file).write_bytes(content)
    with pytest.raises(CheckpointError) as refused:
        load_gpt2(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path}{message}")


@pytest.mark.parametrize(
    "file", ["../secret.safetensors", "/etc/passwd", ".hidden", ""]
)
def test_an_index_does_not_lead_elsewhere(
    tmp_path: Path, model: GPT, file: str
) -> None:
    folder = tmp_path / "model"
    put_in_parts(folder, *to_gpt2(model))
    safetensors.torch.save_file({"a": torch.ones(1)}, tmp_path / "secret.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(CheckpointError) as refused:
        load_gpt2(folder)
    assert str(refused.value) == f"{index} names a file {file!r}"
    index.write_text("{}")
    with pytest.raises(CheckpointError, match=f"^{index} has no weight_map$"):
        load_gpt2(folder)


# From a hub.


class Hub(ThreadingHTTPServer):
    """A hub with the files of a folder, which it sends as it is told to."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder = folder
        self.asked: list[str] = []
        self.cut: int | None = None
        self.says_length = True
        self.status = 200

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        file = self.server.folder / self.path.lstrip("/")
        status = self.server.status if file.is_file() else 404
        if self.path.startswith("/elsewhere"):
            file, status = self.server.folder / self.path[11:], 200
        elif status == 302:
            self.send_response(302)
            self.send_header("Location", f"/elsewhere{self.path}")
            self.end_headers()
            return
        data = file.read_bytes() if status == 200 else b"an answer for people"
        self.send_response(status)
        if self.server.says_length:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: self.server.cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "served") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [200, 302])
def test_a_model_is_fetched_once(
    tmp_path: Path, model: GPT, served: Hub, status: int
) -> None:
    put(served.folder / "some/tiny/resolve/main", *to_gpt2(model))
    served.status = status
    settings = {"cache_folder": tmp_path / "cache", "hub": served.address}
    check_same(load_gpt2("some/tiny", **settings), model)
    asked = [path for path in served.asked if not path.startswith("/elsewhere")]
    assert asked == [
        "/some/tiny/resolve/main/config.json",
        "/some/tiny/resolve/main/model.safetensors",
    ]
    served.asked.clear()
    check_same(load_gpt2("some/tiny", **settings), model)
    assert served.asked == []
    kept = tmp_path / "cache/hub/some/tiny/main"
    assert {file.name for file in kept.iterdir()} == {
        "config.json",
        "model.safetensors",
    }


def test_a_model_in_parts_is_fetched_once(
    tmp_path: Path, model: GPT, served: Hub
) -> None:
    put_in_parts(served.folder / "tiny/resolve/v2", *to_gpt2(model))
    settings = {"cache_folder": tmp_path, "hub": served.address, "revision": "v2"}
    check_same(load_gpt2("tiny", **settings), model)
    assert [path.rpartition("/")[2] for path in served.asked] == [
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    served.asked.clear()
    check_same(load_gpt2("tiny", **settings), model)
    assert served.asked == []


def failed(server: Hub, file: str, reason: str) -> str:
    return (
        f"{server.address}/tiny/resolve/main/{file} cannot be fetched ({reason}): get "
        "the model elsewhere and give the folder with its config.json and "
        "model.safetensors"
    )


@pytest.mark.parametrize("cut", [0, 1, 1000])
def test_a_file_that_breaks_off_is_not_kept(
    tmp_path: Path, model: GPT, served: Hub, cut: int
) -> None:
    folder = served.folder / "tiny/resolve/main"
    put(folder, *to_gpt2(model))
    size = (folder / "model.safetensors").stat().st_size
    cache = tmp_path / "cache"
    kept = cache / "hub/tiny/main"
    kept.mkdir(parents=True)
    (kept / "config.json").write_bytes((folder / "config.json").read_bytes())
    served.cut = cut
    with pytest.raises(ConnectionError) as refused:
        load_gpt2("tiny", cache_folder=cache, hub=served.address)
    reason = f"it ended after {cut} of {size} bytes"
    assert str(refused.value) == failed(served, "model.safetensors", reason)
    assert [file.name for file in kept.iterdir()] == ["config.json"]
    served.cut = None
    check_same(load_gpt2("tiny", cache_folder=cache, hub=served.address), model)


def test_a_hub_may_leave_the_length_unsaid(
    tmp_path: Path, model: GPT, served: Hub
) -> None:
    put(served.folder / "tiny/resolve/main", *to_gpt2(model))
    served.says_length = False
    check_same(load_gpt2("tiny", cache_folder=tmp_path, hub=served.address), model)


def test_a_hub_that_refuses_is_one_error(
    tmp_path: Path, model: GPT, served: Hub
) -> None:
    put(served.folder / "tiny/resolve/main", *to_gpt2(model))
    served.status = 401
    with pytest.raises(ConnectionError) as refused:
        load_gpt2("tiny", cache_folder=tmp_path / "cache", hub=served.address)
    assert str(refused.value) == failed(served, "config.json", "401 Unauthorized")
    assert not (tmp_path / "cache").exists()


def test_a_model_that_is_not_there_is_one_error(tmp_path: Path, served: Hub) -> None:
    with pytest.raises(CheckpointError, match=r"^tiny has no config\.json$"):
        load_gpt2("tiny", cache_folder=tmp_path, hub=served.address)
    assert list(tmp_path.iterdir()) == []


def test_another_file_of_a_model_is_fetched_once(tmp_path: Path, served: Hub) -> None:
    folder = served.folder / "tiny/resolve/v2"
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("words")
    (folder.parent / "secret.json").write_text("not for you")
    settings = {"revision": "v2", "cache_folder": tmp_path, "hub": served.address}
    for _ in range(2):
        path = hub_file("tiny", "tokenizer.json", **settings)
        assert path == tmp_path / "hub/tiny/v2/tokenizer.json"
        assert path.read_text() == "words"
    assert served.asked == ["/tiny/resolve/v2/tokenizer.json"]
    with pytest.raises(CheckpointError, match=r"^tiny has no vocab\.json$"):
        hub_file("tiny", "vocab.json", **settings)
    served.asked.clear()
    for file in ("../secret.json", "/etc/passwd", ""):
        with pytest.raises(CheckpointError, match=f"^tiny has no {file}$"):
            hub_file("tiny", file, **settings)
    assert served.asked == []


def test_no_network_is_one_error(tmp_path: Path, served: Hub) -> None:
    # A port that nobody listens to.
    with Hub(tmp_path) as other:
        address = other.address
    with pytest.raises(ConnectionError) as refused:
        load_gpt2("tiny", cache_folder=tmp_path, hub=address)
    message = str(refused.value)
    assert message.startswith(f"{address}/tiny/resolve/main/config.json cannot be ")
    assert "Connection refused" in message


@pytest.mark.parametrize(
    "name",
    ["../tiny", "/no/such/folder", "a/b/c", "", ".", "tiny?x=1", "tiny/..", "a b"],
)
def test_what_is_no_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: Hub, name: str
) -> None:
    settings = {"cache_folder": tmp_path, "hub": served.address}
    for given in ({"folder_or_name": name}, {"folder_or_name": "x", "revision": name}):
        if Path(given["folder_or_name"]).is_dir():
            continue
        with pytest.raises(CheckpointError) as refused:
            load_gpt2(**given, **settings)
        assert str(refused.value) == (
            f"{name!r} is no folder and nothing that a hub has: "
            "wanted is a name such as gpt2 or openai-community/gpt2"
        )
    assert served.asked == []


def test_models_are_kept_in_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: GPT, served: Hub
) -> None:
    put(served.folder / "tiny/resolve/main", *to_gpt2(model))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load_gpt2("tiny", hub=served.address)
    assert (tmp_path / "xdg/tested-transformer/hub/tiny/main/config.json").is_file()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    load_gpt2("tiny", hub=served.address)
    kept = tmp_path / "home/.cache/tested-transformer/hub/tiny/main"
    assert (kept / "config.json").is_file()
    assert hub.HUB == "https://huggingface.co"


# nanoGPT's, after it was taken out of its pickle.


def test_what_was_taken_out_of_nanogpts_pickle_is_loaded(tmp_path: Path) -> None:
    model = GPT(GPTConfig(vocab_size=13, max_seq_len=7, d_model=6, num_heads=3))
    weights, _ = to_gpt2(model)
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    theirs = {
        f"_orig_mod.{name}": (w.T if name.endswith(turned) else w).contiguous()
        for name, w in weights.items()
    }
    settings = {"vocab_size": 13, "block_size": 7, "n_embd": 6, "n_head": 3}
    put(tmp_path, theirs, {**settings, "n_layer": 4, "bias": True, "dropout": 0.0})
    check_same(load_nanogpt(tmp_path), model)
    for file in ("model.safetensors", "config.json"):
        (tmp_path / file).unlink()
        with pytest.raises(CheckpointError, match=f"{file.replace('.', '[.]')}( is|$)"):
            load_nanogpt(tmp_path)
