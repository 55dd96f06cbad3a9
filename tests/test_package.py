"""The package that is installed: what it holds, and what it asks for."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"


@pytest.mark.nightly
def test_the_wheel_holds_the_library_and_what_pages_import(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    build += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(SOURCE.parent)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 8_000_000
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    # Code, py.typed, models, records and scripts; no bookbinder.
    assert names == {
        file.relative_to(SOURCE).as_posix()
        for package in ("attention_check", "tested_transformer", "transformer_book")
        for file in (SOURCE / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.mark.parametrize(
    ("extra", "package", "module"),
    [
        ("plots", "matplotlib", "transformer_book.plots"),
        ("jax", "jax", "transformer_book.implementations.flax_layer"),
    ],
)
def test_a_module_without_its_extra_names_it(
    extra: str, package: str, module: str
) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f'pip install "tested-transformer[{extra}]"' in done.stderr
