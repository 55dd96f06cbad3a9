"""The ``grammar`` corpus: very short stories about animals, with annotations.

In every story two animals get names that return later. Verbs agree with subjects that
can be far away, with other animals in between. Because the text is derived from a
grammar, the subject of each verb and the referent of each name and pronoun are known.
So is the entropy of the stories, the lowest loss that any honest model can expect.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from tested_transformer.checks import validate_sizes

__all__ = [
    "FEW_NAMES",
    "STORY_RULES",
    "Agreement",
    "Stories",
    "Word",
    "agreements",
    "name_target",
    "pairs_target",
    "story_entropy",
    "subject_target",
    "write_stories",
]

_NAMES = tuple(
    first + vowel + second + last
    for first in "BDFKLMNPRT"
    for vowel in "aio"
    for second in "bdfklmnprt"
    for last in "aio"
)

FEW_NAMES = (
    *("Bira", "Dapa", "Faki", "Fodi", "Kado", "Lato"),
    *("Mika", "Nilo", "Pipa", "Rano", "Rika", "Tomo"),
)
"""Twelve names, for stories that are read word by word; usually there are 900."""

# The rules of each symbol: alternatives, each with an integer weight and some parts. A
# part without rules of its own is a word. "#" is s or p, for singular or plural. The
# number after a symbol says how deep clauses may still nest in it.
_LANGUAGE = """
story:    1 intro.1 intro.2 sentence sentence
        | 2 intro.1 intro.2 sentence sentence sentence
        | 1 intro.1 intro.2 sentence sentence sentence sentence
intro.1:  1 name.1 verb.is.s determiner.a adjective noun.s .
intro.2:  1 name.2 verb.is.s determiner.a adjective noun.s .
sentence: 5 clause.s . | 3 clause.p .
        | 1 when clause.s , pronoun.s verbs.s . | 1 when clause.p , pronoun.p verbs.p .

clause.#: 1 subject.#.2 verbs.#
verbs.#:  4 action.# | 2 action.# and action.#
        | 1 verb.say.# that clause.s.1 | 1 verb.say.# that clause.p.1
clause.#.1: 1 subject.#.1 action.#
action.#: 2 verb.do.# | 1 verb.do.# adverb | 4 verb.see.# object.1
        | 1 verb.is.# state

subject.s.0: 2 name | 1 animal.s
subject.p.0: 1 animal.p
subject.s.1: 6 name | 2 animal.s | 1 animal.s place | 2 animal.s clause.that.s.0
subject.p.1: 3 animal.p | 1 animal.p place | 2 animal.p clause.that.p.0
subject.s.2: 6 name | 2 animal.s | 1 animal.s place | 3 animal.s clause.that.s.1
subject.p.2: 2 animal.p | 1 animal.p place | 3 animal.p clause.that.p.1
object.0: 1 subject.s.0 | 1 subject.p.0
object.1: 1 subject.s.1 | 1 subject.p.1
clause.that.#.0: 1 that verb.do.# | 1 that verb.see.# object.0
        | 2 that subject.s.0 verb.see.s | 2 that subject.p.0 verb.see.p
clause.that.#.1: 1 that verb.do.# | 1 that verb.see.# object.1
        | 2 that subject.s.1 verb.see.s | 2 that subject.p.1 verb.see.p
animal.#: 2 determiner.# noun.# | 1 determiner.# adjective noun.#
place:    1 preposition determiner.the landmark.s
        | 1 preposition determiner.the landmark.p

