"""Measure how four models use the past: which word stood there, and how far back?

A line is a list of animals, then four questions, each the number of a place, which the
animal at that place answers. The list grows; or it keeps its first four animals, about
which all questions are then asked, and names fill the rest. The last measurement is a
GRU on the book's stories.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.contenders import num_parameters
from benchmarks.learning import Descent, fit, fit_to_text, seeded
from benchmarks.parts import PARTS
from benchmarks.run import Results, Run
from tested_transformer.data import WordTokenizer, load_corpus, split
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import evaluate
from transformer_book.our_gpt import held_out_stories, number_right

__all__ = ["KINDS", "Recurrent", "draw_lines", "make", "measure"]

ANIMALS, NAMES, LONGEST, QUESTIONS, FEW = 8, 12, 32, 4, 4
VOCABULARY = ANIMALS + NAMES + LONGEST
LENGTHS = (4, 8, 16, 32)
RATES = (0.003, 0.01, 0.03)


class Recurrent(nn.Module):
    """A language model with a GRU: one state, updated word by word.

    Args:
        vocab_size: How many tokens there are.
        hidden_size: The width of the state.
        d_model: The width of the embedding.
    """

    def __init__(self, vocab_size: int, hidden_size: int, d_model: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.gru = nn.GRU(d_model, hidden_size, batch_first=True)
        self.head = nn.Linear(hidden_size, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits at each position."""
        states, _ = self.gru(self.embedding(tokens))
        return self.head(states)


def _attention() -> GPT:
    length = LONGEST + 2 * QUESTIONS
    size = {"d_model": 64, "num_heads": 4, "num_layers": 1, "max_seq_len": length}
    return GPT(GPTConfig(vocab_size=VOCABULARY, **size))


def _averages() -> GPT:
    model = _attention()
    for block in model.blocks:
        PARTS["plain averages"].change(block)
    return model


KINDS: dict[str, Callable[[], nn.Module]] = {
    "averages": _averages,
    "GRU": lambda: Recurrent(VOCABULARY, 98),
    "attention": _attention,
}


def make(kind: str, seed: int) -> nn.Module:
    """Return an untrained model of a kind."""
    torch.manual_seed(seed)
    return KINDS[kind]()


def draw_lines(
    batch: int, length: int, generator: torch.Generator, *, few: bool = False
) -> tuple[Tensor, Tensor]:
    """Draw lines of words, each followed by questions and their answers.

    Args:
        batch: How many lines.
        length: How many words come before the questions.
        generator: Where the random numbers come from.
        few: Whether all words after the first four are names, which nobody asks for.

    Returns:
        Tokens (batch, length + 8), and the answers (batch, 4), which follow the tokens
        at length, length + 2, and so on.
    """
    listed = FEW if few else length
    animals = torch.randint(ANIMALS, (batch, listed), generator=generator)
    names = torch.randint(NAMES, (batch, length - listed), generator=generator)
    indices = torch.randint(listed, (batch, QUESTIONS), generator=generator)
    answers = animals.gather(1, indices)
    questions = torch.stack([indices + ANIMALS + NAMES, answers], dim=-1).flatten(1)
    return torch.cat([animals, names + ANIMALS, questions], dim=1), answers


def _train(
    kind: str, length: int, seed: int, descent: Descent, *, few: bool = False
) -> tuple[nn.Module, float]:
    """Return a trained model, and the processor time of its training."""
    model, generator = make(kind, seed), seeded(seed)

    def loss_at(_: int) -> Tensor:
        tokens, answers = draw_lines(32, length, generator, few=few)
        logits = model(tokens)[:, length::2]
        return F.cross_entropy(logits.flatten(0, 1), answers.flatten())

    start = time.process_time()
    fit(model, loss_at, descent)
    return model, time.process_time() - start


@torch.no_grad()
def _right(model: nn.Module, length: int, *, few: bool = False) -> float:
    tokens, answers = draw_lines(1024, length, seeded(10**6), few=few)
    guesses = model(tokens)[:, length::2].argmax(dim=-1)
    return round((guesses == answers).float().mean().item(), 3)


