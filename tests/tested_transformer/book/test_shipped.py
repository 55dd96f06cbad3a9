"""The models, records and scripts that pages read, and the wheel that brings them."""

import re
from collections.abc import Callable

import pytest

from tested_transformer.book import (
    JAVASCRIPT,
    MODELS,
    RECORDS,
    load_record,
    model_folder,
)
from tested_transformer.checkpoints import load_shipped


@pytest.mark.parametrize("name", sorted(each.stem for each in RECORDS.iterdir()))
def test_a_record_has_results_and_a_stamp(name: str) -> None:
    record = load_record(name)
    assert record["kind"] == name
    assert {"results", "stamp"} <= record.keys()


@pytest.mark.parametrize("name", sorted(each.name for each in MODELS.iterdir()))
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