name:     1 $1 | 1 $2
name.1:   1 $1
name.2:   1 $2
pronoun.s: 1 it
pronoun.p: 1 they
determiner.a: 1 a
determiner.the: 1 the
determiner.s: 4 the | 1 every | 1 this
determiner.p: 4 the | 1 some | 1 many | 1 these
noun.s: 1 cat  | 1 dog  | 1 fox   | 1 wolf   | 1 mouse | 1 goose | 1 horse  | 1 bird
noun.p: 1 cats | 1 dogs | 1 foxes | 1 wolves | 1 mice  | 1 geese | 1 horses | 1 birds
landmark.s: 1 tree  | 1 house  | 1 river  | 1 wall
landmark.p: 1 trees | 1 houses | 1 rivers | 1 walls
verb.do.s: 1 sleeps | 1 runs | 1 sings | 1 dances | 1 eats | 1 waits
verb.do.p: 1 sleep  | 1 run  | 1 sing  | 1 dance  | 1 eat  | 1 wait
verb.see.s: 1 sees | 1 chases | 1 loves | 1 fears | 1 follows | 1 knows | 1 hears
verb.see.p: 1 see  | 1 chase  | 1 love  | 1 fear  | 1 follow  | 1 know  | 1 hear
verb.say.s: 1 says | 1 thinks | 1 dreams
verb.say.p: 1 say  | 1 think  | 1 dream
verb.is.s: 1 is
verb.is.p: 1 are
adjective: 2 big | 2 small | 1 young | 1 grey | 1 proud | 1 shy
state: 1 hungry | 1 tired | 1 happy | 1 lost
adverb: 1 alone | 1 well | 1 again | 1 here
preposition: 2 near | 1 behind
"""


def _rules(language: str) -> dict[str, list[tuple[str, ...]]]:
    rules: dict[str, list[tuple[str, ...]]] = {}
    # An indented line that starts with | continues the line before it.
    for line in language.replace("\n        |", " |").strip().splitlines():
        symbol, colon, right = line.partition(":")
        for number in "sp" if "#" in symbol else "#":
            if colon:
                alternatives = map(str.split, right.replace("#", number).split("|"))
                rules[symbol.replace("#", number)] = [
                    tuple(parts)
                    for weight, *parts in alternatives
                    for _ in range(int(weight))
                ]
    return rules


STORY_RULES = _rules(_LANGUAGE)
"""The grammar of the stories: the alternatives of each symbol, starting at ``"story"``.

