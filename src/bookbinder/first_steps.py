"""Do what the README shows: ``make dist`` runs this file where only the package is.

python -P first_steps.py README.md
"""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from tested_transformer import __file__ as place, __version__
from tested_transformer.cli import main

# Settings of a model that trains in a moment.
TINY = (
    "--steps 2 --num-layers 1 --num-heads 2 --d-model 8 --max-seq-len 8 "
    "--num-characters 9000"
)


def take_first_steps(readme: str) -> None:
    """Run the blocks and the commands of the README in the current folder.

    Raises:
        AssertionError: If the first block prints something else, or a command fails.
    """
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", readme, re.DOTALL)
    for number, (code, output) in enumerate(blocks):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        # The others print numbers, which may differ in their last digit.
        assert number or printed.getvalue() == output, printed.getvalue()
    Path("path/to").mkdir(parents=True)
    Path("path/to/text.txt").write_text("to be, or not to be: that is it. " * 70)
    for line in re.findall(r"^\$ tested-transformer (\w.*)$", readme, re.MULTILINE):
        words = shlex.split(line, comments=True)
        assert main(words + TINY.split() * (words[0] == "train")) == 0, line


if __name__ == "__main__":
    take_first_steps(Path(sys.argv[1]).read_text("utf-8"))
    print("The README holds for", place, __version__)
