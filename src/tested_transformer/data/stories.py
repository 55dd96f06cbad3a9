"""The ``grammar`` corpus: very short stories about animals, and the truth about them.

In every story two animals get a name, and the text comes back to it; verbs agree with
subjects that stand far off, with other animals in between. Who is the subject of each
verb, and whom each name and pronoun means, is known, because the text is derived from
a grammar. So is the entropy of the stories, which no honest model can beat.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

__all__ = [
    "STORY_RULES",
    "Agreement",
    "Grammar",
    "Step",
    "Stories",
    "Word",
    "agreements",
    "name_target",
    "story_entropy",
    "subject_target",
    "write_stories",
]


class Step(NamedTuple):
    """One step of a derivation: a symbol, and the parts that a rule made of it."""

    symbol: str
    parts: tuple[str, ...]


class _Rule(NamedTuple):
    parts: tuple[str, ...]
    weight: int


class Grammar:
    """Rules that rewrite symbols at random, until only words are left.

    A grammar whose rules never lead back to themselves can be summed up exactly: how
    many nats of surprise a derivation holds, and how long it is. If every text has one
    derivation, the first divided by the second is the entropy of the language.

    Args:
        rules: For each symbol what it may become, as ``"2 the noun | 1 name"``: each
            alternative has a whole-number weight and some parts. A part that has
            rules of its own is a symbol, any other is a word.

    Raises:
        ValueError: If a rule has no weight or no parts, or a symbol can lead back to
            itself.

    Source: Grenander, 1967, "Syntax-Controlled Probabilities": the entropy of a
    derivation from the entropies of the choices that it is made of.
    """

    def __init__(self, rules: Mapping[str, str]) -> None:
        self.rules = {symbol: _parse(symbol, text) for symbol, text in rules.items()}
        # Each alternative stands in its table as often as it weighs, so that one
        # draw of a whole number picks it, alike on every machine.
        self._tables = {
            symbol: [
                Step(symbol, rule.parts) for rule in rules for _ in range(rule.weight)
            ]
            for symbol, rules in self.rules.items()
        }
        self._surprisals = {
            step: -math.log(table.count(step) / len(table))
            for table in self._tables.values()
            for step in table
        }
        self._check_that_it_ends()

    def derive(self, symbol: str, random: Random) -> list[Step]:
        """Rewrite at random, always the leftmost symbol, until only words are left.

        Nothing is drawn but ``random.random()``, whose numbers are the same for a
        seed in every version of Python.
        """
        steps: list[Step] = []
        waiting = [symbol]
        while waiting:
            leftmost = waiting.pop()
            if leftmost in self._tables:
                table = self._tables[leftmost]
                step = table[int(random.random() * len(table))]
                steps.append(step)
                waiting.extend(reversed(step.parts))
        return steps

    def surprisal(self, steps: Iterable[Step]) -> float:
        """Return minus the log probability of a derivation, in nats."""
        return sum([self._surprisals[step] for step in steps])

    def entropy(self, symbol: str) -> float:
        """Return the entropy of what ``symbol`` derives, in nats: exact, not sampled.

        It is the entropy of the texts only if each text has one derivation.
        """

        def surprise(rule: _Rule, total: int) -> float:
            return -math.log(rule.weight / total)

        return self._expected(symbol, surprise, lambda word: 0.0)

    def length(self, symbol: str, width: Callable[[str], int] = len) -> float:
        """Return how long what ``symbol`` derives is on average.

        Args:
            symbol: Where to begin.
            width: How long a word is; its number of characters by default.
        """
        return self._expected(symbol, lambda rule, total: 0.0, width)

    def _expected(
        self,
        symbol: str,
        of_rule: Callable[[_Rule, int], float],
        of_word: Callable[[str], float],
    ) -> float:
        known: dict[str, float] = {}

        def value(part: str) -> float:
            if part not in self.rules:
                return float(of_word(part))
            if part not in known:
                rules = self.rules[part]
                total = sum(rule.weight for rule in rules)
                known[part] = sum(
                    rule.weight
                    / total
                    * (of_rule(rule, total) + sum(map(value, rule.parts)))
                    for rule in rules
                )
            return known[part]

        return value(symbol)

    def _check_that_it_ends(self) -> None:
        done: set[str] = set()

        def visit(symbol: str, above: tuple[str, ...]) -> None:
            if symbol in above:
                cycle = " > ".join([*above[above.index(symbol) :], symbol])
                raise ValueError(f"the rules must end, and these go round: {cycle}")
            if symbol in self.rules and symbol not in done:
                for rule in self.rules[symbol]:
                    for part in rule.parts:
                        visit(part, (*above, symbol))
                done.add(symbol)

        for symbol in self.rules:
            visit(symbol, ())


def _parse(symbol: str, text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    for alternative in text.split("|"):
        weight, *parts = alternative.split() or [""]
        if not (weight.isdecimal() and int(weight) and parts):
            raise ValueError(
                f"a rule is a weight and its parts, as in '2 the noun'; "
                f"{symbol!r} has {alternative.strip()!r}"
            )
        rules.append(_Rule(tuple(parts), int(weight)))
    if len({rule.parts for rule in rules}) < len(rules):
        raise ValueError(f"{symbol!r} has the same parts twice: add up their weights")
    return rules


_NAMES = [
    first + vowel + second + last
    for first in "BDFKLMNPRT"
    for vowel in "aio"
    for second in "bdfklmnprt"
    for last in "aio"
]

# "#" is s or p, singular or plural. The number behind a symbol says how deep clauses
# may still nest in it.
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


def _rules(language: str) -> dict[str, str]:
    rules: dict[str, str] = {}
    # An alternative on a line of its own goes on with the line before it.
    for line in language.replace("\n        |", " |").strip().splitlines():
        symbol, colon, right = line.partition(":")
        if colon:
            for number in "sp" if "#" in symbol else "#":
                rules[symbol.replace("#", number)] = right.replace("#", number)
    return rules


STORY_RULES = Grammar(_rules(_LANGUAGE))
"""The grammar of the stories; the rule of a whole one is ``"story"``."""

# What can be the subject of a verb to its right, and the words at the head of it.
_HEADED = {"clause", "subject", "animal", "noun", "name", "pronoun"}
_MARKS = {",", "."}


class Word(NamedTuple):
    """A word of the stories, or a mark of punctuation, and the truth about it.

    Attributes:
        text: As it is written, ``"The"`` at the start of a sentence.
        start: The index of its first character in the whole text.
        kind: ``noun``, ``name``, ``pronoun``, ``verb``, ``adjective``, ...; ``mark``
            for a comma or a full stop, ``link`` for *that*, *when* and *and*.
        subject: Of a verb, the index of the word that is the head of its subject.
        refers_to: Of a pronoun, the index of the noun or name that it stands for; of
            a name, the index of the same name where it came last, or none.
    """

    text: str
    start: int
    kind: str
    subject: int | None = None
    refers_to: int | None = None

    @property
    def end(self) -> int:
        """The index after its last character."""
        return self.start + len(self.text)


class Stories(NamedTuple):
    """Stories, one a line, with their truth.

    Attributes:
        text: What a model is trained on.
        words: The same, word by word; their indices count through the whole text.
        surprisal: Minus the log probability of this very text, in nats: the loss of a
            model that knows the grammar, summed over all characters.
    """

    text: str
    words: tuple[Word, ...]
    surprisal: float


@cache
def story_entropy() -> float:
    """Return the entropy of the stories, in nats per character: exact, not measured.

    No model that sees only what came before can have a lower loss on text that it was
    not trained on, but by chance, which is worth some 0.2 % in 100,000 characters:
    a validation loss further below this leaks. For the bound of one text itself,
    divide ``Stories.surprisal`` by its length.

    Each text has one derivation only, so that its entropy is that of the derivation:
    of all choices of rules, and of two names of which the second is not the first.
    """
    names = math.log(len(_NAMES)) + math.log(len(_NAMES) - 1)
    nats = STORY_RULES.entropy("story") + names
    return nats / STORY_RULES.length("story", _width)


def _width(word: str) -> int:
    # The space before a word belongs to it. A story has none before its first word,
    # and a line end after its last.
    if word in _MARKS:
        return 1
    return 1 + len(_NAMES[0] if word.startswith("$") else word)


def write_stories(num_characters: int = 1_000_000, *, seed: int = 0) -> Stories:
    """Write stories until there are at least ``num_characters`` of them.

    The same seed gives the same text on every machine and in every version of
    Python; a longer text begins as a shorter one.

    Raises:
        ValueError: If ``num_characters`` is not positive.
    """
    if num_characters < 1:
        raise ValueError(f"num_characters={num_characters} must be positive")
    random = Random(seed)
    pieces: list[str] = []
    words: list[Word] = []
    length, surprisal = 0, 0.0
    while length < num_characters:
        first = int(random.random() * len(_NAMES))
        second = int(random.random() * (len(_NAMES) - 1))
        names = _NAMES[first], _NAMES[second + (second >= first)]
        surprisal += math.log(len(_NAMES)) + math.log(len(_NAMES) - 1)
        steps = STORY_RULES.derive("story", random)
        surprisal += STORY_RULES.surprisal(steps)
        text, told = _tell(steps, names, start=length, first=len(words))
        pieces.append(text)
        words += told
        length += len(text)
    return Stories("".join(pieces), tuple(words), surprisal)


def _tell(
    steps: list[Step], names: tuple[str, str], *, start: int, first: int
) -> tuple[str, list[Word]]:
    """Write a story down; its first character and word have the numbers given."""
    written = ""
    words: list[Word] = []
    mentions: dict[str, int] = {}
    for word, kind, subject in _subjects(steps):
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


def _subjects(steps: Iterable[Step]) -> list[tuple[str, str, int | None]]:
    """Return a derivation's words, each with its kind and the subject it may have.

    Within a rule a verb belongs to the nearest head on its left, and where there is
    none, to the subject that comes from the rule above. A noun or a name is a head,
    and so is what a rule for a subject or a clause makes: by the first head in it.
    """
    remaining = iter(steps)
    words: list[tuple[str, str, int | None]] = []
    # Of each rule that is begun: what of it is still to be told, its head as far as it
    # is known, and the subject that a verb would have now.
    begun = [SimpleNamespace(kind="", parts=["story"], head=None, subject=None)]
    while begun:
        rule = begun[-1]
        if rule.parts:
            part = rule.parts.pop()
            kind = "mark" if part in _MARKS else "link"
            if part in STORY_RULES.rules:
                symbol, parts = next(remaining)
                kind = symbol.partition(".")[0]
                part, *others = parts
                if others or part in STORY_RULES.rules:
                    begun.append(
                        SimpleNamespace(
                            kind=kind,
                            parts=list(reversed(parts)),
                            head=None,
                            subject=rule.subject,
                        )
                    )
                    continue
            words.append((part, kind, rule.subject))
            head = len(words) - 1
        else:
            begun.pop()
            kind, head = rule.kind, rule.head
        if kind in _HEADED and head is not None:
            begun[-1].subject = head
            if begun[-1].head is None:
                begun[-1].head = head
    return words


# Verbs of one subject end in s; only these two differ from their first letter on.
_BE = {"is", "are"}
_ENDINGS = " ,."


class Agreement(NamedTuple):
    """The character after which a verb shows its number, and what it agrees with.

    Attributes:
        at: The index of the last character that is the same for one and for many: of
            *sees* and *see* the second e, before *is* and *are* the space.
        subject: The index of the first character of the word that the verb agrees with.
        end: The index after the last one of that word.
        right: Characters that go on in the right number: *s*, or those that can end
            the word.
        wrong: Characters that go on in the wrong one.
        between: Whether another noun or name stands between the two, the verb's
            nearest.
    """

    at: int
    subject: int
    end: int
    right: str
    wrong: str
    between: bool


def agreements(stories: Stories) -> Iterator[Agreement]:
    """Return every verb of the stories, in their order."""
    for index, word in enumerate(stories.words):
        if word.subject is None:
            continue
        subject = stories.words[word.subject]
        between = any(
            each.kind in ("noun", "name")
            for each in stories.words[word.subject + 1 : index]
        )
        if word.text in _BE:
            at, right, wrong = word.start - 1, *("ia" if word.text == "is" else "ai")
        elif word.text.endswith("s"):
            at, right, wrong = word.end - 2, "s", _ENDINGS
        else:
            at, right, wrong = word.end - 1, _ENDINGS, "s"
        yield Agreement(at, subject.start, subject.end, right, wrong, between)


# --8<-- [start:subject-target]
def subject_target(
    found: Sequence[Agreement], starts: Sequence[int], seq_len: int
) -> Bool[Tensor, "B T S"]:
    """Mark in windows of the text, for each verb, the characters of its subject.

    Args:
        found: The agreements of the text.
        starts: Where each window begins.
        seq_len: T, how many characters a window has.

    Returns:
        ``True`` where the query has to know the number of a verb, and the key is a
        character of the verb's subject or the one after it, which ends the word. A
        verb whose subject is not in the window whole is left out.
    """
    target = torch.zeros(len(starts), seq_len, seq_len, dtype=torch.bool)
    for row, start in enumerate(starts):
        for each in found:
            if start <= each.subject and each.at < start + seq_len:
                target[
                    row, each.at - start, each.subject - start : each.end + 1 - start
                ] = True
    return target


# --8<-- [end:subject-target]


def name_target(
    stories: Stories, starts: Sequence[int], seq_len: int, *, letter: int
) -> Bool[Tensor, "B T S"]:
    """Mark in windows of the text, for each name that comes again, what to copy.

    Args:
        stories: The text.
        starts: Where each window begins.
        seq_len: T, how many characters a window has.
        letter: Which letter of the name is to be predicted, from 0.

    Returns:
        ``True`` where the query is the character before that letter, and the key is
        the same letter of the same name where it came last in the window.
    """
    target = torch.zeros(len(starts), seq_len, seq_len, dtype=torch.bool)
    for word in stories.words:
        if word.kind != "name" or word.refers_to is None:
            continue
        query = word.start + letter - 1
        key = stories.words[word.refers_to].start + letter
        for row, start in enumerate(starts):
            if start <= key and query < start + seq_len:
                target[row, query - start, key - start] = True
    return target