def _pairs_right(length: int, batches: int) -> float:
    """Count which word follows which, and answer with the most frequent one."""
    generator, counts = seeded(1), Counter()
    for _ in range(batches):
        tokens, _ = draw_lines(32, length, generator)
        pairs = zip(tokens[:, :-1].flatten(), tokens[:, 1:].flatten(), strict=True)
        counts.update((word.item(), next_word.item()) for word, next_word in pairs)
    best = {}
    for (word, next_word), _ in counts.most_common():
        best.setdefault(word, next_word)
    tokens, answers = draw_lines(1024, length, seeded(10**6))
    cues = tokens[:, length::2]
    guesses = torch.tensor([[best.get(one.item(), 0) for one in row] for row in cues])
    return round((guesses == answers).float().mean().item(), 3)


def _gru_on_stories(steps: int, seeds: tuple[int, ...]) -> dict[str, object]:
    text = load_corpus("stories").text
    words = WordTokenizer.from_text(text)
    tokens, held_out = split(torch.tensor(words.encode(text)))
    stories = held_out_stories(10_000 if steps < 10 else 60_000)
    rows: dict[str, object] = {}
    for rate in RATES[:2]:
        losses, number = [], []
        for seed in seeds:
            torch.manual_seed(seed)
            model = Recurrent(words.vocab_size, 136)
            descent = Descent(steps, rate, warm_up=50, clip=1.0)
            fit_to_text(model, tokens, descent, batch=16, length=64, seed=seed)
            losses.append(round(evaluate(model, held_out[:16384], seq_len=64), 4))
            number.append(round(number_right(model, words, stories), 4))
        size = num_parameters(model)
        rows[str(rate)] = {"loss": losses, "number": number, "parameters": size}
        print("stories", rate, rows[str(rate)], flush=True)
    return rows


def measure(run: Run) -> Results:
    """Train each kind with three seeds at each length, and ask."""
    steps, seeds = (2, (1,)) if run.quick else (500, (1, 2, 3))
    descend = partial(Descent, warm_up=min(50, steps), clip=1.0)
    sweep: dict[str, dict[str, float]] = {}
    rates: dict[str, float] = {}
    for kind in KINDS:
        shares = {}
        for rate in RATES:
            shares[rate] = _right(_train(kind, 8, 0, descend(steps, rate))[0], 8)
        rates[kind] = max(shares, key=lambda rate: shares[rate])
        sweep[kind] = {str(rate): share for rate, share in shares.items()}
        print(kind, sweep[kind], flush=True)

    def learned(
        kind: str,
        lengths: Sequence[int] = LENGTHS,
        times: int = 1,
        *,
        few: bool = False,
    ) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """Return by length what all seeds got right, and their seconds of training."""
        descent = descend(times * steps, rates[kind])
        right: dict[str, list[float]] = {}
        seconds: dict[str, list[float]] = {}
        for length in lengths:
            runs = [_train(kind, length, seed, descent, few=few) for seed in seeds]
            right[str(length)] = [_right(model, length, few=few) for model, _ in runs]
            seconds[str(length)] = [round(cpu_time, 2) for _, cpu_time in runs]
        print(kind, times, few, right, flush=True)
        return right, seconds

    of_kinds = {kind: learned(kind) for kind in KINDS}
    return {
        "seeds": [*seeds],
        "steps": steps,
        "parameters": {kind: num_parameters(make(kind, 0)) for kind in KINDS},
        "sweep": sweep,
        "rates": rates,
        "pairs": {
            str(length): _pairs_right(length, steps // 5 + 1) for length in LENGTHS
        },
        "right": {kind: right for kind, (right, _) in of_kinds.items()},
        "first four": {
            kind: learned(kind, few=True)[0] for kind in ("GRU", "attention")
        },
        "GRU, four times the steps": learned("GRU", LENGTHS[:3], 4)[0],
        "GRU, first four, four times the steps": learned("GRU", times=4, few=True)[0],
        "attention, twice the steps": learned("attention", LENGTHS[3:], 2)[0],
        "seconds": {kind: seconds for kind, (_, seconds) in of_kinds.items()},
        "stories": _gru_on_stories(steps, seeds),
    }
