"""Models from a folder, and from a hub that runs here and serves made-up files."""

import hashlib
import sys
import threading
from copy import deepcopy
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from tests.tested_transformer.checkpoints.folders import (
    CONFIG,
    INDEX,
    ONE,
    TWO,
    as_nanogpt,
    put,
    put_in_parts,
)

from tested_transformer.checkpoints import (
    CheckpointError,
    find_pretrained,
    load_gpt2,
    load_pretrained,
    save_checkpoint,
    ship_model,
    to_gpt2,
)
from tested_transformer.gpt import GPT, GPTConfig


@pytest.fixture
def model():
    return GPT(CONFIG)


def check_same(first: GPT, second: GPT) -> None:
    assert first.config == second.config
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


def test_a_folder_is_loaded(tmp_path, model):
    for put_there in (put, put_in_parts):
        put_there(tmp_path, *to_gpt2(model))
        check_same(load_gpt2(tmp_path), model)
        check_same(load_gpt2(str(tmp_path)), model)
        assert load_gpt2(tmp_path, dropout=0.3).config.dropout == 0.3


def test_it_is_told_how_much_is_read(tmp_path, model):
    for put_there in (put, put_in_parts):
        put_there(tmp_path, *to_gpt2(model))
        tell = Mock()
        load_pretrained(tmp_path, tell=tell)
        read, sizes = zip(*(call.args for call in tell.call_args_list), strict=True)
        assert [*read] == sorted({*read})
        assert {*sizes} == {read[-1]} == {sum(w.nbytes for w in model.parameters())}


# From a hub.


