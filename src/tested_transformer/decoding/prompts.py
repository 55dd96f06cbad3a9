"""Prompts and stop sequences, checked and as lists of token ids.

``generate``, ``speculate`` and ``serve`` call these before a model reads anything.
"""

from collections.abc import Iterable, Sequence
from operator import index

from jaxtyping import Int
from torch import Tensor

from tested_transformer.gpt import GPTConfig

__all__ = [
    "Prompts",
    "checked_prompt",
    "checked_prompts",
    "checked_stops",
    "validate_count",
    "validate_length",
]

Prompts = Iterable[Iterable[int]] | Int[Tensor, "B T"]


def checked_prompts(prompts: Prompts, vocab_size: int) -> list[list[int]]:
    """Return the token ids of each prompt, of which there must be at least one.

    Raises:
        TypeError: If they are not sequences of integers.
        ValueError: If there is none, one is empty, or a token is not in the vocabulary.
    """
    if isinstance(prompts, Tensor) and prompts.ndim != 2:
        raise ValueError(
            "prompts must be token ids of shape (B, T); they are of shape "
            f"{tuple(prompts.shape)}"
        )
    if isinstance(prompts, str) or not isinstance(prompts, Iterable):
        raise TypeError(
            f"prompts must be a list of prompts; it is {prompts!r}: for one text write "
            "[tokenizer.encode(text)]"
        )
    checked = [
        checked_prompt(prompt, vocab_size, name=f"prompts[{row}]")
        for row, prompt in enumerate(prompts)
    ]
    if not checked:
        raise ValueError("prompts is empty: pass at least one prompt")
    return checked


def checked_prompt(
    prompt: Iterable[int] | Tensor, vocab_size: int, *, name: str = "prompt"
) -> list[int]:
    """Return the token ids of one prompt, of which there must be at least one.

    Raises:
        TypeError: If it is not a sequence of integers.
        ValueError: If it is empty, or a token is not in the vocabulary.
    """
    ids = _token_ids(name, prompt)
    if not ids:
        raise ValueError(f"{name} is empty: it needs at least one token")
    for token in ids:
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"{name} holds {token}; tokens must be at least 0 and less than "
                f"vocab_size={vocab_size}"
            )
    return ids


def checked_stops(stop: Iterable[Iterable[int]]) -> list[tuple[int, ...]]:
    """Return the token ids of each stop sequence.

    Raises:
        TypeError: If they are not sequences of integers.
    """
    if isinstance(stop, str) or not isinstance(stop, Iterable):
        raise TypeError(
            f"stop must be a list of sequences of token ids; it is {stop!r}: for no "
            "stop write stop=[]"
        )
    return [
        tuple(_token_ids(f"stop[{number}]", tokens))
        for number, tokens in enumerate(stop)
    ]


def validate_count(**counts: int) -> None:
    """Raise an error if a number of tokens is not an ``int``, or negative."""
    for name, count in counts.items():
        if not isinstance(count, int):
            raise TypeError(f"{name}={count!r} must be an int")
        if count < 0:
            raise ValueError(f"{name}={count} must not be negative")


def validate_length(
    config: GPTConfig, prompt: Sequence[int], max_new_tokens: int
) -> None:
    """Raise a ``ValueError`` if a prompt and its answer do not fit the context."""
    longest = config.max_seq_len
    if len(prompt) + max_new_tokens > longest:
        room = longest - len(prompt)
        hint = f"write at most {room}" if room > 0 else "shorten the prompt"
        raise ValueError(
            f"{len(prompt)} tokens of prompt and max_new_tokens={max_new_tokens} are "
            f"more than max_seq_len={longest}: {hint}"
        )


def _token_ids(name: str, tokens: Iterable[int] | Tensor) -> list[int]:
    """Return token ids of any kind of integers as those of Python."""
    try:
        values = tokens.tolist() if isinstance(tokens, Tensor) else [*tokens]
        if bool in map(type, values):  # a mask, although Python counts True as 1
            raise TypeError
        return [index(value) for value in values]
    except TypeError:
        hint = ""
        if isinstance(tokens, str):
            hint = ": for text write tokenizer.encode(text)"
        elif isinstance(tokens, int):
            hint = f": for one sequence write [{name.partition('[')[0]}]"
        raise TypeError(
            f"{name} must be a list of token ids; it is {tokens!r}{hint}"
        ) from None
