import sys
import zipfile
from pathlib import Path

import pytest

from bookbinder.hosting.release import (
    ReleaseError,
    build,
    check_contents,
    check_tag,
    try_out,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_the_library_alone_with_its_types(wheel: Path) -> None:
    check_contents(wheel)
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.endswith(".py")}
    library = ROOT / "src" / "tested_transformer"
    wanted = library.rglob("*.py")
    assert held == {file.relative_to(library.parent).as_posix() for file in wanted}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["tested_transformer/py.typed", "bookbinder/__init__.py", "tests/a.py"],
            "x.whl holds bookbinder, tests too",
        ),
        (["tested_transformer/masks.py"], "x.whl lacks tested_transformer/py.typed"),
    ],
)
def test_a_wheel_of_something_else_is_refused(
    names: list[str], message: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        for name in names:
            archive.writestr(name, "")
    with pytest.raises(ReleaseError) as caught:
        check_contents(tmp_path / "x.whl")
    assert str(caught.value) == message


def test_a_tag_has_to_be_the_version() -> None:
    check_tag("v1.2.3", "1.2.3")
    check_tag("", "1.2.3")
    with pytest.raises(ReleaseError) as caught:
        check_tag("v1.2.4", "1.2.3")
    message = "the tag is v1.2.4, the version in pyproject.toml 1.2.3"
    assert str(caught.value) == message


def test_the_readme_runs_from_the_wheel_and_a_wrong_output_is_seen(
    wheel: Path, tmp_path: Path
) -> None:
    # The packages of this environment, and of the project nothing but the wheel.
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    python = tmp_path / "python"
    insert = f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r})"
    python.write_text(
        f"#!{sys.executable} -I\n{insert}\n"
        "import runpy\n"
        "runpy.run_path(sys.argv[-1])\n"
        f"import tested_transformer as t; assert {str(tmp_path)!r} in t.__file__\n"
    )
    python.chmod(0o755)
    try_out(python, ROOT / "README.md")

    page = tmp_path / "README.md"
    page.write_text((ROOT / "README.md").read_text().replace("[2, 4, 10", "[2, 4, 9"))
    with pytest.raises(ReleaseError, match=r"README\.md prints something else"):
        try_out(python, page)