class Hub(ThreadingHTTPServer):
    """A hub with the files of a folder, NAME/REVISION/FILE."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder = folder
        self.requests: list[str] = []
        self.status = 200
        self.altered = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        self.wfile.write(self._answer())

    def _answer(self) -> bytes:
        file = self.server.folder / self.path.lstrip("/").replace("/resolve/", "/")
        status, headers, data = self.server.status, {"X-Repo-Commit": "0" * 40}, b""
        if status == 200 and file.is_file():
            data = file.read_bytes()
            headers["ETag"] = f'"{hashlib.sha256(data).hexdigest()}"'
        elif status == 200:
            status = 404
            present = [file.parents[1].is_dir(), file.parent.is_dir(), False]
            codes = ["RepoNotFound", "RevisionNotFound", "EntryNotFound"]
            headers["X-Error-Code"] = codes[present.index(False)]
        headers["Content-Length"] = str(len(data))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        return data[: len(data) // 2] if self.server.altered else data

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)  # between one try and the next
    client = import_module("huggingface_hub")
    import_module("huggingface_hub.utils").disable_progress_bars()
    with Hub(tmp_path / "served") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        kept = {"cache_dir": tmp_path / "cache"}
        for name, here in (
            ("hf_hub_download", {**kept, "endpoint": server.address}),
            ("try_to_load_from_cache", kept),
        ):
            monkeypatch.setattr(client, name, partial(getattr(client, name), **here))
        yield server
        server.shutdown()
        thread.join()


def test_a_model_is_fetched_once(model, served):
    put_in_parts(served.folder / "some/tiny/v2", *to_gpt2(model))
    for load in (load_pretrained, load_gpt2):
        check_same(load("some/tiny", revision="v2"), model)
        files = ("config.json", INDEX, ONE, TWO)
        assert served.requests == [f"/some/tiny/resolve/v2/{file}" for file in files]
        served.status = 500


def test_another_file_of_a_model_is_fetched_once(tmp_path, served):
    (served.folder / "tiny/v2").mkdir(parents=True)
    (served.folder / "tiny/v2/tokenizer.json").write_text("words")
    tiny = find_pretrained("hub:tiny", revision="v2")
    for _ in range(2):
        path = tiny.file("tokenizer.json")
        assert path is not None
        assert path.is_relative_to(tmp_path)
        assert path.read_text() == "words"
    assert served.requests == ["/tiny/resolve/v2/tokenizer.json"]
    assert tiny.file("vocab.json") is None
    with pytest.raises(CheckpointError, match=r"^tiny has no config\.json$"):
        tiny.model()


def test_what_the_hub_has_not_is_one_error(model, served):
    put(served.folder / "tiny/main", *to_gpt2(model))
    message = (
        "^there is no folder 'tine', and the hub has no such model, or shows it only "
        "to those who are logged in$"
    )
    with pytest.raises(CheckpointError, match=message):
        load_gpt2("tine")
    with pytest.raises(CheckpointError, match=r"^tiny has no revision 'v3'$"):
        load_gpt2("tiny", revision="v3")
    (served.folder / "tiny/main/config.json").unlink()
    with pytest.raises(CheckpointError, match=r"^tiny has no config\.json$"):
        load_gpt2("tiny")


def test_no_network_is_one_error(served):
    served.server_close()
    # Which error a closed port makes, the system decides.
    message = (
        r"^config\.json of tiny cannot be downloaded \(.+\): get the model elsewhere "
        r"and pass a folder with config\.json and model\.safetensors$"
    )
    with pytest.raises(ConnectionError, match=message):
        load_gpt2("tiny")


def test_without_the_package_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    message = (
        "^there is no folder 'gpt2', and downloading a model from the hub needs the "
        r'package huggingface_hub: pip install "tested-transformer\[hub\]", or pass a '
    )
    with pytest.raises(ImportError, match=message):
        load_gpt2("gpt2")


def test_a_file_that_breaks_off_is_not_kept(model, served):
    put(served.folder / "tiny/main", *to_gpt2(model))
    find_pretrained("tiny").file("config.json")
    served.altered = True
    message = r"^model\.safetensors of tiny cannot be downloaded \("
    with pytest.raises(ConnectionError, match=message):
        load_gpt2("tiny")
    served.altered = False
    check_same(load_gpt2("tiny"), model)


def test_what_is_no_name_is_refused(served):
    for name in ("../tiny", "/no/such/folder", "a/b/c", "a b"):
        message = f"^'{name}' is neither a folder nor a name on the hub: use a name suc"
        with pytest.raises(CheckpointError, match=message):
            load_pretrained(name)
    assert served.requests == []


# Whatever it is.

NANO = GPTConfig(vocab_size=13, max_seq_len=7, d_model=6, num_heads=3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_of_any_kind_is_loaded_from_its_folder(tmp_path, dtype):
    model, nano = GPT(CONFIG, dtype=dtype), GPT(NANO, dtype=dtype)
    save_checkpoint(tmp_path / "run", config=CONFIG, weights=model.state_dict())
    ship_model(tmp_path / "shipped", model)
    put(tmp_path / "gpt2", *to_gpt2(model))
    put(tmp_path / "nanogpt", *as_nanogpt(nano))
    kinds = {
        "run": model,  # only a checkpoint of ours keeps a type of 16 bits
        "shipped": deepcopy(model).half().float(),
        "gpt2": deepcopy(model).float(),
        "nanogpt": deepcopy(nano).float(),
    }
    for name, expected in kinds.items():
        loaded = load_pretrained(tmp_path / name)
        assert not loaded.training
        check_same(loaded, expected)
        loaded = load_pretrained(str(tmp_path / name), dtype=torch.float64)
        assert {weight.dtype for weight in loaded.parameters()} == {torch.float64}
    loaded = load_pretrained(tmp_path / "run", device="meta")
    assert {weight.device.type for weight in loaded.parameters()} == {"meta"}


def test_a_folder_without_a_model_is_refused(tmp_path, model):
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    message = f"^{tmp_path} holds no model: it must have checkpoint.json, card.json or "
    with pytest.raises(CheckpointError, match=message):
        load_pretrained(tmp_path)