Each alternative is repeated as often as its weight says, so that drawing one integer
picks an alternative, in the same way on every machine.
"""

# Symbols that can be the subject of a verb to their right, or contain its head.
_HEADED = {"clause", "subject", "animal", "noun", "name", "pronoun"}
_MARKS = {",", "."}


class Word(NamedTuple):
    """A word or punctuation mark of the stories, with its annotations.

    Attributes:
        text: The word as written, such as ``"The"`` at the start of a sentence.
        start: The index of its first character in the whole text.
        kind: ``noun``, ``name``, ``pronoun``, ``verb``, ``adjective``, ...; ``mark``
            for a comma or a full stop, ``link`` for *that*, *when* and *and*.
        subject: For a verb, the index of the word that is the head of its subject.
        refers_to: For a pronoun, the index of the noun or name that it stands for; for
            a name, the index of its previous occurrence, if there is one.
    """

    text: str
    start: int
    kind: str
    subject: int | None = None
    refers_to: int | None = None

    @property
    def end(self) -> int:
        """The index just after its last character."""
        return self.start + len(self.text)


class Stories(NamedTuple):
    """Stories, one per line, with annotations.

    Attributes:
        text: The text to train on.
        words: The same text word by word, with indices into the whole text.
        surprisal: Minus the log probability of this text, in nats: the loss of a model
            that knows the grammar, summed over all characters.
    """

    text: str
    words: tuple[Word, ...]
    surprisal: float


def _names_surprisal(count: int) -> float:
    """Return minus the log probability, in nats, of two names that differ."""
    return math.log(count) + math.log(count - 1)


@cache
def story_entropy(names: tuple[str, ...] = _NAMES, *, per: str = "character") -> float:
    """Return the exact entropy of the stories, in nats per character or per word.

    On text that it was not trained on, a model that sees only the past can have a lower
    loss only by chance, which amounts to some 0.2 % for 100,000 characters. A
    validation loss further below the entropy means a leak. For the bound of a single
    text, divide ``Stories.surprisal`` by its length.

    Each text has exactly one derivation, so its entropy is that of the derivation: the
    sum over all choices of rules, and over the two names, which always differ.

    Source: Grenander, 1967, "Syntax-Controlled Probabilities", which computes the
    entropy of a derivation from the entropies of its choices.

    Args:
        names: The names that ``write_stories`` chooses from.
        per: ``character``; or ``word``, where marks and line feeds count as words.
    """
    name_length = sum(map(len, names)) / len(names)
    nats, characters, words = _entropy_and_lengths("story", name_length)
    length = characters if per == "character" else words + 1
    return (nats + _names_surprisal(len(names))) / length


@cache
def _entropy_and_lengths(part: str, name_length: float) -> tuple[float, float, float]:
    """Return the nats of the texts of a part, and their mean characters and words."""
    if part not in STORY_RULES:
        # Count the space before a word as part of it. The first word of a story has no
        # space, but a line feed follows the last, so the count is right.
        length = name_length if part.startswith("$") else float(len(part))
        return 0.0, length + (part not in _MARKS), 1.0
    total = [0.0, 0.0, 0.0]
    for parts in STORY_RULES[part]:
        total[0] += _surprisal(part, parts)
        for symbol in parts:
            for at, value in enumerate(_entropy_and_lengths(symbol, name_length)):
                total[at] += value
    nats, characters, words = (value / len(STORY_RULES[part]) for value in total)
    return nats, characters, words


@cache
def _surprisal(symbol: str, parts: tuple[str, ...]) -> float:
    """Return minus the log probability, in nats, that a symbol becomes these parts."""
    rules = STORY_RULES[symbol]
    return math.log(len(rules) / rules.count(parts))


def write_stories(
    num_characters: int = 1_000_000, *, seed: int = 0, names: tuple[str, ...] = _NAMES
) -> Stories:
    """Write stories until the text has at least ``num_characters``.

    The same seed gives the same text on every machine and in every version of Python. A
    longer text starts with the shorter one.

    Args:
        num_characters: The least number of characters.
        seed: The seed of the stories.
        names: What the animals may be called; 900 names by default.

    Raises:
        ValueError: If ``num_characters`` is not positive, or there are fewer than two
            names.
    """
    validate_sizes(num_characters=num_characters)
    if len(names) < 2:
        raise ValueError(f"names must have at least two names; it has {len(names)}")
    # Use only random.random(), which returns the same numbers for a seed in every
    # version of Python.
    random = Random(seed)
    pieces: list[str] = []
    words: list[Word] = []
    length, surprisal = 0, 0.0
    while length < num_characters:
        first = int(random.random() * len(names))
        second = int(random.random() * (len(names) - 1))
        two = names[first], names[second + (second >= first)]
        derived, nats = _derive(random)
        surprisal += _names_surprisal(len(names)) + nats
        text, written = _write(derived, two, start=length, first=len(words))
        pieces.append(text)
        words += written
        length += len(text)
    return Stories("".join(pieces), tuple(words), surprisal)


def _derive(random: Random) -> tuple[list[tuple[str, str, int | None]], float]:
    """Rewrite symbols at random, always the leftmost, until only words are left.

    Within a rule, the subject of a verb is the nearest head to its left or, if there is
    none, the subject passed down from the rule above. Nouns and names are heads. The
    head of a subject or a clause is the first head in it.

    Returns:
        The words of a story, each with its kind and the subject that it would have as
        a verb; and minus the log probability of the derivation, in nats.
    """
    words: list[tuple[str, str, int | None]] = []
    surprisal = 0.0

    def rewrite(symbol: str, subject: int | None) -> int | None:
        """Rewrite one symbol, and return the index of its head, if it has one."""
        nonlocal surprisal
        rules = STORY_RULES[symbol]
        parts = rules[int(random.random() * len(rules))]
        surprisal += _surprisal(symbol, parts)
        kind, head = symbol.partition(".")[0], None
        for part in parts:
            if part in STORY_RULES:
                part_head = rewrite(part, subject)
            elif len(parts) == 1:
                part_head = len(words)
                words.append((part, kind, subject))
            else:
                part_head = None
                words.append((part, "mark" if part in _MARKS else "link", subject))
            if part_head is not None:
                subject = part_head
                head = part_head if head is None else head
        return head if kind in _HEADED else None

    rewrite("story", None)
    return words, surprisal


def _write(
    derived: list[tuple[str, str, int | None]],
    names: tuple[str, str],
    *,
    start: int,
    first: int,
) -> tuple[str, list[Word]]:
    """Write out a story whose first character and word have the given indices."""
    written = ""
    words: list[Word] = []
    mentions: dict[str, int] = {}
    for word, kind, subject in derived:
        subject = None if subject is None else first + subject
        refers_to = subject if kind == "pronoun" else None
        if kind == "name":
            word = names[word == "$2"]
            refers_to = mentions.get(word)
            mentions[word] = first + len(words)
        if not words or words[-1].text == ".":
            word = word.capitalize()
        if words and kind != "mark":
            written += " "
        verb = subject if kind == "verb" else None
        words.append(Word(word, start + len(written), kind, verb, refers_to))
        written += word
    return written + "\n", words


# Other verbs add an s in the singular; these two differ in their first letter.
_BE = {"is", "are"}
_ENDINGS = " ,."


class Agreement(NamedTuple):
    """The position at which a verb shows its number, and the word it agrees with.

    Attributes:
        at: The index of the last character that singular and plural share: the second
            e in *sees* and *see*, the space before *is* and *are*.
        subject: The index of the first character of the word that the verb agrees with.
        end: The index just after that word.
        right: Next characters for the right number: *s*, or those that can follow the
            word.
        wrong: Next characters for the wrong number.
    """

    at: int
    subject: int
    end: int
    right: str
    wrong: str


def agreements(stories: Stories) -> Iterator[Agreement]:
    """Yield the agreement of every verb of the stories, in order."""
    for word in stories.words:
        if word.subject is None:
            continue
        subject = stories.words[word.subject]
        if word.text in _BE:
            at, right, wrong = word.start - 1, *("ia" if word.text == "is" else "ai")
        elif word.text.endswith("s"):
            at, right, wrong = word.end - 2, "s", _ENDINGS
        else:
            at, right, wrong = word.end - 1, _ENDINGS, "s"
        yield Agreement(at, subject.start, subject.end, right, wrong)


# --8<-- [start:subject-target]
def subject_target(
    verbs: Sequence[Agreement], starts: Sequence[int], seq_len: int
) -> Bool[Tensor, "B T S"]:
    """Mark, for each verb in windows of the text, the characters of its subject.

    Args:
        verbs: The agreements of the text.
        starts: Where each window begins.
        seq_len: T, how many characters a window has.

    Returns:
        ``True`` where the query must know the number of a verb, and the key is a
        character of the verb's subject or the character just after it. Verbs whose
        subject begins before the window are left out.
    """
    target = torch.zeros(len(starts), seq_len, seq_len, dtype=torch.bool)
    for row, start in enumerate(starts):
        for verb in verbs:
            if start <= verb.subject and verb.at < start + seq_len:
                target[
                    row, verb.at - start, verb.subject - start : verb.end + 1 - start
                ] = True
    return target


# --8<-- [end:subject-target]


def name_target(
    stories: Stories, starts: Sequence[int], seq_len: int, *, letter: int
) -> Bool[Tensor, "B T S"]:
    """Mark, for each repeated name in windows of the text, the letter to copy.

    Args:
        stories: The text.
        starts: Where each window begins.
        seq_len: T, how many characters a window has.
        letter: The index of the letter to predict, from 0.

    Returns:
        ``True`` where the query is the character before that letter, and the key is
        the same letter in the previous occurrence of the name. Names that last occurred
        before the window are left out.
    """
    return pairs_target(
        [
            (word.start + letter - 1, stories.words[word.refers_to].start + letter)
            for word in stories.words
            if word.kind == "name" and word.refers_to is not None
        ],
        starts,
        seq_len,
    )


def pairs_target(
    pairs: Sequence[tuple[int, int]], starts: Sequence[int], seq_len: int
) -> Bool[Tensor, "B T S"]:
    """Mark pairs of a query and a key in windows of a text.

    Args:
        pairs: For each, the index of the query and of the key in the text.
        starts: Where each window begins.
        seq_len: T, how many tokens a window has.

    Returns:
        ``True`` at each pair that lies in the window.
    """
    target = torch.zeros(len(starts), seq_len, seq_len, dtype=torch.bool)
    for row, start in enumerate(starts):
        for query, key in pairs:
            if start <= key and query < start + seq_len:
                target[row, query - start, key - start] = True
    return target
