import math
from collections import Counter, defaultdict
from itertools import product
from random import Random

import pytest

from tested_transformer.data.stories import Grammar, Step

SMALL = Grammar(
    {
        "text": "3 clause . | 1 clause and clause .",
        "clause": "2 thing rests | 1 thing sees thing | 4 the thing naps",
        "thing": "5 fox | 1 bird",
    }
)


def words(steps: list[Step]) -> tuple[str, ...]:
    remaining = iter(steps)

    def below(part: str) -> tuple[str, ...]:
        if part not in SMALL.rules:
            return (part,)
        symbol, parts = next(remaining)
        assert symbol == part
        return sum(map(below, parts), ())

    told = below("text")
    assert list(remaining) == []
    return told


def language(grammar: Grammar, symbol: str) -> list[tuple[tuple[str, ...], float]]:
    """Give each derivation's words with its probability, one by one."""
    if symbol not in grammar.rules:
        return [((symbol,), 1.0)]
    total = sum(rule.weight for rule in grammar.rules[symbol])
    every: list[tuple[tuple[str, ...], float]] = []
    for rule in grammar.rules[symbol]:
        for combined in product(*(language(grammar, part) for part in rule.parts)):
            probability = math.prod(chance for _, chance in combined)
            text = sum((part for part, _ in combined), ())
            every.append((text, probability * rule.weight / total))
    return every


def test_entropy_by_hand():
    grammar = Grammar({"text": "1 a | 1 pair", "pair": "1 b | 2 c | 1 d"})
    # One choice of two, and in half of the texts one of 1/4, 1/2, 1/4.
    expected = math.log(2) + 0.5 * (1.5 * math.log(2))
    assert grammar.entropy("text") == pytest.approx(expected, rel=1e-12)
    assert grammar.entropy("pair") == pytest.approx(1.5 * math.log(2), rel=1e-12)


def test_length_by_hand():
    grammar = Grammar({"text": "3 fox | 1 the fox pair", "pair": "1 ab | 1 abcd"})
    # 3/4 * 3 + 1/4 * (3 + 3 + 3)
    assert grammar.length("text") == 4.5
    assert grammar.length("text", lambda word: 1) == 0.75 * 1 + 0.25 * 3


def test_entropy_and_length_are_those_of_the_language_written_out():
    every = language(SMALL, "text")
    assert len({text for text, _ in every}) == len(every) == 8 + 8 * 8
    assert sum(chance for _, chance in every) == pytest.approx(1.0, rel=1e-12)
    entropy = -sum(chance * math.log(chance) for _, chance in every)
    assert SMALL.entropy("text") == pytest.approx(entropy, rel=1e-12)
    length = sum(chance * sum(map(len, text)) for text, chance in every)
    assert SMALL.length("text") == pytest.approx(length, rel=1e-12)


def test_texts_come_as_often_as_they_should():
    chances = dict(language(SMALL, "text"))
    random = Random(3)
    draws = 20_000
    found = Counter(words(SMALL.derive("text", random)) for _ in range(draws))
    assert set(found) <= set(chances)
    for text, chance in chances.items():
        spread = math.sqrt(draws * chance * (1 - chance))
        assert abs(found[text] - draws * chance) < 5 * spread, text


def test_surprisal_is_minus_the_log_of_the_probability():
    chances = dict(language(SMALL, "text"))
    random = Random(5)
    for _ in range(50):
        steps = SMALL.derive("text", random)
        expected = -math.log(chances[words(steps)])
        assert SMALL.surprisal(steps) == pytest.approx(expected, rel=1e-12)


def test_a_text_with_two_derivations_has_less_entropy_than_they():
    grammar = Grammar({"text": "1 one | 1 other", "one": "1 a", "other": "1 a"})
    texts: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for text, chance in language(grammar, "text"):
        texts[text] += chance
    assert dict(texts) == {("a",): 1.0}
    assert grammar.entropy("text") == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            {"text": "the fox"},
            r"a rule is a weight and its parts, as in '2 the noun'; "
            r"'text' has 'the fox'",
        ),
        (
            {"text": "2 fox | 0 dog"},
            r"a rule is a weight and its parts, as in '2 the noun'; 'text' has '0 dog'",
        ),
        (
            {"text": "2 fox | 3"},
            r"a rule is a weight and its parts, as in '2 the noun'; 'text' has '3'",
        ),
        (
            {"text": "1 a | "},
            r"a rule is a weight and its parts, as in '2 the noun'; 'text' has ''",
        ),
        (
            {"text": "1 a b | 2 c | 1 a  b"},
            r"'text' has the same parts twice: add up their weights",
        ),
        (
            {"text": "1 noun", "noun": "1 fox | 1 fox clause", "clause": "1 that noun"},
            r"the rules must end, and these go round: noun > clause > noun",
        ),
    ],
)
def test_rules_that_make_no_grammar_are_named(rules: dict[str, str], message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Grammar(rules)
