"""The book's model, and what judges it."""

from collections.abc import Callable

import pytest
import torch

from tested_transformer.data import WordTokenizer
from transformer_book.our_gpt import (
    held_out_stories,
    number_right,
    our_gpt,
    sentences_right,
    worth,
    worth_by_rate,
)


class Always(torch.nn.Module):
    """A model that always thinks the same words likely."""

    def __init__(self, words: WordTokenizer, likely: str) -> None:
        super().__init__()
        self.vocab_size = words.vocab_size
        self.likely = words.encode(likely)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*tokens.shape, self.vocab_size)
        logits[..., self.likely] = 9.0
        return logits


def test_the_model_gets_numbers_right_and_a_constant_does_not() -> None:
    model, words = our_gpt()
    stories = held_out_stories(8_000)
    assert number_right(model, words, stories) > 0.95
    one = number_right(Always(words, "sees"), words, stories)
    many = number_right(Always(words, "see"), words, stories)
    assert one + many == pytest.approx(1)
    assert 0.3 < one < 0.7


def test_every_seed_is_another_model_of_the_same_words() -> None:
    first, words = our_gpt()
    for seed in range(2, 6):
        model, same = our_gpt(seed)
        assert same.vocabulary == words.vocabulary
        assert model.config == first.config
        first_weight, new_weight = (
            gpt.token_embedding.weight for gpt in (first, model)
        )
        assert not torch.equal(first_weight, new_weight)
    with pytest.raises(ValueError, match=r"^seed=6 must be one of 1 to 5$"):
        our_gpt(6)


def test_sentences_are_judged_by_the_grammar() -> None:
    model, words = our_gpt()
    assert sentences_right(model, words, num_samples=4) > 0.85
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.0)
    assert sentences_right(model, words, num_samples=4) < 0.1


@pytest.mark.parametrize("table", [worth, worth_by_rate])
def test_an_unknown_part_is_told_which_there_are(table: Callable[[str], str]) -> None:
    with pytest.raises(ValueError, match=r"^'two heads' must be one of the whole"):
        table("two heads")


def test_the_rates_of_a_row_stand_in_order() -> None:
    for line in worth_by_rate().splitlines()[2:]:
        name = line.split("  ")[0]
        rows = [f"{name}, ½ × rates", name, f"{name}, 2 × rates"]
        numbers = [worth(row).splitlines()[-1].split()[-6:-3] for row in rows]
        means = [sum(map(int, counts)) / 3 for counts in numbers]
        shown = [float(word) for word in line.split()[-6:-3]]
        assert shown == pytest.approx(means, abs=1)
