"""The loop of speculative decoding, for one text at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tested_transformer.decoding.prompts import (
    checked_prompt,
    validate_count,
    validate_length,
)
from tested_transformer.decoding.sampling import Probabilities, RandomSource, softmax
from tested_transformer.decoding.speculative.drafters import Drafter
from tested_transformer.decoding.speculative.verification import verify, verify_tree
from tested_transformer.gpt import GPT

__all__ = ["Speculation", "SpeculativeStep", "speculate", "stream_speculation"]


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

        The tokens of a draft after a rejected one are not verified. This is for drafts
        without branches: a tree has several tokens for one place.
        """
        pairs = zip(self.drafted, self.accepted, strict=True)
        verified = sum(min(drafted, accepted + 1) for drafted, accepted in pairs)
        return sum(self.accepted) / max(verified, 1)


@dataclass(frozen=True)
class SpeculativeStep:
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
    rng: RandomSource | None = None,
) -> Speculation:
    """Continue a prompt as the model alone would, in fewer passes of the model.

    Args:
        model: The target model.
        prompt: Token ids, at least one.
        drafter: The drafter that guesses tokens.
        max_new_tokens: How many tokens to write.
        num_drafted: k, how many tokens are drafted for each pass; 0 for none. For a
            tree, how many levels it has at most.
        probabilities: From the model's logits to the probabilities it draws from, such
            as ``decoding.Sampling(...).probabilities``; softmax by default.
        rng: Makes the random decisions; ``RandomSource()`` by default.

    Raises:
        ValueError: If the prompt is empty or contains something other than token ids
            of the model, a number is negative, the drafter was made for another
            vocabulary or for shorter texts, or prompt and answer together exceed the
            model's ``max_seq_len``.
    """
    steps = [
        *stream_speculation(
            model,
            prompt,
            drafter,
            max_new_tokens=max_new_tokens,
            num_drafted=num_drafted,
            probabilities=probabilities,
            rng=rng,
        )
    ]
    return Speculation(
        tokens=[token for step in steps for token in step.tokens],
        drafted=[step.num_drafted for step in steps],
        accepted=[len(step.tokens) - 1 for step in steps],
    )


def stream_speculation(
    model: GPT,
    prompt: Sequence[int],
    drafter: Drafter,
    *,
    max_new_tokens: int,
    num_drafted: int = 4,
    probabilities: Probabilities = softmax,
    rng: RandomSource | None = None,
) -> Iterator[SpeculativeStep]:
    """Yield the steps of ``speculate``, which has the same arguments, one by one.

    A ``HeadDrafter`` can serve only one text at a time.

    Raises:
        ValueError: For the same reasons as ``speculate``, before the first step.
    """
    start = checked_prompt(prompt, model.config.vocab_size)
    validate_count(max_new_tokens=max_new_tokens, num_drafted=num_drafted)
    validate_length(model.config, start, max_new_tokens)
    _validate_kinds(drafter, probabilities)
    source = RandomSource() if rng is None else rng
    reader, end = drafter.reader(model), len(start) + max_new_tokens

    # --8<-- [start:steps]
    def steps() -> Iterator[SpeculativeStep]:
        text = [*start]
        while len(text) < end:
            draft = drafter.draft(text, min(num_drafted, end - len(text) - 1), source)
            logits = reader.read_draft(text, draft.tokens, draft.parents)
            rows = draft.probabilities, probabilities(logits).cpu(), source
            new = (
                verify(draft.tokens, *rows)
                if draft.parents is None
                else verify_tree(draft.tokens, draft.parents, *rows)
            )
            text += new
            yield SpeculativeStep(new, len(draft.tokens))

    # --8<-- [end:steps]

    return steps()


def _validate_kinds(drafter: object, probabilities: object) -> None:
    if not isinstance(drafter, Drafter):
        raise TypeError(
            f"drafter must be a Drafter; it is a {type(drafter).__name__}: for a model "
            "write ModelDrafter(model)"
        )
    if not callable(probabilities):
        raise TypeError(
            f"probabilities must be a function; it is a {type(probabilities).__name__}:"
            " for a Sampling write sampling.probabilities"
        )
