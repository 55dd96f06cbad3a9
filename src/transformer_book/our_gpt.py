"""The model that runs through the book: a small GPT whose tokens are words.

It was trained on ``stories``, which a grammar writes with 107 words and marks. The
weights of a head fit in a table, and what the model says can be judged: does a verb
agree with its subject, and can the grammar write this sentence?
"""

import re
from statistics import fmean
from typing import NamedTuple

import torch
from torch import nn

from tested_transformer.checkpoints import load_shipped
from tested_transformer.data import (
    FEW_NAMES,
    Stories,
    WordTokenizer,
    is_sentence,
    tokenizer_from_dict,
    verb_forms,
    word_agreements,
    write_stories,
)
from tested_transformer.decoding import Sampling, generate
from tested_transformer.gpt import GPT
from transformer_book import load_record, model_folder

__all__ = [
    "OurGPT",
    "held_out_stories",
    "number_right",
    "our_gpt",
    "sentences_right",
    "tell",
    "worth",
    "worth_by_rate",
]


class OurGPT(NamedTuple):
    """A trained model and its tokenizer.

    Attributes:
        model: The GPT.
        words: Its tokenizer, whose tokens are words, marks and a line feed.
    """

    model: GPT
    words: WordTokenizer


def our_gpt(seed: int = 1) -> OurGPT:
    """Load the book's model.

    Args:
        seed: Which of five, 1 to 5, that were trained alike from other seeds.

    Raises:
        ValueError: If ``seed`` is not 1 to 5.
    """
    if seed not in range(1, 6):
        raise ValueError(f"seed={seed!r} must be one of 1 to 5")
    shipped = load_shipped(model_folder("stories" if seed == 1 else f"stories-{seed}"))
    words = tokenizer_from_dict(shipped.card["tokenizer"])
    if not isinstance(words, WordTokenizer):
        raise ValueError(f"the tokenizer of the book's model is {words!r}")
    return OurGPT(shipped.model, words)


def held_out_stories(num_characters: int = 60_000) -> Stories:
    """Write stories that the model was not trained on."""
    return write_stories(num_characters, seed=1000, names=FEW_NAMES)


@torch.no_grad()
def number_right(
    model: nn.Module,
    words: WordTokenizer,
    stories: Stories,
    *,
    distractors: int = 1,
    seq_len: int = 64,
) -> float:
    """Return for which share of the verbs the right number is the likelier one.

    The model reads each story from its start up to the word before a verb. Its number
    is that of the verbs whose probabilities add up to more.

    Args:
        model: A model that returns logits of shape (B, T, V).
        words: Its tokenizer.
        stories: What to read.
        distractors: Count only verbs with at least this many nouns or names of the
            other number between subject and verb.
        seq_len: Leave out verbs that come later in a story.
    """
    tokens = words.encode(stories.text)
    (end,) = words.encode("\n")
    ids = {
        number: [words.encode(verb)[0] for verb in verb_forms(number)]
        for number in ("singular", "plural")
    }
    # Texts of one length can be read side by side.
    by_length: dict[int, list[tuple[list[int], bool]]] = {}
    for agreement in word_agreements(stories):
        if agreement.distractors < distractors:
            continue
        start = agreement.at
        while start > 0 and tokens[start - 1] != end:
            start -= 1
        text = [end, *tokens[start : agreement.at + 1]]
        if len(text) <= seq_len:
            by_length.setdefault(len(text), []).append((text, agreement.singular))
    right = total = 0
    for cases in by_length.values():
        texts, answers = zip(*cases, strict=True)
        chances = model(torch.tensor(texts))[:, -1].softmax(dim=-1)
        singular, plural = (chances[:, forms].sum(dim=-1) for forms in ids.values())
        right += int(((singular > plural) == torch.tensor(answers)).sum())
        total += len(cases)
    return right / total


