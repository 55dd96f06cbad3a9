"""Speculative decoding: a cheap drafter guesses tokens, and the model verifies them.

The output has exactly the model's own distribution, whatever the drafter. A better
drafter only makes generation faster. This module generates one sequence at a time.

Sources of the whole: Leviathan et al., 2023, "Fast Inference from Transformers via
Speculative Decoding"; Chen et al., 2023, "Accelerating Large Language Model Decoding
with Speculative Sampling".
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import index

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from tested_transformer.cache import KVCache, numbers_of
from tested_transformer.gpt import GPT
from tested_transformer.layers import evaluating
from tested_transformer.validation import validate_between, validate_sizes

__all__ = [
    "Chance",
    "Draft",
    "Drafter",
    "ModelDrafter",
    "NgramDrafter",
    "Pass",
    "Probabilities",
    "Speculation",
    "TextReader",
    "every_outcome",
    "expected_tokens",
    "left_over",
    "softmax",
    "speculate",
    "stream_passes",
    "validate_prompt",
    "verify",
]

# A function from logits, (T, V), to the probabilities to draw from, such as
# ``Sampling(...).probabilities``.
Probabilities = Callable[[Tensor], Tensor]


def softmax(logits: Float[Tensor, "T V"]) -> Float[Tensor, "T V"]:
    """Return the model's own probabilities, the default to draw from."""
    return logits.softmax(dim=-1)


class Chance:
    """A source of random decisions that repeats for the same seed.

    Args:
        seed: The seed; drawn from PyTorch's global generator by default.
    """

    def __init__(self, seed: int | None = None) -> None:
        seed = int(torch.randint(2**62, ())) if seed is None else seed
        self.generator = torch.Generator().manual_seed(seed)

    def accepts(self, probability: float) -> bool:
        """Return ``True`` with this probability; always if it is 1 or more."""
        coin = torch.rand((), generator=self.generator, dtype=torch.float64)
        return bool(coin < probability)

    def draw(self, probabilities: Float[Tensor, "V"]) -> int:
        """Draw a token, by an exponential race as in ``decoding.draw``."""
        probabilities = probabilities.cpu()
        waits = torch.empty_like(probabilities).exponential_(generator=self.generator)
        return int((probabilities / waits).argmax())


# --8<-- [start:verify]
def verify(
    drafted: Sequence[int],
    draft: Float[Tensor, "k V"],
    target: Float[Tensor, "k_and_1 V"],
    chance: Chance,
) -> list[int]:
    """Return the accepted drafted tokens, and one more drawn from the target.

    Whatever the draft, the returned tokens follow the target's own distribution.

    Args:
        drafted: The k drafted tokens.
        draft: The probabilities that each of them was drawn from.
        target: The target's probabilities at each of their positions, and at the next.
        chance: The source of random decisions.

    Raises:
        ValueError: If the numbers of tokens do not fit.

    Source: Leviathan et al., 2023, section 2.3 and algorithm 1.
    """
    _validate_rows(drafted, draft, target)
    kept: list[int] = []
    for token, q, p in zip(drafted, draft, target, strict=False):
        if not chance.accepts(float(p[token]) / float(q[token])):
            return [*kept, chance.draw(left_over(p, q))]
        kept.append(token)
    return [*kept, chance.draw(target[-1])]


def left_over(p: Float[Tensor, "V"], q: Float[Tensor, "V"]) -> Float[Tensor, "V"]:
    """Return the distribution that replaces a rejected token: where p exceeds q."""
    rest = (p - q).clamp(min=0)
    total = rest.sum()
    return rest / total if total > 0 else p  # p and q differ only by rounding


# --8<-- [end:verify]


def _validate_rows(drafted: Sequence[int], draft: Tensor, target: Tensor) -> None:
    if not len(drafted) == len(draft) == len(target) - 1:
        raise ValueError(
            f"{len(drafted)} drafted tokens need as many rows of draft and one more "
            f"row of target; they have {len(draft)} and {len(target)}"
        )
    for position, token in enumerate(drafted):
        if not draft[position, token] > 0:
            raise ValueError(
                f"drafted[{position}]={token} has no probability in draft: pass the "
                "rows that the tokens were drawn from"
            )


# --8<-- [start:reader]
class TextReader:
    """Read a text whose end may be taken back, and reuse the cache for the rest.

    Args:
        model: The model that reads.

    Raises:
        ValueError: If layers of the model have a state, which this reader keeps only
            after the last token, so it cannot go back.
    """

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.cache = model.new_cache()
        _validate_rewindable(self.cache)
        self.text: list[int] = []

    @torch.inference_mode()
    def read(self, text: Sequence[int], count: int) -> Float[Tensor, "count V"]:
        """Return the logits after each of the last ``count`` tokens of a text."""
        pairs = zip(self.text, text[: len(text) - count], strict=False)
        same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
        self.cache.rewind(same)
        self.text = [*text]
        tokens = torch.tensor([text[same:]], device=numbers_of(self.model).device)
        with evaluating(self.model):
            return self._logits(tokens)[-count:]

    def _logits(self, tokens: Tensor) -> Tensor:
        """Return the logits after each of these tokens, (T, V)."""
        return self.model(tokens, cache=self.cache)[0]


