"""A stop sequence ends the answer, and not a letter of it is shown."""

from collections.abc import Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tested_transformer.decoding.stopping import StopWatch, TextWatch


def feed(watch: StopWatch | TextWatch, pieces: Iterable) -> list:
    return [watch.feed(piece) for piece in pieces]


def test_what_may_become_a_stop_is_held_back():
    watch = StopWatch(["END"], "")
    assert feed(watch, ["a", "E", "N", "x", "E", "N", "D", "z"]) == [
        *("a", "", "", "ENx", "", "", "", ""),
    ]
    assert watch.stopped
    assert watch.finish() == ""


def test_what_was_held_back_comes_at_the_end():
    watch = StopWatch([(3, 4, 5)], ())
    assert feed(watch, [(1, 3), (4,)]) == [(1,), ()]
    assert watch.finish() == (3, 4)
    assert not watch.stopped
    assert watch.finish() == ()


def test_a_stop_may_begin_within_its_own_beginning():
    watch = StopWatch(["aab"], "")
    assert feed(watch, "aaab") == ["", "", "a", ""]
    assert watch.stopped


def test_the_first_to_be_complete_counts():
    watch = StopWatch(["abcd", "bc"], "")
    assert watch.feed("xabcd") == "xa"
    # Of two that end together, the longer.
    assert StopWatch(["bc", "abc"], "").feed("xabc") == "x"


def test_without_stops_all_passes():
    assert feed(StopWatch([], ()), [(1, 2), (), (3,)]) == [(1, 2), (), (3,)]


@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=6),
    stops=st.lists(st.text("ab", min_size=1, max_size=3), max_size=3),
)
def test_it_shows_what_comes_before_the_first_stop(pieces: list[str], stops: list[str]):
    watch, whole = StopWatch(stops, ""), "".join(pieces)
    shown = "".join(feed(watch, pieces)) + watch.finish()
    ends = [n for n in range(len(whole) + 1) if whole[:n].endswith(tuple(stops))]
    assert watch.stopped == bool(ends)
    if ends:
        longest = max(len(s) for s in stops if whole[: ends[0]].endswith(s))
        whole = whole[: ends[0] - longest]
    assert shown == whole


def test_an_empty_stop_is_refused():
    message = r"^stop\[1\] is empty: it would stop at once$"
    with pytest.raises(ValueError, match=message):
        StopWatch([(1,), ()], ())
    with pytest.raises(ValueError, match=message):
        TextWatch(str, ["a", ""])


def as_bytes(tokens: list[int]) -> str:
    return bytes(tokens).decode("utf-8", errors="replace")


def test_a_letter_is_shown_when_it_is_whole():
    watch = TextWatch(as_bytes)
    assert feed(watch, [[b] for b in "aé€b".encode()]) == [
        *("a", "", "é", "", "", "€", "b"),
    ]


def test_a_letter_that_is_never_whole_is_shown_at_the_end():
    watch = TextWatch(as_bytes, ["€"])
    assert feed(watch, [[97], [0xE2], [0x82]]) == ["a", "", ""]
    assert watch.finish() == "\N{REPLACEMENT CHARACTER}"
    assert watch.finish() == ""


def test_stop_strings_across_tokens():
    watch = TextWatch(as_bytes, ["\n\n", "é!"])
    assert feed(watch, [list(b"a\nb"), list("é".encode()), [33, 34]]) == [
        *("a\nb", "", ""),
    ]
    assert watch.stopped
    assert watch.finish() == ""
