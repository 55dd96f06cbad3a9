"""What the stories say of themselves, against sentences that are read by hand."""

import torch

from tested_transformer.data import (
    Stories,
    Word,
    agreements,
    name_target,
    subject_target,
    write_stories,
)

#       0         1         2         3         4
#       01234567890123456789012345678901234567890123456789
TEXT = "The cats that Kobo sees are big. Kobo says well.\n"
STORIES = Stories(
    TEXT,
    (
        Word("The", 0, "determiner"),
        Word("cats", 4, "noun"),
        Word("that", 9, "link"),
        Word("Kobo", 14, "name"),
        Word("sees", 19, "verb", subject=3),
        Word("are", 24, "verb", subject=1),
        Word("big", 28, "adjective"),
        Word(".", 31, "mark"),
        Word("Kobo", 33, "name", refers_to=3),
        Word("says", 38, "verb", subject=8),
        Word("well", 43, "adverb"),
        Word(".", 47, "mark"),
    ),
    0.0,
)


def test_a_verb_shows_its_number_where_the_forms_part():
    found = list(agreements(STORIES))
    told = [
        (TEXT[: each.at + 1].split()[-1], TEXT[each.subject : each.end])
        for each in found
    ]
    assert told == [("see", "Kobo"), ("sees", "cats"), ("say", "Kobo")]
    assert [(each.right, each.wrong) for each in found] == [
        ("s", " ,."),
        ("a", "i"),
        ("s", " ,."),
    ]
    assert [TEXT[each.at] for each in found] == ["e", " ", "y"]


def test_the_right_character_comes_next_in_real_stories():
    stories = write_stories(4000, seed=3)
    found = list(agreements(stories))
    assert len(found) > 100
    for each in found:
        assert stories.text[each.at + 1] in each.right
        assert stories.text[each.at + 1] not in each.wrong
        assert each.end <= each.at + 1
        assert stories.text[each.end] in " ,."


def test_a_subject_is_marked_with_the_character_after_it():
    found = list(agreements(STORIES))
    target = subject_target(found, [0, 10], 30)
    assert target.shape == (2, 30, 30)
    assert target.dtype == torch.bool
    marked = [(row, query, key) for row, query, key in target.nonzero().tolist()]
    first = [(0, 21, key) for key in range(14, 19)]
    second = [(0, 23, key) for key in range(4, 9)]
    # From 10 on, the cats are not in the window, and says is beyond its end.
    assert marked == [*first, *second, *((1, 11, key) for key in range(4, 9))]


def test_a_name_is_copied_letter_by_letter():
    for letter in range(4):
        target = name_target(STORIES, [0, 12, 15], 30, letter=letter)
        wanted = [(1, 33 + letter - 1 - 12, 14 + letter - 12)]
        if letter:
            wanted.append((2, 33 + letter - 1 - 15, 14 + letter - 15))
        assert target.nonzero().tolist() == [list(each) for each in wanted]
    assert not name_target(STORIES, [0], 20, letter=2).any()
