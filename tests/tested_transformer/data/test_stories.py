import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
import torch

from tested_transformer.data.stories import (
    FEW_NAMES,
    STORY_RULES,
    Stories,
    Word,
    story_entropy,
    write_stories,
)

PLURAL_NOUNS = {"cats", "dogs", "foxes", "wolves", "mice", "geese", "horses", "birds"}
NOUNS = PLURAL_NOUNS | {"cat", "dog", "fox", "wolf", "mouse", "goose", "horse", "bird"}
ADVERBS = {"alone", "well", "again", "here"}
SLEEP = {"sleep", "run", "sing", "dance", "eat", "wait"}
CHASE = {"see", "chase", "love", "fear", "follow", "know", "hear"}
SAY = {"say", "think", "dream"}


@cache
def stories() -> Stories:
    return write_stories(50_000, seed=7)


def stem(verb: str) -> str:
    return "is" if verb in ("is", "are") else verb.removesuffix("s")


class Reader:
    """Reads stories from left to right, and finds out who does what to whom.

    It knows words, and nothing of the rules that wrote them.
    """

    def __init__(self, words: list[str]) -> None:
        self.words = [word.lower() for word in words]
        self.names = {word.lower() for word in words if re.fullmatch("[A-Z]...", word)}
        self.names -= {"when", "this", "many", "some", "they"}
        self.at = 0
        self.subjects: dict[int, int] = {}
        self.meant: dict[int, int] = {}
        while self.at < len(words):
            self.sentence()

    def take(self, *wanted: str) -> int:
        assert not wanted or self.words[self.at] in wanted, (self.at, wanted)
        self.at += 1
        return self.at - 1

    def next_is(self, *words: str) -> bool:
        return self.words[self.at] in words

    def sentence(self) -> None:
        if self.next_is("when"):
            self.take()
            head = self.clause()
            self.take(",")
            pronoun = self.take("it", "they")
            self.meant[pronoun] = head
            self.verbs(pronoun)
        else:
            self.clause()
        self.take(".")

    def clause(self) -> int:
        head = self.phrase()
        self.verbs(head)
        return head

    def phrase(self) -> int:
        while self.words[self.at] not in NOUNS | self.names:
            self.take()
        head = self.take()
        if self.next_is("near", "behind"):
            self.take()
            self.take("the")
            self.take()
        if self.next_is("that"):
            self.take()
            if stem(self.words[self.at]) in SLEEP | CHASE:
                self.verb(head, whole=True)
            else:
                self.verb(self.phrase(), whole=False)
        return head

    def verbs(self, subject: int) -> None:
        self.verb(subject, whole=True)
        if self.next_is("and"):
            self.take()
            self.verb(subject, whole=True)

    def verb(self, subject: int, *, whole: bool) -> None:
        index = self.take()
        self.subjects[index] = subject
        kind = stem(self.words[index])
        if kind in SLEEP:
            if self.words[self.at] in ADVERBS:
                self.take()
        elif kind in CHASE:
            if whole:
                self.phrase()
        elif kind in SAY:
            self.take("that")
            self.clause()
        else:
            assert kind == "is"
            if self.next_is("a"):
                self.phrase()
            else:
                self.take("hungry", "tired", "happy", "lost")


def lines(told: Stories) -> Iterator[list[Word]]:
    start = 0
    for line in told.text.splitlines(keepends=True):
        end = start + len(line)
        yield [word for word in told.words if start <= word.start < end]
        start = end


def test_the_beginning_is_the_same_everywhere():
    told = write_stories(3_000)
    assert told.text.startswith(
        "Rika is a small wolf. Pipa is a proud mouse. This small goose that the "
        "wolves that the proud fox knows fear loves the horses that love the birds. "
    )
    digest = hashlib.sha256(told.text[:3_000].encode()).hexdigest()
    assert digest.startswith("2e30e018dd03a17e")


def test_words_lie_where_they_say():
    told = stories()
    found = [(m[0], m.start()) for m in re.finditer(r"\w+|[.,]", told.text)]
    assert found == [(word.text, word.start) for word in told.words]
    assert all(told.text[word.start : word.end] == word.text for word in told.words)


def test_the_text_looks_like_text():
    text = stories().text
    assert text.endswith(".\n")
    assert re.fullmatch(r"((([A-Z]\w+)(,? \w+)*\. ?)+(?<=\.)\n)+", text)
    assert len(set(text)) < 45


def test_every_subject_and_every_meaning_is_what_a_reader_finds():
    told = stories()
    reader = Reader([word.text for word in told.words])
    subjects = {
        index: word.subject
        for index, word in enumerate(told.words)
        if word.subject is not None
    }
    assert subjects == reader.subjects
    verbs = [index for index, word in enumerate(told.words) if word.kind == "verb"]
    assert verbs == sorted(subjects)
    pronouns = {
        index: word.refers_to
        for index, word in enumerate(told.words)
        if word.kind == "pronoun"
    }
    assert pronouns == reader.meant
    assert len(verbs) > 2_000
    assert len(pronouns) > 100


def test_a_name_refers_to_the_same_name_before_it_in_its_story():
    told = stories()
    index = 0
    for line in lines(told):
        seen: dict[str, int] = {}
        for word in line:
            if word.kind == "name":
                assert word.refers_to == seen.get(word.text)
                seen[word.text] = index
            index += 1
        assert len(seen) == 2
    assert index == len(told.words)


def test_nothing_else_refers_to_anything():
    for word in stories().words:
        assert word.subject is None or word.kind == "verb"
        assert word.refers_to is None or word.kind in ("pronoun", "name")


