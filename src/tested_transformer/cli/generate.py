"""``tested-transformer generate``: write text with a model."""

import json
import secrets
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any

from tested_transformer import decoding
from tested_transformer.caches import share_in_use
from tested_transformer.cli.display import Terminal, printable
from tested_transformer.cli.flags import Call, Flags, check_at_least
from tested_transformer.cli.sources import Source, load_source
from tested_transformer.data import Tokenizer, encode_prompt
from tested_transformer.data.tokenizers import check_utf8
from tested_transformer.decoding import (
    Decoder,
    Detokenizer,
    Drafter,
    ModelDrafter,
    NgramDrafter,
    PackingError,
    RandomSource,
    Reader,
    stream_speculation,
)
from tested_transformer.decoding.cache_readers import (
    CACHES as CACHES,  # for --help
    PagedReader,
    reader_with,
)
from tested_transformer.decoding.stopping import StopFilter
from tested_transformer.gpt import GPT
from tested_transformer.rotary_scaling import SCALINGS as SCALINGS

__all__ = ["SAMPLING", "Generate", "default_prompt", "write", "write_with_drafts"]

_DEFAULTS: dict[str, Any] = {"temperature": 0.8}
SAMPLING = Flags("sampling", decoding.Sampling, [_DEFAULTS])
_AT_ONCE = 16  # samples to write side by side, which bounds the memory


@dataclass(frozen=True)
class Generate:
    r"""Write text with a model.

    Examples:
      tested-transformer generate                       the latest run in runs/ writes
      tested-transformer generate runs/play --prompt "To be" --max-new-tokens 500
      tested-transformer generate --temperature 0       always the most likely token
      tested-transformer generate --top-p 0.9 --seed 7  the same text each time
      tested-transformer generate --stop "\n\n"         up to an empty line
      tested-transformer generate gpt2 --prompt "Attention is"
      tested-transformer generate --cache rolling --max-new-tokens 5000
      tested-transformer generate runs/big --draft runs/small --max-new-tokens 50

    The text goes to standard output, everything else to standard error. The model is
    the folder of a run; a folder with a card.json, like the book's own models; a folder
    with the config.json, model.safetensors and tokenizer.json of a GPT-2, Llama, Qwen,
    Gemma or the like; or one of gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2 and
    hub:OWNER/NAME, downloaded once. If such a tokenizer puts a token before each text,
    so does generate, and it stops at the tokens that end a text.

    Args:
        checkpoint: The model; the latest run in runs/ by default.
        prompt: The text to continue; a new line by default.
        stop: Stop before this string; may be given several times, \n is a new line.
        max_new_tokens: Write at most this many tokens.
        num_samples: How many texts to write, each with the next seed.
        seed: The same seed gives the same text; random by default, and printed.
        rotary_factor: Read texts this many times as long as max_seq_len, by slowing
            rotary positions down.
        rotary_scaling: The rule for slowing them down, one of ``SCALINGS``.
        cache: How to keep keys and values, one of ``CACHES``: rolling keeps only the
            first and the latest tokens, int8 and int4 quantize, paged keeps pages that
            samples share; the model's own cache by default.
        draft: Speculate with another model, or with ngram, which repeats what followed
            the same words earlier; prompt and text must fit max_seq_len.
        num_drafted: How many tokens to draft at a time.
        sampling: See ``Sampling``.
    """

    checkpoint: str | None = None
    _: KW_ONLY
    prompt: str | None = None
    stop: list[str] = field(default_factory=list)
    max_new_tokens: int = 300
    num_samples: int = 1
    seed: int | None = None
    rotary_factor: float = 1.0
    rotary_scaling: str = "yarn"
    cache: str | None = None
    draft: str | None = None
    num_drafted: int = 4
    sampling: dict[str, Any] = field(default_factory=dict)

    def run(self, call: Call) -> int:
        """Write, and return the exit status."""
        check_at_least(1, num_samples=self.num_samples, num_drafted=self.num_drafted)
        sampling = decoding.Sampling(**_DEFAULTS | self.sampling)
        seed = secrets.randbelow(2**31) if self.seed is None else self.seed
        stop = [text.replace("\\n", "\n") for text in self.stop]
        for text in stop:
            check_utf8(text, "stop: ")
        source = load_source(self.checkpoint, call.device)
        source = source.stretched(self.rotary_factor, self.rotary_scaling)
        tokenizer = source.tokenizer
        prompt = default_prompt(tokenizer) if self.prompt is None else self.prompt
        end_tokens = source.end_tokens
        common = {"stop": stop, "sampling": sampling, "end_tokens": end_tokens}
        length = len(_encode(tokenizer, prompt)) + self.max_new_tokens
        source.make_room(length)
        drafter: Drafter | None = None
        reader: GPT | Reader = source.model
        if self.draft is not None:
            self._validate_draft(sampling)
            drafter = self._drafter(source, sampling, call, length)
            with _advise(f"draft={self.draft!r} does not fit this model: leave it out"):
                drafter.reader(source.model)
        elif self.cache is not None:
            reader = reader_with(self.cache, source.model)
        else:
            reader = _fastest_reader(source.model)
        # A drafter follows one text at a time, so show each as it comes.
        at_once = _AT_ONCE if drafter is None else 1
        for first in range(0, self.num_samples, at_once):
            settings = {"max_new_tokens": self.max_new_tokens, "seed": seed + first}
            if drafter is not None:
                pieces = write_with_drafts(
                    source.model,
                    tokenizer,
                    prompt,
                    drafter,
                    num_drafted=self.num_drafted,
                    **common,
                    **settings,
                )
            else:
                pieces = write(
                    reader,
                    tokenizer,
                    prompt,
                    num_samples=min(at_once, self.num_samples - first),
                    **common,
                    **settings,
                )
            if call.as_json:
                facts = {"checkpoint": source.name, "prompt": prompt}
                _print_json(pieces, first, facts | asdict(sampling) | settings)
            else:
                _print_text(pieces, first, prompt.lstrip("\n"), self.num_samples)
                if isinstance(reader, PagedReader) and reader.caches:
                    _tell(_describe_pages(reader))
        if self.seed is None and not call.as_json and sampling.temperature > 0:
            _tell(f"for the same text, add --seed {seed}")
        return 0

    def _validate_draft(self, sampling: decoding.Sampling) -> None:
        if self.cache is not None:
            raise ValueError(
                f"cache={self.cache!r} does not fit draft={self.draft!r}, which takes "
                "rejected tokens out of the model's own cache: leave out one"
            )
        if sampling.repetition_penalty != 1.0:
            raise ValueError(
                f"repetition_penalty={sampling.repetition_penalty} does not fit "
                f"draft={self.draft!r}, which verifies several tokens at once: leave "
                "out one"
            )

    def _drafter(
        self, source: Source, sampling: decoding.Sampling, call: Call, length: int
    ) -> Drafter:
        """Return the drafter."""
        if self.draft == "ngram":
            return NgramDrafter(source.model.config.vocab_size)
        small = load_source(self.draft, call.device)
        if small.tokenizer.to_dict() != source.tokenizer.to_dict():
            raise ValueError(
                f"draft={self.draft!r} has another tokenizer than {source.name}: train "
                "both on the same text"
            )
        small.make_room(max(length, source.model.config.max_seq_len))
        return ModelDrafter(small.model, probabilities=sampling.probabilities)


