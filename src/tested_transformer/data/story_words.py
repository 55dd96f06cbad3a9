"""The stories of the grammar, read word by word.

Tokens are those of a ``WordTokenizer``: words, marks, and a line feed after each story.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from jaxtyping import Bool
from torch import Tensor

from tested_transformer.data.stories import (
    FEW_NAMES,
    STORY_RULES,
    Stories,
    Word,
    pairs_target,
)

__all__ = [
    "WordAgreement",
    "is_sentence",
    "token_places",
    "verb_forms",
    "word_agreements",
    "word_name_target",
    "word_subject_target",
]

_MANY = {word for rule in ("noun.p", "pronoun.p") for (word,) in STORY_RULES[rule]}
_NUMBERED = {"noun", "name", "pronoun"}


class WordAgreement(NamedTuple):
    """A verb and the word it agrees with, as indices of tokens.

    Attributes:
        at: The token before the verb, from which the verb's number must be predicted.
        subject: The word that the verb agrees with.
        singular: The number of both.
        distractors: How many nouns, names and pronouns of the other number lie between
            them.
    """

    at: int
    subject: int
    singular: bool
    distractors: int


def word_agreements(stories: Stories) -> Iterator[WordAgreement]:
    """Yield the agreement of every verb of the stories, in order."""
    places = token_places(stories)
    for index, word in enumerate(stories.words):
        if word.subject is None:
            continue
        singular = _is_singular(stories.words[word.subject])
        between = stories.words[word.subject + 1 : index]
        others = [
            noun
            for noun in between
            if noun.kind in _NUMBERED and _is_singular(noun) != singular
        ]
        subject = places[word.subject]
        yield WordAgreement(places[index] - 1, subject, singular, len(others))


def _is_singular(word: Word) -> bool:
    return word.text not in _MANY


def token_places(stories: Stories) -> list[int]:
    """Return, for each word of the stories, its index among the tokens."""
    places: list[int] = []
    ended = 0
    for index, word in enumerate(stories.words):
        ended += word.start > 0 and stories.text[word.start - 1] == "\n"
        places.append(index + ended)
    return places


def verb_forms(number: str) -> list[str]:
    """Return the verbs of one number.

    Args:
        number: ``singular`` or ``plural``.

    Raises:
        ValueError: If ``number`` is neither.
    """
    if number not in ("singular", "plural"):
        raise ValueError(f"number={number!r} must be 'singular' or 'plural'")
    kinds = [rule for rule in STORY_RULES if rule.startswith("verb.")]
    matching = [rule for rule in kinds if rule.endswith(f".{number[0]}")]
    return [verb for rule in matching for (verb,) in STORY_RULES[rule]]


def word_subject_target(
    verbs: Sequence[WordAgreement], starts: Sequence[int], seq_len: int
) -> Bool[Tensor, "B T S"]:
    """Mark, for each verb in windows of the tokens, its subject.

    Args:
        verbs: The agreements of the text.
        starts: Where each window begins.
        seq_len: T, how many tokens a window has.

    Returns:
        ``True`` where the query is the token before a verb, and the key is the verb's
        subject. Verbs whose subject begins before the window are left out.
    """
    pairs = [(verb.at, verb.subject) for verb in verbs]
    return pairs_target(pairs, starts, seq_len)


def word_name_target(
    stories: Stories, starts: Sequence[int], seq_len: int
) -> Bool[Tensor, "B T S"]:
    """Mark, for each repeated name in windows of the tokens, the names to choose from.

    Args:
        stories: The text.
        starts: Where each window begins.
        seq_len: T, how many tokens a window has.

    Returns:
        ``True`` where the query is the token before a name that occurred before, and
        the key is an earlier name of the same story.
    """
    places = token_places(stories)
    pairs: list[tuple[int, int]] = []
    earlier: list[int] = []
    for word, place in zip(stories.words, places, strict=True):
        if word.start == 0 or stories.text[word.start - 1] == "\n":
            earlier = []
        if word.kind == "name":
            if word.refers_to is not None:
                pairs += [(place - 1, name) for name in earlier if name < place - 1]
            earlier.append(place)
    return pairs_target(pairs, starts, seq_len)


def is_sentence(words: Sequence[str], *, names: tuple[str, ...] = FEW_NAMES) -> bool:
    """Say whether the grammar can write these words as a sentence of a story.

    A sentence begins with a capital and ends with a full stop. A name may stand
    wherever the grammar has one, whichever it is.
    """
    if not words or not words[0][:1].isupper():
        return False
    first = "$" if words[0] in names else words[0].lower()
    left: set[tuple[str, ...]] = {("sentence",), ("intro.1",)}
    for token in (first, *("$" if word in names else word for word in words[1:])):
        left = {after for parts in left for after in _follows(parts).get(token, ())}
    return () in left


@cache
def _follows(parts: tuple[str, ...]) -> dict[str, set[tuple[str, ...]]]:
    """Return each word that can begin a text of these parts, with the parts after it.

    No rule leads back to itself, so there are only some thousands to remember.
    """
    if not parts:
        return {}
    first, *others = parts
    if first not in STORY_RULES:
        return {"$" if first.startswith("$") else first: {tuple(others)}}
    follows: dict[str, set[tuple[str, ...]]] = {}
    for alternative in set(STORY_RULES[first]):
        for word, after in _follows((*alternative, *others)).items():
            follows.setdefault(word, set()).update(after)
    return follows