def test_every_verb_and_pronoun_agrees():
    words = stories().words

    def plural(index: int) -> bool:
        return words[index].text.lower() in PLURAL_NOUNS | {"they"}

    for word in words:
        if word.kind == "verb":
            assert word.subject is not None
            assert plural(word.subject) != word.text.endswith("s"), word
        if word.kind == "pronoun":
            assert word.refers_to is not None
            assert plural(word.refers_to) == (word.text == "they"), word


def test_agreement_reaches_over_nouns_of_the_other_number():
    words = stories().words
    misled = 0
    for index, word in enumerate(words):
        if word.subject is not None:
            nouns = [w.text for w in words[word.subject : index] if w.kind == "noun"]
            plural = [noun in PLURAL_NOUNS for noun in nouns]
            misled += len(plural) > 1 and plural[0] != plural[-1]
    # Whoever goes by the nearest noun is wrong in more than one verb of twenty.
    assert misled > 0.05 * sum(word.kind == "verb" for word in words)


def derivations(words: list[str]) -> tuple[int, float]:
    """Count how many ways the rules have to a text, and add up their probabilities."""

    @cache
    def ends(symbol: str, start: int) -> dict[int, tuple[int, float]]:
        if symbol not in STORY_RULES:
            fits = start < len(words) and words[start] == symbol
            return {start + 1: (1, 1.0)} if fits else {}
        found: dict[int, tuple[int, float]] = {}
        rules = STORY_RULES[symbol]
        for parts, weight in Counter(rules).items():
            reached = {start: (1, weight / len(rules))}
            for part in parts:
                further: dict[int, tuple[int, float]] = {}
                for middle, (ways, chance) in reached.items():
                    for end, (more, times) in ends(part, middle).items():
                        old = further.get(end, (0, 0.0))
                        further[end] = (old[0] + ways * more, old[1] + chance * times)
                reached = further
            for end, (ways, chance) in reached.items():
                old = found.get(end, (0, 0.0))
                found[end] = (old[0] + ways, old[1] + chance)
        return found

    return ends("story", 0).get(len(words), (0, 0.0))


def test_each_story_has_one_derivation_and_its_probability_is_the_surprisal():
    total, count = 0.0, 0
    for line in lines(stories()):
        first, second = dict.fromkeys(word.text for word in line if word.kind == "name")
        placeholders = {first: "$1", second: "$2"}
        written = [placeholders.get(w.text, w.text.lower()) for w in line]
        ways, chance = derivations(written)
        assert ways == 1
        total -= math.log(chance)
        count += 1
    # 10 * 3 * 10 * 3 names, and one less for the second.
    total += count * (math.log(900) + math.log(899))
    assert stories().surprisal == pytest.approx(total, rel=1e-9)


def test_names_are_no_words_and_each_differs_from_the_other():
    lexicon = {
        part for rules in STORY_RULES.values() for parts in rules for part in parts
    }
    names = {word.text for word in stories().words if word.kind == "name"}
    assert len(names) > 300
    assert all(re.fullmatch("[A-Z][aio][a-z][aio]", name) for name in names)
    assert not {name.lower() for name in names} & lexicon


@pytest.mark.nightly
def test_entropy_is_what_a_long_text_holds_for_its_length():
    told = write_stories(200_000, seed=11)
    assert told.surprisal == pytest.approx(len(told.text) * story_entropy(), rel=0.008)


def test_entropy_by_counting_how_often_each_rule_is_used():
    symbols = list(STORY_RULES)
    place = {symbol: index for index, symbol in enumerate(symbols)}
    # How often a symbol makes each other, the nats of its choice, and its characters.
    makes = torch.zeros(len(symbols), len(symbols), dtype=torch.float64)
    nats = torch.zeros(len(symbols), dtype=torch.float64)
    characters = torch.zeros(len(symbols), dtype=torch.float64)
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
    uses = torch.linalg.solve(
        torch.eye(len(symbols), dtype=torch.float64) - makes.T,
        torch.nn.functional.one_hot(
            torch.tensor(place["story"]), len(symbols)
        ).double(),
    )
    entropy = float(uses @ nats) + math.log(900) + math.log(899)
    length = float(uses @ characters)
    assert story_entropy() == pytest.approx(entropy / length, rel=1e-12)
    told = stories()
    count = told.text.count("\n")
    # Stories differ by some 31 % in length.
    assert len(told.text) / count == pytest.approx(length, rel=4 * 0.31 / count**0.5)


def test_entropy_per_word_is_what_a_long_text_holds_for_its_words():
    told = write_stories(100_000, seed=12, names=FEW_NAMES)
    words = len(told.words) + told.text.count("\n")
    for length, per in ((words, "word"), (len(told.text), "character")):
        bound = story_entropy(FEW_NAMES, per=per)
        assert told.surprisal == pytest.approx(length * bound, rel=0.012)
    names = {word.text for word in told.words if word.kind == "name"}
    assert names == {*FEW_NAMES}


def test_one_name_is_not_enough():
    with pytest.raises(ValueError, match=r"^names must have at least two names; it"):
        write_stories(100, names=("Rika",))


def test_a_longer_text_begins_as_a_shorter_one_and_seeds_differ():
    short, long = write_stories(500, seed=2), write_stories(900, seed=2)
    assert long.text.startswith(short.text)
    assert long.words[: len(short.words)] == short.words
    assert 500 <= len(short.text) < len(long.text)
    assert write_stories(500, seed=3).text[:60] != short.text[:60]


def test_it_stops_at_the_first_story_that_is_long_enough():
    told = write_stories(1, seed=2)
    assert told.text.count("\n") == 1
    exact = write_stories(len(told.text), seed=2)
    assert exact.text == told.text
    assert write_stories(len(told.text) + 1, seed=2).text.count("\n") == 2


def test_a_text_of_no_length_is_refused():
    with pytest.raises(ValueError, match=r"^num_characters=0 must be positive$"):
        write_stories(0)
