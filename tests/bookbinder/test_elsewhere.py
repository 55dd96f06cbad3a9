import re
import subprocess
from pathlib import Path

import pytest

from bookbinder.elsewhere import PATHS, ROOT, main

TEST = """
import os

def test_machine():
    assert os.environ.get("BOOK_THREADS") != "4"
    import torch
    from tested_transformer.training import choose_precision
    chosen = choose_precision(torch.device("cpu"), step=lambda precision: None)
    assert chosen == os.environ["BOOK_AUTO_PRECISION"]
"""


@pytest.mark.nightly
def test_each_setting_reaches_the_tests_and_what_fails_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_machine.py"
    file.write_text(TEST)
    assert main(["bf16", "fp32", "threads-4", str(file), "-q"]) == 1
    told = capfd.readouterr().out
    assert re.findall(r"^([a-z0-9-]+) +1 (\w+) in", told, re.MULTILINE) == [
        ("bf16", "passed"),
        ("fp32", "passed"),
        ("threads-4", "failed"),
    ]
    assert "AssertionError: assert '4' != '4'" in told


def test_options_alone_run_the_pages_and_what_trains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [path for path in PATHS if not (ROOT / path).is_dir()] == []
    told: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        told.append(command)
        return subprocess.CompletedProcess(command, 0, "1 passed")

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["seed", "-n", "logical"]) == 0
    assert main(["seed", "-n", "2", "docs/index.md::audit"]) == 0
    assert [command[5:] for command in told] == [
        ["-n", "logical", *PATHS],
        ["-n", "2", "docs/index.md::audit"],
    ]
