"""Stamps name the code that was measured, and tell when it has changed."""

import json
import subprocess
from pathlib import Path

import pytest
from benchmarks import stamp as stamps
from benchmarks.printing import lines, outdated_lines
from benchmarks.stamp import changed_modules, shown_command, stamp

import tested_transformer.attention
from transformer_book import load_record


def test_a_record_is_printed_with_its_machine_and_its_numbers() -> None:
    printed = "\n".join(lines(load_record("sharing")))
    assert printed.startswith("sharing: 2026-11-23T")
    assert "threads of 2 cores; torch 2.13.0" in printed
    assert "shared_by" in printed
    assert "ms  (" in printed


def test_a_stamp_names_the_modules_that_were_imported() -> None:
    record_stamp = stamp(
        ["parts", "--out", "/a/b.json"], threads=3, peers={"minGPT": "1"}
    )
    assert json.loads(json.dumps(record_stamp)) == record_stamp
    assert record_stamp["command"] == "python -m benchmarks parts --out PATH"
    used = f"src/{tested_transformer.__name__}/attention.py"
    assert record_stamp["modules"][used].startswith("sha256:")
    assert "benchmarks/stamp.py" not in record_stamp["modules"]
    assert changed_modules({"stamp": record_stamp}) == []


def test_a_command_is_shown_without_paths() -> None:
    arguments = ["loss", "--out=/a/b.json", "--mingpt", "../c", "--threads", "2"]
    shown = "python -m benchmarks loss --out=PATH --mingpt PATH --threads 2"
    assert shown_command(arguments) == shown


def test_a_changed_module_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kept", "edited"):
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(stamps, "ROOT", tmp_path)
    modules = {
        name: stamps.fingerprint(tmp_path / "kept")
        for name in ("kept", "edited", "gone")
    }
    record = {"stamp": {"date": "2026-11-21T00:00:00", "modules": modules}}
    stamps.write_record(tmp_path / "loss.json", record)
    assert changed_modules(record) == ["gone"]
    (tmp_path / "edited").write_text("2")
    (line,) = outdated_lines(tmp_path)
    assert line.endswith("2 of 3 modules have changed: edited, gone")


def test_an_edited_docstring_or_comment_is_the_same_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""Before."""\n\n\ndef one():\n    """Say one."""\n    return 1\n')
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "One")):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    monkeypatch.setattr(stamps, "ROOT", tmp_path)
    modules = {"module.py": stamps.fingerprint(file)}
    record = {"stamp": {"commit": stamps.commit(), "modules": modules}}
    file.write_text("def one():\n    return 1  # a comment\n")
    assert changed_modules(record) == []
    file.write_text("def one():\n    return 2\n")
    assert changed_modules(record) == ["module.py"]
    # What was measured was not what stands in the commit.
    record["stamp"]["modules"] = {"module.py": "sha256:0123456789abcdef"}
    file.write_text("def one():\n    return 1\n")
    assert changed_modules(record) == ["module.py"]