@contextmanager
def _advise(text: str) -> Generator[None]:
    """Add advice to an error of the library."""
    try:
        yield
    except ValueError as error:
        error.add_note(text)
        raise


def default_prompt(tokenizer: Tokenizer) -> str:
    """Return a text to start from: a new line, if the tokenizer has one.

    It is empty if the tokenizer puts a token such as BOS before each text.
    """
    if encode_prompt(tokenizer, ""):
        return ""
    with suppress(ValueError):
        if tokenizer.encode("\n"):
            return "\n"
    return tokenizer.decode([0])


def _fastest_reader(model: GPT) -> GPT | Reader:
    """Return a ``Decoder`` if the model fits it; else the model itself."""
    try:
        return Decoder(model)
    except PackingError:
        return model


def write(
    model: GPT | Reader,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_new_tokens: int,
    seed: int,
    sampling: decoding.Sampling,
    stop: Sequence[str] = (),
    end_tokens: Sequence[int] = (),
    num_samples: int = 1,
) -> Iterator[list[str]]:
    """Return an iterator over the text after a prompt, one piece per sample and step.

    Samples have the seeds ``seed``, ``seed + 1`` and so on. Strings in ``stop`` and
    tokens in ``end_tokens`` end a sample, and are never shown, not even in part. The
    tokenizer's opening, such as BOS, stands before the prompt.

    Raises:
        ValueError: Before the first piece, if the prompt is empty or has characters
            that the tokenizer lacks, or a setting is out of its range.
    """
    ids = _encode(tokenizer, prompt)
    detokenizers = [_detokenizer(tokenizer, stop, ids) for _ in range(num_samples)]
    steps = decoding.stream(
        model,
        [ids] * num_samples,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        stop=[(token,) for token in end_tokens],
        seed=seed,
    )
    return _pieces(steps, detokenizers, tokenizer.vocab_size)


