import hashlib
import io
import os
import socket
import sys
import sysconfig
import urllib.request
from http.client import IncompleteRead
from pathlib import Path
from threading import Thread
from urllib.error import URLError

import pytest

from tested_transformer.data import corpora
from tested_transformer.data.corpora import Corpus, load_corpus
from tested_transformer.data.stories import FEW_NAMES, story_entropy, write_stories
from tested_transformer.data.tokens import load_tokens

PLAY = "First Citizen:\nBefore we proceed, hear me speak — né?\n".encode()


class Server:
    """Answers for the whole network, with one text, and remembers who asked."""

    def __init__(self) -> None:
        self.data = PLAY
        self.asked: list[str] = []

    def open(self, address: str, timeout: float) -> io.BytesIO:
        assert timeout > 0
        self.asked.append(address)
        return io.BytesIO(self.data)


@pytest.fixture
def server(monkeypatch):
    server = Server()
    monkeypatch.setattr(urllib.request, "urlopen", server.open)
    digest = hashlib.sha256(PLAY).hexdigest()
    wanted = ("https://example.org/play.txt", digest, "play.txt")
    monkeypatch.setitem(corpora._DOWNLOADS, "shakespeare", wanted)
    return server


def test_stories_are_written_on_the_spot_and_know_their_entropy():
    for name, names in (("grammar", {}), ("stories", {"names": FEW_NAMES})):
        assert load_corpus(name, seed=3, num_characters=700) == Corpus(
            name=name,
            text=write_stories(700, seed=3, **names).text,
            origin="a grammar, seed 3",
            entropy=story_entropy(*names.values()),
        )


def test_grammar_has_a_million_characters_by_default(monkeypatch):
    asked: list[int] = []

    def write(num_characters, *, seed):
        asked.append(num_characters)
        return write_stories(1, seed=seed)

    monkeypatch.setattr(corpora, "write_stories", write)
    load_corpus("grammar")
    assert asked == [1_000_000]


def test_stdlib_is_the_source_text_of_this_python():
    corpus = load_corpus("stdlib")
    folder = Path(sysconfig.get_paths()["stdlib"])
    assert corpus.origin == str(folder)
    assert corpus.text.isascii()
    assert len(corpus.text) > 2_000_000
    assert corpus.entropy is None
    modules = ["ast", "bisect", "textwrap", "typing", "zipapp"]
    places = [
        corpus.text.index((folder / f"{module}.py").read_text("utf-8"))
        for module in modules
    ]
    assert places == sorted(places)
    assert load_corpus("stdlib", num_characters=300).text == corpus.text[:300]


def test_stdlib_leaves_out_what_is_not_ascii_or_not_of_python_itself(
    tmp_path, monkeypatch
):
    written = {
        "b.py": b"b = 1\r\n",
        "a.py": b"a = 1\n",
        "latin.py": b"# caf\xe9\n",
        "greek.py": "# α\n".encode(),
        "_sysconfigdata__linux.py": b"built = 'here'\n",
        "sitecustomize.py": b"mine = True\n",
        "notes.txt": b"no\n",
    }
    for name, data in written.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    assert load_corpus("stdlib").text == "a = 1\n\nb = 1\n"
    (tmp_path / "a.py").unlink()
    (tmp_path / "b.py").unlink()
    with pytest.raises(ValueError, match=r"^there is no source text of Python in "):
        load_corpus("stdlib")


def test_any_text_file_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "names").write_bytes(b"\xef\xbb\xbfema\r\nzo\xc3\xab\rida\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("./names", Path("names"), tmp_path / "names", "~/names"):
        corpus = load_corpus(path)
        assert corpus.text == "ema\nzoë\nida\n"
        assert corpus.name == str(path)
        assert corpus.entropy is None
    assert load_corpus("./names", num_characters=5).text == "ema\nz"
    assert load_corpus("~/names").origin == str(tmp_path / "names")


def test_a_text_is_fetched_once_and_kept(tmp_path, server):
    folder = tmp_path / "not" / "there yet"
    first = load_corpus("shakespeare", cache_folder=folder)
    assert first.text.encode() == PLAY
    assert first.name == "shakespeare"
    assert first.origin == str(folder / "play.txt")
    assert [path.name for path in folder.iterdir()] == ["play.txt"]
    assert load_corpus("shakespeare", cache_folder=folder) == first
    assert server.asked == ["https://example.org/play.txt"]


def test_texts_are_kept_in_the_cache_of_the_user(tmp_path, server, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path))
    load_corpus("shakespeare")
    assert (tmp_path / "xdg" / "tested-transformer" / "play.txt").exists()
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    load_corpus("shakespeare")
    assert (tmp_path / ".cache" / "tested-transformer" / "play.txt").exists()


