"""Text out of a model, as it comes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tested_transformer.data import Tokenizer
from tested_transformer.generation import Sampling, TextWatch, stream
from tested_transformer.gpt import GPT

__all__ = ["default_prompt", "write"]


def default_prompt(tokenizer: Tokenizer) -> str:
    """Give a text to begin with where there is none: a new line, if that is known."""
    try:
        tokenizer.encode("\n")
    except ValueError:
        return tokenizer.decode([0])
    return "\n"


def write(
    model: GPT,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    stop: Sequence[str] = (),
    **sampling: Any,
) -> Iterator[str]:
    """Give what a model writes after a prompt, piece by piece.

    Args:
        model: On its device.
        tokenizer: Its own.
        prompt: Not given again.
        stop: Strings that end it, and are never shown, not even in part.
        sampling: What ``generation.stream`` takes, and the settings of ``Sampling``.

    Raises:
        ValueError: If the prompt is empty or has characters that the tokenizer lacks,
            or a setting is out of its range.
    """
    ids = tokenizer.encode(prompt)
    if not ids:
        raise ValueError("prompt='' must not be empty: the model goes on from it")
    # Not a generator itself, so that a mistake is found here and not in a loop later.
    watch = TextWatch(tokenizer.decode, stop)
    names = sampling.keys() & Sampling.__dataclass_fields__.keys()
    chosen = Sampling(**{name: sampling.pop(name) for name in names})
    return _pieces(stream(model, [ids], sampling=chosen, **sampling), watch)


def _pieces(steps: Iterable[list[tuple[int, ...]]], watch: TextWatch) -> Iterator[str]:
    for [tokens] in steps:
        piece = watch.feed(tokens) if tokens else ""
        if piece:
            yield piece
        if watch.stopped:
            return
    rest = watch.finish()
    if rest:
        yield rest