def write_with_drafts(
    model: GPT,
    tokenizer: Tokenizer,
    prompt: str,
    drafter: Drafter,
    *,
    max_new_tokens: int,
    seed: int,
    sampling: decoding.Sampling,
    stop: Sequence[str] = (),
    end_tokens: Sequence[int] = (),
    num_drafted: int = 4,
) -> Iterator[list[str]]:
    """Return the same as ``write`` for one sample, in fewer passes of the model.

    Raises:
        ValueError: For the same reasons as ``write``, and if prompt and text do not fit
            the model.
    """
    ids = _encode(tokenizer, prompt)
    detokenizer = _detokenizer(tokenizer, stop, ids)
    steps = stream_speculation(
        model,
        ids,
        drafter,
        max_new_tokens=max_new_tokens,
        num_drafted=num_drafted,
        probabilities=sampling.probabilities,
        rng=RandomSource(seed),
    )
    ending = StopFilter([(token,) for token in end_tokens], ())

    def rows() -> Iterator[list[tuple[int, ...]]]:
        for step in steps:
            yield [ending.feed((*step.tokens,))]
            if ending.stopped:
                return

    return _pieces(rows(), [detokenizer], tokenizer.vocab_size)


def _encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    ids = encode_prompt(tokenizer, prompt)
    if not ids:
        wrong = "has no tokens" if prompt else "must not be empty"
        raise ValueError(f"prompt={prompt!r} {wrong}: the model continues it")
    return ids


def _detokenizer(
    tokenizer: Tokenizer, stop: Sequence[str], prompt: Sequence[int]
) -> Detokenizer:
    byte_tokens = getattr(tokenizer, "byte_tokens", ())
    return Detokenizer(tokenizer.decode, stop, before=prompt, byte_tokens=byte_tokens)


def _pieces(
    steps: Iterable[Sequence[Sequence[int]]],
    detokenizers: list[Detokenizer],
    known: int,
) -> Iterator[list[str]]:
    """Turn the tokens of each sample into text, until all have stopped.

    A model may have more tokens than the ``known`` ones of its tokenizer, to round
    their number up. These have no text.
    """
    for step in steps:
        yield [
            "".join(
                row.feed([token])
                for token in tokens
                if not row.stopped and token < known
            )
            for row, tokens in zip(detokenizers, step, strict=True)
        ]
        if all(row.stopped for row in detokenizers):
            return
    yield [row.finish() for row in detokenizers]


def _describe_pages(reader: PagedReader) -> str:
    """Return the use of a paged cache, compared with one contiguous cache each."""
    caches, size = reader.caches, reader.page_size
    pages = len({page for cache in caches for page in cache.table})
    tokens = sum(cache.length for cache in caches)
    contiguous = tokens / (len(caches) * reader.longest)
    return (
        f"kept in {pages} pages of {size} tokens, {share_in_use(caches):.0%} in use "
        f"(in one piece each: {contiguous:.0%})"
    )


def _tell(text: str) -> None:
    Terminal(stderr=True).print(text, style="dim", highlight=False)


def _print_json(pieces: Iterator[list[str]], first: int, facts: dict[str, Any]) -> None:
    started = time.perf_counter()
    texts = ["".join(row) for row in zip(*pieces, strict=True)]
    facts = facts | {"seconds": time.perf_counter() - started}
    for row, text in enumerate(texts):
        own = {"sample": first + row + 1, "seed": facts["seed"] + row, "text": text}
        print(json.dumps(facts | own), flush=True)


def _print_text(
    pieces: Iterator[list[str]], first: int, prompt: str, num_samples: int
) -> None:
    """Print the first sample as it comes, and the others when they are complete."""
    clean = printable if sys.stdout.isatty() else str
    console = Terminal(file=sys.stdout, soft_wrap=True, highlight=False, markup=False)
    others: list[tuple[str, ...]] = []

    def begin(number: int) -> None:
        if number:
            print(f"\n--- sample {number + 1} of {num_samples} ---")
        console.print(clean(prompt), style="bold", end="")

    begin(first)
    for piece, *rest in pieces:
        print(clean(piece), end="", flush=True)
        others.append(tuple(rest))
    print(flush=True)
    for number, text in enumerate(zip(*others, strict=True), start=first + 1):
        begin(number)
        print(clean("".join(text)), flush=True)
