"""Graders of *Serving*."""

from collections.abc import Callable, Sequence
from itertools import takewhile

__all__ = ["grade_count_steps", "grade_tokens_to_read"]


def grade_count_steps(answer: Callable[[Sequence[int], int, bool], int]) -> str:
    """Grade how many steps a batch takes for requests that arrive at the same time.

    Args:
        answer: A function of how many tokens each request wants, the number of slots,
            and whether newcomers wait for the whole batch.
    """
    for counts, num_slots in (
        ([5], 1),
        ([3, 4, 2], 1),
        ([9, 2, 5, 1, 13, 4], 2),
        ([7, 1, 1, 1, 7, 1, 1, 1, 7], 3),
        ([2, 6], 5),
    ):
        for static in (True, False):
            lengths = [*counts]
            got = answer(lengths, num_slots, static)
            assert lengths == counts, "it changes the list that it was given"
            right = _steps(counts, num_slots, static)
            kind = "static" if static else "continuous"
            assert got == right, f"{counts}, {num_slots} slots, {kind}: it says {got}"
    return "right"


def _steps(counts: Sequence[int], num_slots: int, static: bool) -> int:
    left, waiting, steps = list[int](), [*counts], 0
    while left or waiting:
        if not (static and left):
            free = num_slots - len(left)
            left, waiting = left + waiting[:free], waiting[free:]
        left = [length - 1 for length in left if length > 1]
        steps += 1
    return steps


def grade_tokens_to_read(
    answer: Callable[[Sequence[int], Sequence[Sequence[int]], int], int],
) -> str:
    """Grade how much of a prompt is left to read when earlier ones are in full pages.

    Args:
        answer: A function of the prompt, of the texts in the cache, and of the size of
            a page.
    """
    text = [3, 1, 4, 1, 5, 9, 2, 6]
    for prompt, cached, page_size, why in (
        ([3, 1, 4], [], 2, "nothing is cached"),
        ([3, 1, 4, 1, 5], [text], 2, "two full pages are the same"),
        ([3, 1, 4, 1, 5], [text], 3, "only full pages can be found"),
        ([3, 1, 4, 7, 5], [[3, 1, 4]], 2, "the page with the 4 was never full"),
        (text, [text], 4, "the last token is needed for its logits"),
        (text, [text], 1, "the last token is needed for its logits"),
        ([8, 1, 4, 1, 5], [text], 2, "a page is known by all tokens before it, too"),
        ([3, 1, 4, 1, 7], [[3, 1, 9], text], 2, "any of the texts may begin alike"),
    ):
        got = answer([*prompt], [[*tokens] for tokens in cached], page_size)
        right = _left(prompt, cached, page_size)
        assert got == right, (
            f"prompt {prompt}, cached {cached}, pages of {page_size}: it says {got}, "
            f"but {why}"
        )
    return "right"


def _left(
    prompt: Sequence[int], cached: Sequence[Sequence[int]], page_size: int
) -> int:
    pages = 0
    for text in cached:
        full = text[: len(text) // page_size * page_size]
        pairs = zip(prompt[:-1], full, strict=False)
        same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
        pages = max(pages, same // page_size)
    return len(prompt) - pages * page_size