def sentences_right(
    model: GPT, words: WordTokenizer, *, num_samples: int = 16, seed: int = 0
) -> float:
    """Return which share of the sentences that a model writes the grammar can write.

    Args:
        model: The model.
        words: Its tokenizer.
        num_samples: How many texts of 96 tokens to write, at temperature 1.
        seed: The seed of the samples.
    """
    prompts = [words.encode("\n")] * num_samples
    texts = generate(
        model, prompts, max_new_tokens=96, sampling=Sampling(temperature=1.0), seed=seed
    )
    sentences = [
        tuple(re.findall(r"\w+|[.,]", sentence))
        for text in texts
        for line in words.decode(text).split("\n")
        for sentence in re.findall(r"[^.]*\.", line)
    ]
    return sum(map(is_sentence, sentences)) / max(1, len(sentences))


def tell(
    model: GPT,
    words: WordTokenizer,
    text: str = "\n",
    *,
    length: int = 24,
    seed: int = 0,
) -> str:
    """Let a model go on with a text.

    Args:
        model: The model.
        words: Its tokenizer.
        text: The beginning.
        length: How many words and marks to write.
        seed: The seed of the sample.
    """
    prompt = words.encode(text)
    (new,) = generate(
        model, [prompt], max_new_tokens=length, sampling=Sampling(), seed=seed
    )
    return words.decode([*prompt, *new]).strip()


def worth(*parts: str) -> str:
    """Return a table of what is lost without parts of the book's model.

    Each row is the same model, trained in the same way with one thing changed, from
    three seeds. ``python -m benchmarks parts`` measured it, and ``controls`` and
    ``rates``.

    Args:
        parts: Names of rows of these records; all of ``parts`` by default. The whole
            model comes first in any case.

    Raises:
        ValueError: If there is no such row.
    """
    rows = load_record("parts")["results"]["rows"]
    for record in ("controls", "rates") if {*parts} - {*rows} else ():
        rows = rows | load_record(record)["results"]["rows"]
    for name in parts:
        if name not in rows:
            raise ValueError(f"{name!r} must be one of {', '.join(rows)}")
    baseline = next(iter(rows))
    names = [baseline, *(name for name in parts or rows if name != baseline)]
    width = max(map(len, names)) + 2
    table = [f"{'':{width}}{'loss':20}{'number right, %':20}sentences right, %"]
    for name in names:
        row = rows[name]
        loss = " ".join(f"{value:.2f}" for value in row["loss"])
        number = " ".join(f"{100 * value:3.0f}" for value in row["number"])
        right = " ".join(f"{100 * value:3.0f}" for value in row["sentences"])
        table.append(f"{name:{width}}{loss:20}{number:20}{right}")
    return "\n".join(table)


def worth_by_rate(*parts: str) -> str:
    """Return the table of ``worth`` at half, once and twice the learning rates.

    Each number is the mean of three seeds.

    Args:
        parts: Names of rows of the record ``rates``, without the rates; all of them by
            default. The whole model comes first in any case.

    Raises:
        ValueError: If there is no such row.
    """
    at_once = load_record("parts")["results"]["rows"]
    others = load_record("rates")["results"]["rows"]
    known = [name for name in at_once if f"{name}, 2 × rates" in others]
    for name in parts:
        if name not in known:
            raise ValueError(f"{name!r} must be one of {', '.join(known)}")
    names = [known[0], *(name for name in parts or known if name != known[0])]
    width = max(map(len, names)) + 2
    heads = " ".join(f"{times:>4}" for times in ("½", "1", "2"))
    table = [
        f"{'':{width}}{'loss':18}{'number right, %':18}sentences right, %",
        f"{'times the rates':{width}}" + "    ".join([heads] * 3),
    ]
    for name in names:
        of_rates = [f"{name}, ½ × rates", name, f"{name}, 2 × rates"]
        rows = [(at_once | others)[row_name] for row_name in of_rates]
        shown = [
            " ".join(f"{factor * fmean(row[key]):4{form}}" for row in rows)
            for key, factor, form in (
                ("loss", 1, ".2f"),
                ("number", 100, ".0f"),
                ("sentences", 100, ".0f"),
            )
        ]
        table.append(f"{name:{width}}" + "    ".join(shown))
    return "\n".join(table)
