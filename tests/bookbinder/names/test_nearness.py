"""Of two headings that have the words of a link, its sentence tells which is meant."""

from bookbinder.names.nearness import nearer, sections_of

TEXT = """# Paper

## Forward on paper

The query is multiplied, and summed.

## Backward on paper

A slope is a derivative; a slope is small.
"""
ANCHORS = {"": "Paper", "paper": "Paper", "forward": "Forward", "backward": "Backward"}


def words(text: str) -> set[str]:
    return {*text.lower().replace(".", " ").replace(";", " ").split()}


def test_the_words_below_each_heading_are_counted() -> None:
    sections = sections_of(TEXT, ANCHORS, words)
    assert sections["forward"]["query"] == 1
    assert sections["backward"]["slope"] == 1
    assert not sections["backward"]["query"]


def test_the_section_with_the_words_of_the_sentence_is_nearer() -> None:
    sections = sections_of(TEXT, ANCHORS, words)
    line = "The query. Its slope is derived [on paper](p.md#here). It is multiplied."

    def found(anchor: str, *others: str) -> str | None:
        return nearer(line, "p.md#here", anchor, [*others], sections, words)

    assert found("forward", "backward") == "backward"
    assert found("backward", "forward") is None
    assert found("forward") is None