# --8<-- [end:reader]


def _validate_rewindable(cache: KVCache) -> None:
    if not cache.rewindable:
        raise ValueError(
            "the cache of model cannot go back: a layer keeps only the last state, so "
            "drafted tokens could not be taken back"
        )


# --8<-- [start:drafters]
@dataclass(frozen=True)
class Draft:
    """Some drafted tokens, and the probabilities that each was drawn from.

    Args:
        tokens: The k tokens.
        probabilities: A row for each of them.
    """

    tokens: list[int]
    probabilities: Float[Tensor, "k V"]


class Drafter(ABC):
    """Base class of drafters, which guess how a text continues."""

    @abstractmethod
    def draft(self, text: Sequence[int], count: int, chance: Chance) -> Draft:
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
        own, other = self._reader.model.config, model.config
        if own.vocab_size != other.vocab_size:
            raise ValueError(
                f"the drafter's model has vocab_size={own.vocab_size}; "
                f"it must be that of the model, {other.vocab_size}"
            )
        if own.max_seq_len < other.max_seq_len:
            raise ValueError(
                f"the drafter's model has max_seq_len={own.max_seq_len}; "
                f"it must be at least that of the model, {other.max_seq_len}"
            )
        return TextReader(model)

    def draft(self, text: Sequence[int], count: int, chance: Chance) -> Draft:
        """Return ``count`` tokens that the small model draws."""
        drafted, rows = list[int](), list[Tensor]()
        for _ in range(count):
            logits = self._reader.read([*text, *drafted], 1)
            rows.append(self.probabilities(logits).cpu())
            drafted.append(chance.draw(rows[-1][0]))
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

    def draft(self, text: Sequence[int], count: int, chance: Chance) -> Draft:
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


@dataclass(frozen=True)
class Speculation:
    """The generated tokens, and how many drafted tokens were accepted.

    Args:
        tokens: The new tokens.
        drafted: For each pass of the model, how many tokens were drafted.
        accepted: For each pass, how many of them were accepted.
    """

    tokens: list[int]
    drafted: list[int]
    accepted: list[int]

    @property
    def tokens_per_call(self) -> float:
        """The mean number of new tokens per pass of the model."""
        return len(self.tokens) / max(len(self.accepted), 1)

    @property
    def acceptance(self) -> float:
        """The share of the verified drafted tokens that were accepted.

        The tokens of a draft after a rejected one are not verified.
        """
        pairs = zip(self.drafted, self.accepted, strict=True)
        verified = sum(min(drafted, accepted + 1) for drafted, accepted in pairs)
        return sum(self.accepted) / max(verified, 1)


@dataclass(frozen=True)
class Pass:
    """The result of one pass of the model.

    Args:
        tokens: The accepted drafted tokens, and one more.
        num_drafted: How many tokens were drafted for this pass.
    """

    tokens: list[int]
    num_drafted: int


def speculate(
    model: GPT,
    prompt: Sequence[int],
    drafter: Drafter,
    *,
    max_new_tokens: int,
    num_drafted: int = 4,
    probabilities: Probabilities = softmax,
    chance: Chance | None = None,
) -> Speculation:
    """Continue a prompt as the model alone would, in fewer passes of the model.

    Args:
        model: The target model.
        prompt: Token ids, at least one.
        drafter: The drafter that guesses tokens.
        max_new_tokens: How many tokens to write.
        num_drafted: k, how many tokens are drafted for each pass; 0 for none.
        probabilities: From the model's logits to the probabilities it draws from, such
            as ``decoding.Sampling(...).probabilities``; softmax by default.
        chance: The source of random decisions; ``Chance()`` by default.

    Raises:
        ValueError: If the prompt is empty or contains something other than token ids
            of the model, a number is negative, the drafter was made for another
            vocabulary or for shorter texts, or prompt and answer together exceed the
            model's ``max_seq_len``.
    """
    passes = [
        *stream_passes(
            model,
            prompt,
            drafter,
            max_new_tokens=max_new_tokens,
            num_drafted=num_drafted,
            probabilities=probabilities,
            chance=chance,
        )
    ]
    return Speculation(
        tokens=[token for each in passes for token in each.tokens],
        drafted=[each.num_drafted for each in passes],
        accepted=[len(each.tokens) - 1 for each in passes],
    )


