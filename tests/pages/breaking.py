"""A process of its own that runs pages of copies of the book, each in a fork.

PyTorch and what renders pages are imported once, for all of them. What the book itself
is made of, each fork imports from its own copy. The process is asked on its standard
input, in JSON: for each run a folder, and the tests to be run there. It answers in
JSON, too: the exit status of each run, and what it said.
"""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bookbinder.running.forking import each_in_a_fork

WANTED = (
    "torch",
    "torch.fx.experimental.symbolic_shapes",
    "mkdocs.config",
    "bs4",
    "matplotlib.backends.backend_svg",
)
OURS = ("bookbinder", "tested_transformer")
# Hypothesis takes a second to import, and no page asks for it.
OFF = [f"-pno:{plugin}" for plugin in ("cacheprovider", "hypothesispytest")]
SECONDS = 120.0


def run_there(folder: str, tests: list[str]) -> tuple[int, str]:
    """Run tests of a copy with the code of that copy; only in a fork."""
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    os.chdir(folder)
    sys.path.insert(0, str(Path(folder, "src")))
    with redirect_stdout(io.StringIO()) as said:
        status = pytest.main([*OFF, "-s", *tests])
    homes = [str(import_module(name).__file__) for name in OURS]
    assert all(home.startswith(folder) for home in homes), homes
    return int(status), said.getvalue()


def main() -> None:
    runs: list[tuple[str, list[str]]] = json.load(sys.stdin)
    for name in WANTED:
        import_module(name)

    def work() -> Iterator[tuple[int, Callable[[], Any], float]]:
        for number, (folder, tests) in enumerate(runs):
            yield number, partial(run_there, folder, tests), SECONDS

    ended = dict(each_in_a_fork(work(), jobs=1))
    answers = [ended[number] for number in range(len(runs))]
    print(json.dumps([each.value or (-1, each.died) for each in answers]))


if __name__ == "__main__":
    main()
