import re
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


def test_without_paths_there_are_pages_and_tests_to_run() -> None:
    assert [path for path in PATHS if not (ROOT / path).is_dir()] == []


@pytest.mark.nightly
def test_each_setting_reaches_the_tests_and_what_fails_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_machine.py"
    file.write_text(TEST)
    assert main(["bf16", "fp32", "threads-4", str(file), "-q"]) == 1
    printed = capfd.readouterr().out
    assert re.findall(r"^1 (\w+) in", printed, re.M) == ["passed", "passed", "failed"]
    assert "AssertionError: assert '4' != '4'" in printed
    assert printed.endswith("\nfailed: threads-4\n")
