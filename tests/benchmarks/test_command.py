"""The command line, and results of the form that the records have."""

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import __main__ as command_line
from benchmarks.gpu import NOT_MEASURED
from benchmarks.registry import MEASUREMENTS, OPTIONS
from benchmarks.run import Run

from transformer_book import RECORDS, load_record


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_every_measurement_has_a_function_and_options_that_are_known() -> None:
    for name, entry in MEASUREMENTS.items():
        assert callable(entry.function()), name
        assert {*entry.options} <= OPTIONS.keys(), name
    others = {file.stem for file in RECORDS.iterdir()} - MEASUREMENTS.keys()
    assert others == {"h100"}


def test_bad_arguments_are_one_line_and_status_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("abca")
    for arguments, complaint in (
        ("train", "--shakespeare must be given: a path to tiny Shakespeare"),
        ("worth --shakespeare=a.txt", "--shakespeare=a.txt has 3 different cha"),
        ("train --threads=0", "--threads=0 must be positive"),
        ("train --nanogpt=.", ". is no checkout of nanoGPT: it has no model.py"),
        ("cost --out=a/b.json", "--out=a/b.json: there is no such folder"),
        ("cost --nanogpt=.", "unrecognized arguments: --nanogpt=."),
    ):
        with pytest.raises(SystemExit) as ended:
            command_line.main(arguments.split())
        assert ended.value.code == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(f"python -m benchmarks: error: {complaint}")


def test_a_run_is_printed_and_written_with_its_stamp(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("transformer_book.RECORDS", tmp_path)
    monkeypatch.setattr(command_line, "RECORDS", tmp_path)
    command_line.main(["gpu", "--threads=3"])
    record = load_record("gpu")
    assert (record["kind"], record["quick"]) == ("gpu", False)
    assert record["results"] == NOT_MEASURED
    assert record["stamp"]["peers"]["nanoGPT"] == "not measured"
    assert record["stamp"]["threads"] == torch.get_num_threads() == 3
    assert NOT_MEASURED in capsys.readouterr().out


def misfits(quick: Any, record: Any, place: str = "results") -> list[str]:
    """Return where a record has not the form of a quick run.

    A record may have more of what a quick run has one of: seeds, sizes, targets. So the
    values under further keys have the form of the first.
    """
    if isinstance(quick, dict) and isinstance(record, dict):
        sizes = {key for key in (*quick, *record) if key.isdigit()}
        wrong = [f"{place} {key}" for key in quick if key not in {*record, *sizes}]
        for key, value in record.items():
            known = [key] if key in quick else [*sizes & quick.keys()] or [*quick]
            wrong += misfits(quick[known[0]], value, f"{place} {key}")
        return wrong
    if isinstance(quick, list | tuple) and isinstance(record, list):
        wrong = [] if len(record) >= len(quick) else [place]
        return wrong + [w for item in record for w in misfits(quick[0], item, place)]
    numbers = isinstance(quick, int | float) and isinstance(record, int | float)
    return [] if numbers or type(quick) is type(record) else [place]


def test_a_misfit_is_seen() -> None:
    quick = {"seeds": [1], "losses": {"plain": {"0": [0.5, 0.25]}}}
    record = {"seeds": [1, 2], "losses": {"plain": {"0": [1.0, 2], "1": [3.0, 4]}}}
    assert misfits(quick, record) == []
    record["losses"]["plain"]["1"] = [5.0]
    record["losses"]["fast"] = {"0": "long"}
    assert misfits(quick, record) == [
        "results losses plain 1",
        "results losses fast 0",
    ]
    assert misfits(quick, {"seeds": []}) == ["results losses", "results seeds"]


QUICK = (
    *("blocks", "compressed", "distances", "drafts", "eviction", "indexer", "latent"),
    *("lengths", "names", "recall", "serving", "several", "softmaxes", "tiles"),
    "windows",
)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize(
    "name",
    ["sharing", "steps", *(pytest.param(n, marks=pytest.mark.nightly) for n in QUICK)],
)
def test_a_record_has_what_is_measured(name: str) -> None:
    torch.set_num_threads(1)  # the models are too small to share
    quick = MEASUREMENTS[name].function()(Run(quick=True, threads=1))
    record = load_record(name)
    assert not record["quick"]
    assert misfits(quick, record["results"]) == []
