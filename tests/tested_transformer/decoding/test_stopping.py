"""A stop sequence ends the answer, and not a letter of it is shown."""

from collections.abc import Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from tested_transformer.decoding import StopFilter


def feed(stop_filter: StopFilter, pieces: Iterable) -> list:
    return [stop_filter.feed(piece) for piece in pieces]


def test_what_may_become_a_stop_is_held_back():
    stop_filter = StopFilter(["END"], "")
    assert feed(stop_filter, "aENxENDz") == ["a", "", "", "ENx", "", "", "", ""]
    assert stop_filter.stopped
    assert stop_filter.finish() == ""
    # And comes at the end, if it has not become one.
    stop_filter = StopFilter([(3, 4, 5)], ())
    assert feed(stop_filter, [(1, 3), (4,)]) == [(1,), ()]
    assert (stop_filter.finish(), stop_filter.finish()) == ((3, 4), ())
    assert not stop_filter.stopped
    with pytest.raises(
        ValueError, match=r"^stop\[1\] is empty: it would stop at once$"
    ):
        StopFilter([(1,), ()], ())


@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=6),
    stops=st.lists(st.text("ab", min_size=1, max_size=3), max_size=3),
)
@example(["xabcd"], ["abcd", "bc"])
def test_it_shows_what_comes_before_the_first_stop(pieces, stops):
    stop_filter, text = StopFilter(stops, ""), "".join(pieces)
    shown = "".join(feed(stop_filter, pieces)) + stop_filter.finish()
    ends = [n for n in range(len(text) + 1) if text[:n].endswith(tuple(stops))]
    assert stop_filter.stopped == bool(ends)
    if ends:
        longest = max(len(s) for s in stops if text[: ends[0]].endswith(s))
        text = text[: ends[0] - longest]
    assert shown == text
