"""Try the README's examples with the installed library, in an empty folder.

    python -P first_steps.py README.md [PACKAGE ...]

Another Python runs this file, with only the library of this book installed. The named
packages are hidden, to test the errors that say what to install.
"""

import contextlib
import io
import re
import shlex
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Settings of a model that trains in a moment.
TINY = (
    "--steps 2 --num-layers 1 --num-heads 2 --d-model 8 --max-seq-len 8 "
    "--num-characters 9000"
)
EXTRAS = {
    "plots": "transformer_book.plots",
    "jax": "transformer_book.implementations.flax_layer",
}


def main(readme: str, *hidden: str) -> None:
    """Run the example and the commands, draw a picture, and import hidden packages."""
    modules: dict[str, Any] = dict.fromkeys(hidden)
    sys.modules.update(modules)  # None in sys.modules hides a module
    text = Path(readme).read_text("utf-8")
    found = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", text, re.DOTALL)
    assert found, "the README has no example with an output"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(found[1], {})
    assert printed.getvalue() == found[2], f"the example prints {printed.getvalue()!r}"

    from tested_transformer.cli import main as command

    Path("path/to").mkdir(parents=True)
    Path("path/to/text.txt").write_text("to be, or not to be: that is it. " * 70)
    for line in re.findall(r"^\$ tested-transformer (\w.*)$", text, re.MULTILINE):
        more = TINY if line.startswith("train") else ""
        assert command(shlex.split(f"{line}\n{more}", comments=True)) == 0, line
    asked: list[str] = []
    for extra, module in EXTRAS.items():
        try:
            import_module(module)
        except ImportError as error:
            if f'pip install "tested-transformer[{extra}]"' not in str(error):
                raise
            asked.append(extra)
    pairs = f"train path/to/text.txt --tokenizer bpe --out runs/pairs {TINY}"
    if command(shlex.split(pairs)) != 0:
        asked.append("bpe")
    for name in hidden:
        del sys.modules[name]
    if find_spec("matplotlib"):
        import torch

        plots = import_module("transformer_book.plots")
        weights = torch.eye(3).expand(2, 3, 3)
        plots.head_maps(weights, queries=["a", "b", "c"]).savefig("heads.svg")
    library = import_module("tested_transformer")
    print(library.__file__, library.__version__, "without", *asked)


if __name__ == "__main__":
    main(*sys.argv[1:])