def test_another_text_than_the_expected_one_is_refused(tmp_path, server):
    server.data = PLAY[:-1]
    shown = [hashlib.sha256(data).hexdigest()[:12] for data in (PLAY[:-1], PLAY)]
    with pytest.raises(
        ValueError,
        match=rf"^https://example\.org/play\.txt is not the expected text: its "
        rf"sha256 is {shown[0]}\.\.\.; it must be {shown[1]}\.\.\.; nothing was kept$",
    ):
        load_corpus("shakespeare", cache_folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "play.txt").write_bytes(PLAY.replace(b"First", b"Worst"))
    with pytest.raises(ValueError, match=r"; delete it to download it again$"):
        load_corpus("shakespeare", cache_folder=tmp_path)


def test_a_connection_that_fails_or_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    class BreaksOff(io.BytesIO):
        def read(self, *args):
            raise IncompleteRead(PLAY[:5], 50)

    def nobody(address, timeout):
        raise URLError(socket.gaierror(-2, "Name or service not known"))

    for answer, name, address in (
        (lambda *_, **__: BreaksOff(), "shakespeare", "karpathy/char-rnn/master/data/"),
        (nobody, "names", "karpathy/makemore/master/names.txt elsewhere and pass the "),
    ):
        monkeypatch.setattr(urllib.request, "urlopen", answer)
        with pytest.raises(ConnectionError) as refused:
            load_corpus(name, cache_folder=tmp_path)
        assert str(refused.value).startswith(f"{name} cannot be downloaded (")
        assert f"get https://raw.githubusercontent.com/{address}" in str(refused.value)
    assert "([Errno -2] Name or service not known)" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_text_is_named(tmp_path):
    for name, error, message in (
        ("shakespear", FileNotFoundError, "there is no file 'shakespear', and no corp"),
        ("~nobody-at-all/x", FileNotFoundError, "there is no file '~nobody-at-all/x'"),
        (tmp_path, IsADirectoryError, f"'{tmp_path}' is a folder, not a text file"),
    ):
        with pytest.raises(error, match=f"^{message}"):
            load_corpus(name)
    path = tmp_path / "file"
    for data, message in (
        (b"\xef\xbb\xbf", "is empty"),
        (b"\xef\xbb\xbfcaf\xe9!\n", "is not UTF-8: byte 0xe9 at offset 6"),
        ("né".encode()[:-1], "is not UTF-8: byte 0xc3 at offset 1"),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=f"^'{path}' {message}$"):
            load_corpus(path)
    with pytest.raises(ValueError, match=r"^num_characters=0 must be positive$"):
        load_corpus("grammar", num_characters=0)


# Files of other kinds.


@pytest.fixture
def pipe(tmp_path):
    """Return a pipe that a text is written to once."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = Thread(target=path.write_text, args=("caf\u00e9 au lait " * 9,))
    writer.start()
    yield path
    writer.join()


@pytest.mark.skipif(sys.platform == "win32", reason="it has no pipes in folders")
@pytest.mark.parametrize("limit", [None, 4])
def test_a_pipe_is_read_once(pipe, limit):
    found = load_tokens(pipe, tokenizer="characters", num_characters=limit)
    text = found.tokenizer.decode(found.tokens.tolist())
    assert text == ("caf\u00e9 au lait " * 9)[:limit]
    assert (found.name, found.origin) == (str(pipe), str(pipe))


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such devices")
def test_a_device_is_no_text():
    for name in ("/dev/null", "/dev/zero"):
        message = f"^'{name}' is a device, not a text file"
        for load in (load_corpus, load_tokens):
            with pytest.raises(ValueError, match=message):
                load(name)
