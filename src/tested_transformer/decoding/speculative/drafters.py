"""Drafters: they guess how a text continues, by a small model or by repetition."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tested_transformer.checks import validate_between, validate_sizes
from tested_transformer.decoding.sampling import Probabilities, RandomSource, softmax
from tested_transformer.decoding.speculative.text_reader import TextReader
from tested_transformer.gpt import GPT

__all__ = ["Draft", "Drafter", "ModelDrafter", "NgramDrafter"]


# --8<-- [start:drafters]
@dataclass(frozen=True)
class Draft:
    """Some drafted tokens, and the probabilities that each was drawn from.

    Args:
        tokens: The k tokens.
        probabilities: A row for each of them.
        parents: In a tree, the token that each follows: an earlier one, or -1 for the
            end of the text. By default each follows the one before it.
    """

    tokens: list[int]
    probabilities: Float[Tensor, "k V"]
    parents: list[int] | None = None


class Drafter(ABC):
    """Base class of drafters, which guess how a text continues."""

    @abstractmethod
    def draft(self, text: Sequence[int], count: int, rng: RandomSource) -> Draft:
        """Return up to ``count`` tokens that may follow the text; perhaps none."""

    def reader(self, model: GPT) -> TextReader:
        """Return the reader of the text for the model that verifies.

        Raises:
            ValueError: If this drafter cannot guess for that model.
        """
        return TextReader(model)


class ModelDrafter(Drafter):
    """Let a small model write the draft, token by token.

    Args:
        model: The small model, with the same vocabulary.
        probabilities: From its logits to the probabilities it draws from; softmax by
            default.
    """

    def __init__(self, model: GPT, *, probabilities: Probabilities = softmax) -> None:
        self.probabilities = probabilities
        self._reader = TextReader(model)

    def reader(self, model: GPT) -> TextReader:
        """Return a reader, if the small model has the vocabulary and length needed."""
        own, target = self._reader.model.config, model.config
        if own.vocab_size != target.vocab_size:
            raise ValueError(
                f"the drafter's model has vocab_size={own.vocab_size}; "
                f"it must be that of the model, {target.vocab_size}"
            )
        if own.max_seq_len < target.max_seq_len:
            raise ValueError(
                f"the drafter's model has max_seq_len={own.max_seq_len}; "
                f"it must be at least that of the model, {target.max_seq_len}"
            )
        return TextReader(model)

    def draft(self, text: Sequence[int], count: int, rng: RandomSource) -> Draft:
        """Return ``count`` tokens that the small model draws."""
        drafted, rows = list[int](), list[Tensor]()
        for _ in range(count):
            logits = self._reader.read([*text, *drafted], 1)
            rows.append(self.probabilities(logits).cpu())
            drafted.append(rng.draw(rows[-1][0]))
        none = torch.empty(0, self._reader.model.config.vocab_size)
        return Draft(drafted, torch.cat(rows) if rows else none)


class NgramDrafter(Drafter):
    """Draft what followed the last few tokens when they occurred earlier in the text.

    It looks up the last ``longest`` tokens first, then fewer, and drafts what followed
    their first occurrence.

    Args:
        vocab_size: V, the number of different tokens.
        longest: Look up at most this many of the last tokens.
        shortest: Look up at least this many. If they never occurred, there is no draft.

    Raises:
        ValueError: If a number is not positive, or ``shortest`` exceeds ``longest``.

    Source: Saxena, 2023, "Prompt Lookup Decoding".
    """

    def __init__(self, vocab_size: int, *, longest: int = 3, shortest: int = 1) -> None:
        validate_sizes(vocab_size=vocab_size, shortest=shortest)
        validate_between("shortest", shortest, 1, longest, "longest")
        self.vocab_size = vocab_size
        self.lengths = range(longest, shortest - 1, -1)

    def reader(self, model: GPT) -> TextReader:
        """Return a reader, if the model has the vocabulary that this was made for."""
        if self.vocab_size != model.config.vocab_size:
            raise ValueError(
                f"the drafter has vocab_size={self.vocab_size}; "
                f"it must be that of the model, {model.config.vocab_size}"
            )
        return TextReader(model)

    def draft(self, text: Sequence[int], count: int, rng: RandomSource) -> Draft:
        """Return what followed before, each token with a probability of 1."""
        drafted = self._look_up([*text])[:count]
        sure = F.one_hot(torch.tensor(drafted, dtype=torch.long), self.vocab_size)
        return Draft(drafted, sure.double())

    def _look_up(self, text: list[int]) -> list[int]:
        for length in self.lengths:
            for start in range(len(text) - length):
                if text[start : start + length] == text[-length:]:
                    return text[start + length :]
        return []


# --8<-- [end:drafters]
