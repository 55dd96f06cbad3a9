import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor

from tested_transformer.data.stories import (
    FEW_NAMES,
    STORY_RULES,
    Stories,
    Word,
    story_entropy,
    write_stories,
)

PLURAL_NOUNS = {"cats", "dogs", "foxes", "wolves", "mice", "geese", "horses", "birds"}


@cache
def stories() -> Stories:
    return write_stories(50_000, seed=7)


def lines(tales: Stories) -> Iterator[list[Word]]:
    start = 0
    for line in tales.text.splitlines(keepends=True):
        end = start + len(line)
        yield [word for word in tales.words if start <= word.start < end]
        start = end


def test_the_beginning_is_the_same_everywhere():
    tales = write_stories(3_000)
    assert tales.text.startswith(
        "Rika is a small wolf. Pipa is a proud mouse. This small goose that the "
        "wolves that the proud fox knows fear loves the horses that love the birds. "
    )
    digest = hashlib.sha256(tales.text[:3_000].encode()).hexdigest()
    assert digest.startswith("2e30e018dd03a17e")


def test_words_lie_where_they_say():
    tales = stories()
    words = [(m[0], m.start()) for m in re.finditer(r"\w+|[.,]", tales.text)]
    assert words == [(word.text, word.start) for word in tales.words]
    assert all(word.end == word.start + len(word.text) for word in tales.words)


def test_a_name_refers_to_the_same_name_before_it_in_its_story():
    index = 0
    for line in lines(stories()):
        seen: dict[str, int] = {}
        for word in line:
            if word.kind == "name":
                assert word.refers_to == seen.get(word.text)
                seen[word.text] = index
            assert word.refers_to is None or word.kind in ("pronoun", "name")
            index += 1
        assert len(seen) == 2
    assert index == len(stories().words)


def test_every_verb_and_pronoun_agrees():
    words = stories().words
    kinds = Counter(word.kind for word in words)
    assert kinds["verb"] > 2_000
    assert kinds["pronoun"] > 100

    def plural(index):
        assert words[index].kind in ("noun", "name", "pronoun")
        return words[index].text.lower() in PLURAL_NOUNS | {"they"}

    for index, word in enumerate(words):
        assert (word.subject is None) == (word.kind != "verb")
        if word.subject is not None:
            assert word.subject < index
            assert plural(word.subject) != word.text.endswith("s"), word
        if word.kind == "pronoun":
            assert word.refers_to is not None
            assert plural(word.refers_to) == (word.text == "they"), word


def derivations(words: list[str]) -> Tensor:
    """Return how many ways the rules have to a text, and the sum of their chances."""

    def follow(parts, start, so_far):
        """Return where some parts may end, each place with its ways and chances."""
        reached = {start: so_far}
        for part in parts:
            further = defaultdict(lambda: torch.zeros(2, dtype=torch.float64))
            for middle, before in reached.items():
                for end, both in ends(part, middle).items():
                    further[end] = further[end] + before * both
            reached = further
        return reached

    @cache
    def ends(symbol, start):
        if symbol not in STORY_RULES:
            fits = words[start : start + 1] == [symbol]
            return {start + 1: torch.ones(2, dtype=torch.float64)} if fits else {}
        places = defaultdict(lambda: torch.zeros(2, dtype=torch.float64))
        rules = STORY_RULES[symbol]
        for parts, weight in Counter(rules).items():
            one_way = torch.tensor([1.0, weight / len(rules)], dtype=torch.float64)
            for end, both in follow(parts, start, one_way).items():
                places[end] = places[end] + both
        return places

    return ends("story", 0)[len(words)]


def test_each_story_has_one_derivation_and_its_probability_is_the_surprisal():
    total = 0.0
    for line in [*lines(write_stories(9_000, seed=7))]:
        first, second = dict.fromkeys(word.text for word in line if word.kind == "name")
        placeholders = {first: "$1", second: "$2"}
        ways, chance = derivations(
            [placeholders.get(w.text, w.text.lower()) for w in line]
        ).tolist()
        assert ways == 1
        # 10 * 3 * 10 * 3 names, and one less for the second.
        total += math.log(900) + math.log(899) - math.log(chance)
    assert write_stories(9_000, seed=7).surprisal == pytest.approx(total, rel=1e-9)


def test_names_are_no_words_and_each_differs_from_the_other():
    lexicon = {
        part for rules in STORY_RULES.values() for parts in rules for part in parts
    }
    names = {word.text for word in stories().words if word.kind == "name"}
    assert len(names) > 300
    assert all(re.fullmatch("[A-Z][aio][a-z][aio]", name) for name in names)
    assert not {name.lower() for name in names} & lexicon


def test_entropy_by_counting_how_often_each_rule_is_used():
    place = {symbol: index for index, symbol in enumerate(STORY_RULES)}
    # How often a symbol makes each other, the nats of its choice, and its characters.
    makes = torch.zeros(len(place), len(place), dtype=torch.float64)
    nats, characters = torch.zeros(2, len(place), dtype=torch.float64)
    for row, rules in enumerate(STORY_RULES.values()):
        for parts, weight in Counter(rules).items():
            chance = weight / len(rules)
            nats[row] -= chance * math.log(chance)
            for part in parts:
                if part in place:
                    makes[row, place[part]] += chance
                else:
                    length = {",": 1, ".": 1, "$1": 5, "$2": 5}.get(part, len(part) + 1)
                    characters[row] += chance * length
    uses = (torch.eye(len(place)) - makes).inverse()[place["story"]]
    entropy = float(uses @ nats) + math.log(900) + math.log(899)
    length = float(uses @ characters)
    assert story_entropy() == pytest.approx(entropy / length, rel=1e-12)
    count = stories().text.count("\n")
    # Stories differ by some 31 % in length.
    mean = len(stories().text) / count
    assert mean == pytest.approx(length, rel=4 * 0.31 / count**0.5)


def test_entropy_per_word_is_what_a_long_text_holds_for_its_words():
    tales = write_stories(40_000, seed=12, names=FEW_NAMES)
    words = len(tales.words) + tales.text.count("\n")
    for length, per in ((words, "word"), (len(tales.text), "character")):
        bound = story_entropy(FEW_NAMES, per=per)
        assert tales.surprisal == pytest.approx(length * bound, rel=0.012)
    assert {word.text for word in tales.words if word.kind == "name"} == {*FEW_NAMES}


def test_a_longer_text_begins_as_a_shorter_one_and_seeds_differ():
    short, long = write_stories(500, seed=2), write_stories(900, seed=2)
    assert long.text.startswith(short.text)
    assert long.words[: len(short.words)] == short.words
    assert 500 <= len(short.text) < len(long.text)
    assert write_stories(500, seed=3).text[:60] != short.text[:60]
    # It stops at the first story that is long enough.
    first = write_stories(1, seed=2).text
    assert first.count("\n") == 1
    assert write_stories(len(first), seed=2).text == first
    assert write_stories(len(first) + 1, seed=2).text.count("\n") == 2


def test_a_text_of_no_length_or_of_one_name_is_refused():
    with pytest.raises(ValueError, match=r"^num_characters=0 must be positive$"):
        write_stories(0)
    with pytest.raises(ValueError, match=r"^names must have at least two names; it"):
        write_stories(100, names=("Rika",))
