"""What the stories say of themselves, by letters and by words, and a text by hand."""

import re

import pytest
import torch

from tested_transformer.data.stories import (
    FEW_NAMES,
    Stories,
    Word,
    agreements,
    name_target,
    subject_target,
    write_stories,
)
from tested_transformer.data.story_words import (
    WordAgreement,
    is_sentence,
    token_places,
    verb_forms,
    word_agreements,
    word_name_target,
    word_subject_target,
)
from tested_transformer.data.tokenizers import WordTokenizer

#       0         1         2         3          4
#       01234567890123456789012345678901 23456789012345678
TEXT = "The cats that Nilo sees are big.\nNilo says well.\n"
#       0   1    2    3    4    5   6  7 8   9    10  11 12
STORIES = Stories(
    TEXT,
    (
        Word("The", 0, "determiner"),
        Word("cats", 4, "noun"),
        Word("that", 9, "link"),
        Word("Nilo", 14, "name"),
        Word("sees", 19, "verb", subject=3),
        Word("are", 24, "verb", subject=1),
        Word("big", 28, "adjective"),
        Word(".", 31, "mark"),
        Word("Nilo", 33, "name", refers_to=3),
        Word("says", 38, "verb", subject=8),
        Word("well", 43, "adverb"),
        Word(".", 47, "mark"),
    ),
    0.0,
)


def test_a_verb_shows_its_number_where_the_forms_part():
    places = [
        (TEXT[: agreement.at + 1].split()[-1], TEXT[agreement.subject : agreement.end])
        for agreement in agreements(STORIES)
    ]
    assert places == [("see", "Nilo"), ("sees", "cats"), ("say", "Nilo")]
    forms = [(agreement.right, agreement.wrong) for agreement in agreements(STORIES)]
    assert forms == [("s", " ,."), ("a", "i"), ("s", " ,.")]


def test_the_right_character_comes_next_in_real_stories():
    stories = write_stories(4000, seed=3)
    result = list(agreements(stories))
    assert len(result) > 100
    for agreement in result:
        assert stories.text[agreement.at + 1] in agreement.right
        assert stories.text[agreement.at + 1] not in agreement.wrong
        assert agreement.end <= agreement.at + 1
        assert stories.text[agreement.end] in " ,."


def test_a_subject_is_marked_with_the_character_after_it():
    target = subject_target([*agreements(STORIES)], [0, 10], 30)
    assert (target.shape, target.dtype) == ((2, 30, 30), torch.bool)
    first = [[0, 21, key] for key in range(14, 19)]
    second = [[0, 23, key] for key in range(4, 9)]
    # From 10 on, the cats are not in the window, and says is beyond its end.
    third = [[1, 11, key] for key in range(4, 9)]
    assert target.nonzero().tolist() == [*first, *second, *third]


def test_a_name_is_copied_letter_by_letter():
    for letter in range(4):
        target = name_target(STORIES, [0, 12, 15], 30, letter=letter)
        expected = [(1, 33 + letter - 1 - 12, 14 + letter - 12)]
        if letter:
            expected.append((2, 33 + letter - 1 - 15, 14 + letter - 15))
        assert target.nonzero().tolist() == [list(index) for index in expected]
    assert not name_target(STORIES, [0], 20, letter=2).any()


# Word by word.


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+|[.,]", text)


def test_places_are_those_of_the_tokenizer():
    tales = write_stories(3_000, seed=5, names=FEW_NAMES)
    tokenizer = WordTokenizer.from_text(tales.text)
    ids = tokenizer.encode(tales.text)
    words = [tokenizer.vocabulary[ids[place]] for place in token_places(tales)]
    assert words == [word.text for word in tales.words]


def test_a_verb_is_foretold_from_the_word_before():
    assert [*word_agreements(STORIES)] == [
        WordAgreement(at=3, subject=3, singular=True, distractors=0),
        WordAgreement(at=4, subject=1, singular=False, distractors=1),
        WordAgreement(at=9, subject=9, singular=True, distractors=0),
    ]


def test_verbs_of_real_stories_have_the_number_that_is_said():
    tales = write_stories(5_000, seed=6, names=FEW_NAMES)
    places = dict(zip(token_places(tales), tales.words, strict=True))
    verbs = [*word_agreements(tales)]
    assert len(verbs) > 100
    for agreement in verbs:
        verb = places[agreement.at + 1]
        assert verb.kind == "verb"
        assert verb.text in verb_forms("singular" if agreement.singular else "plural")
        assert places[agreement.subject].kind in ("noun", "name", "pronoun")
    assert {agreement.distractors for agreement in verbs} >= {0, 1, 2}
    with pytest.raises(ValueError, match=r"^number='one' must be 'singular' or"):
        verb_forms("one")


def test_a_subject_is_marked():
    target = word_subject_target([*word_agreements(STORIES)], [0, 2], 6)
    assert target.nonzero().tolist() == [[0, 3, 3], [0, 4, 1], [1, 1, 1]]
    assert (target.dtype, target.shape) == (torch.bool, (2, 6, 6))


def test_names_are_marked_within_their_story():
    tales = write_stories(4_000, seed=7, names=FEW_NAMES)
    words = dict(zip(token_places(tales), tales.words, strict=True))
    length = max(words) + 2
    (target,) = word_name_target(tales, [0], length)
    pairs = target.nonzero().tolist()
    assert len(pairs) > 100
    for query, key in pairs:
        new, old = words[query + 1], words[key]
        assert new.kind == old.kind == "name"
        assert key < query
        assert "\n" not in tales.text[old.start : new.start]
    # The second story does not look back at the name of the first.
    assert not word_name_target(STORIES, [0], 13).any()


def test_a_sentence_is_what_the_grammar_can_write():
    for sentence in (
        "Rika is a small wolf.",
        "The dogs that Nilo sees sleep.",
        "The dog that the cats see sleeps and eats well.",
        "When Tomo sleeps, it runs.",
    ):
        assert is_sentence(words_of(sentence)), sentence
    for sentence in (
        "Rika is a small wolves.",
        "The dogs that Nilo sees sleeps.",
        "When Tomo sleeps, they runs.",
        "the dogs sleep.",
        "The dogs sleep",
        "The dogs sleep. The dogs sleep.",
        "Dogs sleep.",
        "",
    ):
        assert not is_sentence(words_of(sentence)), sentence


def test_every_sentence_of_the_stories_is_one_and_hardly_any_other():
    tales = write_stories(6_000, seed=8, names=FEW_NAMES).text
    sentences = [words_of(sentence) for sentence in re.findall(r"[^.\n]+\.", tales)]
    assert len(sentences) > 50
    assert all(map(is_sentence, sentences))
    swapped = [[*s[:-3], s[-2], s[-3], "."] for s in sentences if len(s) > 4]
    assert sum(map(is_sentence, swapped)) < len(swapped) / 50
    first = words_of(write_stories(500, seed=9).text.partition(".")[0] + ".")
    assert not is_sentence(first)
    assert is_sentence(first, names=(first[0],))
