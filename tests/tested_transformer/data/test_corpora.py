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
from types import SimpleNamespace
from urllib.error import URLError

import pytest

from tested_transformer.data import corpora
from tested_transformer.data.corpora import Corpus, load_corpus
from tested_transformer.data.stories import FEW_NAMES, story_entropy, write_stories
from tested_transformer.data.tokens import load_tokens

PLAY = "First Citizen:\nBefore we proceed, hear me speak — né?\n".encode()


@pytest.fixture
def server(monkeypatch):
    """Answer for the network with one text; return it, and the addresses asked for."""
    served = SimpleNamespace(data=PLAY, addresses=[])

    def urlopen(address, timeout):
        assert timeout > 0
        served.addresses.append(address)
        return io.BytesIO(served.data)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    digest = hashlib.sha256(PLAY).hexdigest()
    download = ("https://example.org/play.txt", digest, "play.txt")
    monkeypatch.setitem(corpora._DOWNLOADS, "shakespeare", download)
    return served


def test_stories_are_written_on_the_spot_and_know_their_entropy():
    for name, names in (("grammar", {}), ("stories", {"names": FEW_NAMES})):
        assert load_corpus(name, seed=3, num_characters=700) == Corpus(
            name=name,
            text=write_stories(700, seed=3, **names).text,
            origin="a grammar, seed 3",
            entropy=story_entropy(*names.values()),
        )


def test_grammar_has_a_million_characters_by_default(monkeypatch):
    sizes: list[int] = []

    def write(num_characters, *, seed):
        sizes.append(num_characters)
        return write_stories(1, seed=seed)

    monkeypatch.setattr(corpora, "write_stories", write)
    load_corpus("grammar")
    assert sizes == [1_000_000]


def test_stdlib_is_the_source_text_of_this_python():
    corpus = load_corpus("stdlib")
    folder = Path(sysconfig.get_paths()["stdlib"])
    assert (corpus.origin, corpus.entropy) == (str(folder), None)
    assert corpus.text.isascii()
    assert len(corpus.text) > 2_000_000
    files = [folder / f"{module}.py" for module in ("ast", "bisect", "zipapp")]
    places = [corpus.text.index(file.read_text("utf-8")) for file in files]
    assert places == sorted(places)
    assert load_corpus("stdlib", num_characters=300).text == corpus.text[:300]


def test_stdlib_leaves_out_what_is_not_ascii_or_not_of_python_itself(
    tmp_path, monkeypatch
):
    for name, data in {
        "b.py": b"b = 1\r\n",
        "a.py": b"a = 1\n",
        "latin.py": b"# caf\xe9\n",
        "greek.py": "# α\n".encode(),
        "_sysconfigdata__linux.py": b"built = 'here'\n",
        "sitecustomize.py": b"mine = True\n",
        "notes.txt": b"no\n",
    }.items():
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
        assert (corpus.text, corpus.entropy) == ("ema\nzoë\nida\n", None)
        assert corpus.name == str(path)
    assert corpus.origin == str(tmp_path / "names")
    assert load_corpus("./names", num_characters=5).text == "ema\nz"


def test_a_text_is_fetched_once_and_kept(tmp_path, server, monkeypatch):
    folder = tmp_path / "not" / "there yet"
    first = load_corpus("shakespeare", cache_folder=folder)
    assert first.text.encode() == PLAY
    assert (first.name, first.origin) == ("shakespeare", str(folder / "play.txt"))
    assert [path.name for path in folder.iterdir()] == ["play.txt"]
    assert load_corpus("shakespeare", cache_folder=folder) == first
    assert server.addresses == ["https://example.org/play.txt"]
    # By default in the cache of the user.
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, place in ((str(tmp_path / "xdg"), "xdg"), ("", ".cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", variable)
        load_corpus("shakespeare")
        assert (tmp_path / place / "tested-transformer" / "play.txt").exists()


def test_another_text_than_the_expected_one_is_refused(tmp_path, server):
    server.data = PLAY[:-1]
    sent, expected = (hashlib.sha256(x).hexdigest()[:12] for x in (PLAY[:-1], PLAY))
    with pytest.raises(
        ValueError,
        match=rf"^https://example\.org/play\.txt is not the expected text: its sha256 "
        rf"is {sent}\.\.\.; it must be {expected}\.\.\.; nothing was kept$",
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


@pytest.mark.skipif(sys.platform == "win32", reason="it has no pipes in folders")
@pytest.mark.parametrize("limit", [None, 4])
def test_a_pipe_is_read_once(limit, tmp_path):
    path, text = tmp_path / "pipe", "caf\u00e9 au lait " * 9
    os.mkfifo(path)
    writer = Thread(target=path.write_text, args=(text,))
    writer.start()
    tokens = load_tokens(path, tokenizer="characters", num_characters=limit)
    writer.join()
    assert tokens.tokenizer.decode(tokens.tokens.tolist()) == text[:limit]
    assert (tokens.name, tokens.origin) == (str(path), str(path))


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such devices")
def test_a_device_is_no_text():
    for name in ("/dev/null", "/dev/zero"):
        message = f"^'{name}' is a device, not a text file"
        for load in (load_corpus, load_tokens):
            with pytest.raises(ValueError, match=message):
                load(name)