def stream_passes(
    model: GPT,
    prompt: Sequence[int],
    drafter: Drafter,
    *,
    max_new_tokens: int,
    num_drafted: int = 4,
    probabilities: Probabilities = softmax,
    chance: Chance | None = None,
) -> Iterator[Pass]:
    """Yield the passes of ``speculate``, which has the same arguments, one by one.

    A ``HeadDrafter`` can serve only one text at a time.

    Raises:
        ValueError: For the same reasons as ``speculate``, before the first pass.
    """
    validate_prompt(model, prompt, max_new_tokens)
    _validate_parts(drafter, num_drafted, probabilities, chance)
    chance = Chance() if chance is None else chance
    reader, end = drafter.reader(model), len(prompt) + max_new_tokens

    # --8<-- [start:passes]
    def passes() -> Iterator[Pass]:
        text = [*prompt]
        while len(text) < end:
            draft = drafter.draft(text, min(num_drafted, end - len(text) - 1), chance)
            logits = reader.read([*text, *draft.tokens], len(draft.tokens) + 1)
            target = probabilities(logits).cpu()
            new = verify(draft.tokens, draft.probabilities, target, chance)
            text += new
            yield Pass(new, len(draft.tokens))

    # --8<-- [end:passes]

    return passes()


def _validate_parts(
    drafter: object, num_drafted: object, probabilities: object, chance: object
) -> None:
    if not isinstance(drafter, Drafter):
        raise TypeError(
            f"drafter must be a Drafter; it is a {type(drafter).__name__}: for a model "
            "write ModelDrafter(model)"
        )
    if not isinstance(num_drafted, int):
        raise TypeError(f"num_drafted={num_drafted!r} must be an int")
    if num_drafted < 0:
        raise ValueError(f"num_drafted={num_drafted} must not be negative")
    if not callable(probabilities):
        raise TypeError(
            f"probabilities must be a function; it is a {type(probabilities).__name__}:"
            " for a Sampling write sampling.probabilities"
        )
    if chance is not None and not isinstance(chance, Chance):
        raise TypeError(f"chance={chance!r} must be a Chance: write Chance({chance!r})")


def validate_prompt(model: GPT, prompt: Sequence[int], max_new_tokens: int) -> None:
    """Raise an error if a prompt is malformed, or too long with its answer."""
    try:
        ids = [index(token) for token in prompt]
    except TypeError:
        raise TypeError(
            f"prompt must be the ids of one text; it is {prompt!r}: for text write "
            "tokenizer.encode(text)"
        ) from None
    if not ids:
        raise ValueError("prompt is empty: it needs at least one token")
    vocab_size = model.config.vocab_size
    for token in ids:
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"prompt holds {token}; tokens must be at least 0 and less than "
                f"vocab_size={vocab_size}"
            )
    if not isinstance(max_new_tokens, int):
        raise TypeError(f"max_new_tokens={max_new_tokens!r} must be an int")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens={max_new_tokens} must not be negative")
    length, most = len(prompt) + max_new_tokens, model.config.max_seq_len
    if length > most:
        room = most - len(prompt)
        hint = f"write at most {room}" if room > 0 else "shorten the prompt"
        raise ValueError(
            f"{len(prompt)} tokens of prompt and max_new_tokens={max_new_tokens} are "
            f"more than max_seq_len={most}: {hint}"
        )


# --8<-- [start:expected]
def expected_tokens(acceptance: float, num_drafted: int) -> float:
    """Return the expected number of tokens per pass, from 1 to k + 1.

    Args:
        acceptance: The probability that a drafted token is accepted, the same for all.
        num_drafted: k, how many tokens are drafted for a pass.

    Source: Leviathan et al., 2023, equation 1.
    """
    validate_between("acceptance", acceptance, 0, 1)
    validate_between("num_drafted", num_drafted, 0, float("inf"))
    if acceptance == 1:
        return num_drafted + 1.0
    return (1 - acceptance ** (num_drafted + 1)) / (1 - acceptance)


# --8<-- [end:expected]


# --8<-- [start:every]
def every_outcome(run: Callable[[Chance], Hashable]) -> dict[Hashable, float]:
    """Return the exact probability of each outcome, by trying every random decision.

    Args:
        run: A function that is deterministic apart from its ``Chance``. It is called
            once for each sequence of decisions.
    """
    outcomes, ways = dict[Hashable, float](), list[list[int]]([[]])
    while ways:
        chance = _Scripted(ways.pop())
        outcome = run(chance)
        outcomes[outcome] = outcomes.get(outcome, 0.0) + chance.probability
        ways += chance.other_ways
    return outcomes


class _Scripted(Chance):
    """Decide as a list says, then always the first way; record the other ways."""

    def __init__(self, way: list[int]) -> None:
        self.way, self.step = way, 0
        self.probability = 1.0
        self.other_ways: list[list[int]] = []

    def accepts(self, probability: float) -> bool:
        probability = min(probability, 1.0)
        return self._decide([1 - probability, probability]) == 1

    def draw(self, probabilities: Tensor) -> int:
        return self._decide(probabilities.tolist())

    def _decide(self, probabilities: list[float]) -> int:
        if self.step == len(self.way):
            first, *others = (i for i, p in enumerate(probabilities) if p > 0)
            self.other_ways += [[*self.way, other] for other in others]
            self.way = [*self.way, first]
        side = self.way[self.step]
        self.step += 1
        self.probability *= probabilities[side]
        return side


# --8<-- [end:every]
