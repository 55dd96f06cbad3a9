"""Answers to the exercises of *Serving*: right and wrong ones."""

from collections.abc import Callable, Sequence
from typing import Any

from transformer_book import grade_count_steps, grade_tokens_to_read


def count_steps(wanted: Sequence[int], num_slots: int, static: bool) -> int:
    if static:
        batches = range(0, len(wanted), num_slots)
        return sum(max(wanted[at : at + num_slots]) for at in batches)
    free = [0] * num_slots
    for each in wanted:
        free[free.index(min(free))] += each
    return max(free)


def always(static: bool) -> Callable[[Sequence[int], int, bool], int]:
    return lambda wanted, num_slots, _: count_steps(wanted, num_slots, static)


def evenly(wanted: Sequence[int], num_slots: int, static: bool) -> int:
    return -(-sum(wanted) // num_slots)


def sorted_first(wanted: Sequence[int], num_slots: int, static: bool) -> int:
    return count_steps(sorted(wanted), num_slots, static)


def emptying(wanted: list[int], num_slots: int, static: bool) -> int:
    steps = count_steps(wanted, num_slots, static)
    wanted.clear()
    return steps


def pages_of(text: Sequence[int], size: int) -> list[list[int]]:
    return [[*text[:end]] for end in range(size, len(text) + 1, size)]


def tokens_to_read(prompt: list[int], cached: list[list[int]], size: int) -> int:
    known = [page for text in cached for page in pages_of(text, size)]
    return len(prompt) - size * sum(p in known for p in pages_of(prompt[:-1], size))


def the_whole_prompt(prompt: list[int], cached: list[list[int]], size: int) -> int:
    known = [page for text in cached for page in pages_of(text, size)]
    return len(prompt) - size * sum(page in known for page in pages_of(prompt, size))


def equal_tokens(prompt: list[int], cached: list[list[int]], size: int) -> int:
    def same(text: list[int]) -> int:
        return next(n for n in range(99) if prompt[:-1][: n + 1] != text[: n + 1])

    return len(prompt) - max(map(same, cached), default=0)


def without_what_stands_before(
    prompt: list[int], cached: list[list[int]], size: int
) -> int:
    known = [page[-size:] for text in cached for page in pages_of(text, size)]
    pages = [page[-size:] for page in pages_of(prompt[:-1], size)]
    return len(prompt) - size * sum(page in known for page in pages)


def the_last_text(prompt: list[int], cached: list[list[int]], size: int) -> int:
    return tokens_to_read(prompt, cached[:1], size)


RIGHT = {grade_count_steps: count_steps, grade_tokens_to_read: tokens_to_read}
WRONG: dict[Any, dict[str, Any]] = {
    grade_count_steps: {
        "2 slots, static: it says 21": always(False),
        "2 slots, continuous: it says": always(True),
        "2 slots, static: it says 17": evenly,
        "2 slots, static: it says 20": sorted_first,
        "it changes the list that it was given": emptying,
    },
    grade_tokens_to_read: {
        "the last token is needed for its logits": the_whole_prompt,
        "only full pages can be found": equal_tokens,
        "a page is known by all tokens before it": without_what_stands_before,
        "any of the texts may begin alike": the_last_text,
    },
}
