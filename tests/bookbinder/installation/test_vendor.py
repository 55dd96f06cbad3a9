"""Front-end assets are copied once, renewed when they change, and missed aloud."""

from pathlib import Path

import pytest

from bookbinder.installation import vendor

CSS = (
    '@font-face{src:url(fonts/A.woff2) format("woff2"),'
    'url(fonts/A.woff) format("woff"),url(fonts/A.ttf) format("truetype")}'
)


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "node_modules"
    for name, text in {
        "katex/dist/katex.min.css": CSS,
        "katex/dist/fonts/A.woff2": "2",
        "katex/dist/fonts/A.ttf": "t",
        "mermaid/dist/mermaid.min.js": "m",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def held(target: Path) -> dict[str, str]:
    return {
        file.relative_to(target).as_posix(): file.read_text()
        for file in target.rglob("*")
        if file.is_file()
    }


def test_what_pages_need_is_copied_and_nothing_else(
    modules: Path, tmp_path: Path
) -> None:
    target = tmp_path / "vendor"
    assert vendor.vendor(modules, target)
    assert held(target) == {
        "katex/katex.min.css": ('@font-face{src:url(fonts/A.woff2) format("woff2")}'),
        "katex/fonts/A.woff2": "2",
        "mermaid/mermaid.min.js": "m",
    }


def test_the_second_time_nothing_is_done(modules: Path, tmp_path: Path) -> None:
    target = tmp_path / "vendor"
    vendor.vendor(modules, target)
    before = {file: file.stat().st_mtime_ns for file in target.rglob("*")}
    assert not vendor.vendor(modules, target)
    assert before == {file: file.stat().st_mtime_ns for file in target.rglob("*")}


def test_a_changed_a_lost_and_a_stray_file_are_set_right(
    modules: Path, tmp_path: Path
) -> None:
    target = tmp_path / "vendor"
    vendor.vendor(modules, target)
    right = held(target)
    (target / "katex" / "katex.min.css").write_text("old")
    assert vendor.vendor(modules, target)
    (target / "mermaid" / "mermaid.min.js").unlink()
    assert vendor.vendor(modules, target)
    (target / "stray").write_text("x")
    assert vendor.vendor(modules, target)
    assert held(target) == right


def test_a_missing_package_is_one_line_that_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vendor, "ROOT", tmp_path)
    assert vendor.main() == 1
    said = capsys.readouterr().err
    assert said.endswith("katex.min.css is missing: run make setup\n")
    assert said.count("\n") == 1
