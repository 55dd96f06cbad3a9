"""Answers to the exercises of *Serving*: right and wrong ones."""

from transformer_book import grade_count_steps, grade_tokens_to_read


def count_steps(lengths, num_slots, static):
    if static:
        batches = range(0, len(lengths), num_slots)
        return sum(max(lengths[at : at + num_slots]) for at in batches)
    free = [0] * num_slots
    for length in lengths:
        free[free.index(min(free))] += length
    return max(free)


def always(static):
    return lambda lengths, num_slots, _: count_steps(lengths, num_slots, static)


def emptying(lengths, num_slots, static):
    steps = count_steps(lengths, num_slots, static)
    lengths.clear()
    return steps


def pages_of(text, size):
    return [[*text[:end]] for end in range(size, len(text) + 1, size)]


def tokens_to_read(prompt, cached, size):
    known = [page for text in cached for page in pages_of(text, size)]
    return len(prompt) - size * sum(p in known for p in pages_of(prompt[:-1], size))


def the_whole_prompt(prompt, cached, size):
    known = [page for text in cached for page in pages_of(text, size)]
    return len(prompt) - size * sum(page in known for page in pages_of(prompt, size))


def equal_tokens(prompt, cached, size):
    def same(text):
        return next(n for n in range(99) if prompt[:-1][: n + 1] != text[: n + 1])

    return len(prompt) - max(map(same, cached), default=0)


def without_what_stands_before(prompt, cached, size):
    known = [page[-size:] for text in cached for page in pages_of(text, size)]
    pages = [page[-size:] for page in pages_of(prompt[:-1], size)]
    return len(prompt) - size * sum(page in known for page in pages)


def the_last_text(prompt, cached, size):
    return tokens_to_read(prompt, cached[:1], size)


RIGHT = {grade_count_steps: count_steps, grade_tokens_to_read: tokens_to_read}
WRONG = {
    grade_count_steps: {
        "2 slots, static: it says 21": always(False),
        "2 slots, continuous: it says": always(True),
        "static: it says 17": lambda lengths, slots, _: -(-sum(lengths) // slots),
        "static: it says 20": lambda lengths, *rest: count_steps(
            sorted(lengths), *rest
        ),
        "it changes the list that it was given": emptying,
    },
    grade_tokens_to_read: {
        "the last token is needed for its logits": the_whole_prompt,
        "only full pages can be found": equal_tokens,
        "a page is known by all tokens before it": without_what_stands_before,
        "any of the texts may begin alike": the_last_text,
    },
}
