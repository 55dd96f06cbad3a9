"""The models that the book ships are what their cards say."""

import json
import re
import shlex

import pytest
import torch
from benchmarks.models import COMMANDS, grammar_scores, head_means, sample
from safetensors.torch import load_file

from tested_transformer.checkpoints import load_shipped
from tested_transformer.cli.command import make_parser
from tested_transformer.cli.flags import arguments_for
from tested_transformer.data import tokenizer_from_dict, write_stories
from tested_transformer.gpt import GPTConfig
from tested_transformer.training import Recipe, evaluate, honest_loss
from transformer_book import MODELS

KINDS = ["grammar", "shakespeare", "stories"]
SEEDS = [name for name in COMMANDS if name not in KINDS]
of_models = pytest.mark.parametrize(
    "names",
    [
        KINDS,
        pytest.param(SEEDS, marks=pytest.mark.nightly),
    ],
    ids=["one of each kind", "further seeds"],
)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_what_ships_is_what_is_made() -> None:
    assert sorted(folder.name for folder in MODELS.iterdir()) == sorted(COMMANDS)
    files = {
        name: sum(file.stat().st_size for file in (MODELS / name).iterdir())
        for name in COMMANDS
    }
    assert max(files.values()) <= 2_000_000
    assert files["grammar"] + files["shakespeare"] <= 2_000_000


def test_a_card_says_how_its_model_was_made() -> None:
    for name, command in COMMANDS.items():
        card = load_shipped(MODELS / name).card  # compares the weights with their hash
        assert card["name"] == name
        typed = make_parser().parse_args(shlex.split(command))
        for part, kind in (("config", GPTConfig), ("recipe", Recipe)):
            settings = arguments_for(typed, kind)
            assert {key: card[part][key] for key in settings} == settings, name
        assert card["torch"].startswith("2.13")
        assert re.fullmatch("[0-9a-f]{40}", card["commit"])
        assert isinstance(card["dirty"], bool)


@of_models
def test_a_model_writes_its_own_sample_and_predicts_it_as_its_card_says(
    names: list[str],
) -> None:
    for name in names:
        shipped = load_shipped(MODELS / name)
        recorded = shipped.card["sample"]
        tokenizer, text = (
            tokenizer_from_dict(shipped.card["tokenizer"]),
            recorded["text"],
        )
        loss = evaluate(shipped.model, torch.tensor(tokenizer.encode(text)))
        assert loss == pytest.approx(recorded["loss"], abs=2e-3), name
        assert sample(shipped.model, tokenizer)["text"][:20] == text[:20], name


def test_the_loss_holds_on_stories_that_no_model_has_read() -> None:
    stories = write_stories(16_000, seed=77)
    for name in (name for name in COMMANDS if name.startswith("grammar")):
        shipped = load_shipped(MODELS / name)
        tokenizer = tokenizer_from_dict(shipped.card["tokenizer"])
        tokens = torch.tensor(tokenizer.encode(stories.text))
        loss, recorded = evaluate(shipped.model, tokens), shipped.card["loss"]
        assert loss == pytest.approx(recorded["held_out"], abs=0.03), name
        # No honest model beats the grammar itself.
        assert loss > stories.surprisal / len(stories.text), name
        assert recorded["bound"] < recorded["held_out"] < 0.65, name
        honest = honest_loss(shipped.model, tokens, num_windows=2, num_positions=3)
        assert honest.gap < 1e-3, name


def test_shakespeare_was_learned() -> None:
    """The text does not ship; what the card says was measured where it is."""
    shipped = load_shipped(MODELS / "shakespeare")
    recorded = shipped.card["loss"]
    assert recorded["held_out"] < 1.75
    assert recorded["honest"] == pytest.approx(recorded["one_pass"], abs=1e-3)
    tokenizer = tokenizer_from_dict(shipped.card["tokenizer"])
    line = "First Citizen:\nBefore we proceed any further, hear me speak.\n"
    tokens = torch.tensor(tokenizer.encode(line))
    shuffled = tokens[torch.randperm(len(tokens))]
    assert evaluate(shipped.model, tokens) < 1.5
    assert evaluate(shipped.model, shuffled) > 4


def test_the_scores_beside_a_model_are_those_of_its_heads() -> None:
    shipped = load_shipped(MODELS / "grammar")
    tokenizer = tokenizer_from_dict(shipped.card["tokenizer"])
    scores_now = grammar_scores(shipped.model, tokenizer)
    recorded = json.loads((MODELS / "grammar/heads.json").read_text("utf-8"))
    assert recorded["text"] == scores_now["text"]
    for kind, scores in recorded["scores"].items():
        ours = torch.tensor(scores_now["scores"][kind])
        torch.testing.assert_close(ours, torch.tensor(scores), rtol=0, atol=5e-3)
    assert recorded["of an even head"] == scores_now["of an even head"]


@of_models
def test_means_are_what_heads_write_in_new_stories(names: list[str]) -> None:
    for name in (name for name in names if name.startswith("stories")):
        shipped = load_shipped(MODELS / name)
        tokenizer = tokenizer_from_dict(shipped.card["tokenizer"])
        means = load_file(MODELS / name / "means.safetensors")["means"].float()
        expected = head_means(shipped.model, tokenizer)
        torch.testing.assert_close(means, expected, atol=1e-3, rtol=1e-3)
