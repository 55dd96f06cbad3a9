import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from bookbinder.hosting.release import ROOT, failing_blocks, main, take_first_steps
from tested_transformer import __version__

PAGE = """\
```python
import os

from transformer_book import load_record, model_folder
from tested_transformer.checkpoints import load_shipped

load_shipped(model_folder("grammar"))
losses = load_record("loss")
assert os.listdir() == ["block.py"]
```

Another run:

```python
print(losses)
```
"""


def files_in(folder: Path) -> set[Path]:
    return {
        file.relative_to(folder)
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.mark.nightly
def test_the_wheel_does_alone_what_the_readme_shows(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    build += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    installed = tmp_path / "installed" / "tested_transformer"
    assert len([*installed.parent.iterdir()]) == 2  # and its metadata: nothing else
    library = ROOT / "src" / "tested_transformer"
    # Code, py.typed, models, records and scripts.
    assert files_in(installed) == files_in(library)
    assert wheel.stat().st_size < 8_000_000

    # -S leaves out the .pth file by which this environment finds the repository.
    path = [str(installed.parent), sysconfig.get_path("purelib")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    told = take_first_steps(
        [sys.executable, "-S"], "matplotlib", "tokenizers", "jax", env=env
    )
    where = installed / "__init__.py"
    assert told == f"{where} {__version__} without plots jax bpe"

    python = [sys.executable, "-S"]
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert failing_blocks(python, page, env=env) == [
        "page.md:14: NameError: name 'losses' is not defined"
    ]


def test_a_tag_has_to_be_the_version() -> None:
    with pytest.raises(SystemExit, match=r"^the tag is v9, the version [\d.]+$"):
        main(["--tag", "v9"])
