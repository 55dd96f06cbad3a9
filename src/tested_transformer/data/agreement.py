"""Where in the stories a reader has to look back, and to what: subjects and names.

*The cats that the dog chases eat*: whoever reads *The cats that the dog chases ea* and
writes the next characters has to know how many eat. A model that gets this right has
found the subject; and since the stories are derived, we know where it is. So it is with
a name that comes again: its letters can be copied from where it came before.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from tested_transformer.data.stories import Stories

__all__ = ["Agreement", "agreements", "name_target", "subject_target"]

# Verbs of one subject end in s; only these two differ from their first letter on.
_BE = {"is", "are"}
_ENDINGS = " ,."


# --8<-- [start:agreement]
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
    """Give every verb of the stories, in their order."""
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


# --8<-- [end:agreement]


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


# --8<-- [start:name-target]
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


# --8<-- [end:name-target]
