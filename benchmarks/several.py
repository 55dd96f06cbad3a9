"""Measure speculative decoding with three kinds of drafts.

It uses the three shipped models of the grammar corpus. For each, a small model of one
layer, and two further heads on the frozen trunk, are trained with its seed. Each model
continues the same starts of held-out text, without a draft and with each kind of draft,
always in the loop of ``speculate``.

All times are CPU times, so that they do not depend on other programs; with one thread
they equal those of an idle machine.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.learning import Descent, fit
from benchmarks.measuring import in_turns, milliseconds
from benchmarks.run import Results, Run
from benchmarks.steps import step_call
from tested_transformer.checkpoints import load_shipped
from tested_transformer.data import batch_at, load_corpus, split, tokenizer_from_dict
from tested_transformer.decoding import (
    ChainedGPT,
    Drafter,
    HeadDrafter,
    ModelDrafter,
    MultiTokenGPT,
    NgramDrafter,
    RandomSource,
    multi_token_loss,
    speculate,
)
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import Recipe, train
from transformer_book import model_folder

__all__ = ["Setting", "add_heads", "measure", "train_draft", "train_heads"]

TARGETS = ("grammar", "grammar-2", "grammar-3")
PROMPT, NUM_TOKENS, NUM_DRAFTED = 24, 3, (1, 2, 4, 6)


@dataclass(frozen=True)
class Setting:
    """How much to measure."""

    targets: Sequence[str] = TARGETS
    steps: int = 400
    prompts: int = 10
    rounds: int = 2
    new_tokens: int = 1000  # fewer where the context ends
    seeds: Sequence[int] = (1, 2, 3)


QUICK = Setting(
    targets=TARGETS[:1], steps=2, prompts=1, rounds=1, new_tokens=12, seeds=(1,)
)


def measure(run: Run) -> Results:
    """Measure speculative decoding."""
    setting = QUICK if run.quick else Setting()
    return {"drafts": _drafts(setting)}


def train_draft(target: GPT, tokens: Tensor, *, steps: int, seed: int) -> GPT:
    """Train a model of one layer and 32 features with the target's vocabulary."""
    torch.manual_seed(seed)
    config = target.config
    draft = GPT(
        GPTConfig(
            vocab_size=config.vocab_size,
            max_seq_len=config.max_seq_len,
            d_model=32,
            num_heads=2,
            num_layers=1,
        )
    )
    changes = {"warmup": steps // 10, "seed": seed, "precision": "fp32"}
    recipe = Recipe.plain(steps=steps, lr=1e-2, **changes)
    train(draft, tokens, recipe)
    return draft.eval()


def add_heads(
    target: GPT, tokens: Tensor, *, steps: int, seed: int
) -> tuple[MultiTokenGPT, list[float]]:
    """Add further heads to a target, train these, and return the last losses."""
    torch.manual_seed(seed)
    model = MultiTokenGPT(target, num_tokens=NUM_TOKENS)
    descent = Descent(steps, 2e-3)
    return model, train_heads(
        model, tokens, descent, seed=seed, batch_size=12, seq_len=128
    )


def train_heads(
    model: MultiTokenGPT | ChainedGPT,
    tokens: Tensor,
    descent: Descent,
    *,
    seed: int,
    batch_size: int,
    seq_len: int,
) -> list[float]:
    """Train the further heads alone, and return the last losses of all."""
    model.requires_grad_(False)
    model.further.requires_grad_()
    last: list[float] = []

    def loss_at(step: int) -> Tensor:
        inputs, targets = batch_at(
            tokens, step=step, seed=seed, batch_size=batch_size, seq_len=seq_len
        )
        losses = multi_token_loss(model(inputs), targets)
        last[:] = losses.tolist()
        return losses.sum()

    fit(model, loss_at, descent)
    model.eval()
    return [round(loss, 4) for loss in last]


def _drafts(setting: Setting) -> dict:
    text = load_corpus("grammar").text
    size = {
        "target": "3 layers of 64 features",
        "draft": "1 layer of 32 features",
        "further heads": NUM_TOKENS - 1,
        "steps": setting.steps,
        "prompts": setting.prompts,
        "prompt": PROMPT,
    }
    report: dict = {"size": size, "seeds": [*setting.seeds], "targets": {}}
    for seed, name in zip(setting.seeds, setting.targets, strict=True):
        shipped = load_shipped(model_folder(name))
        tokenizer = tokenizer_from_dict(shipped.card["tokenizer"])
        training, held_out = split(torch.tensor(tokenizer.encode(text)), 0.9)
        target = shipped.model.eval()
        small = train_draft(target, training, steps=setting.steps, seed=seed)
        heads, losses = add_heads(target, training, steps=setting.steps, seed=seed)
        starts = [1000 * number for number in range(setting.prompts)]
        prompts = [held_out[at : at + PROMPT].tolist() for at in starts]
        vocab_size = tokenizer.vocab_size
        contenders: dict[str, tuple[GPT, Drafter, Sequence[int]]] = {
            "none": (target, NgramDrafter(vocab_size), (0,)),
            "small model": (target, ModelDrafter(small), NUM_DRAFTED),
            "n-grams": (target, NgramDrafter(vocab_size, longest=4), NUM_DRAFTED),
            "heads": (target, HeadDrafter(heads), range(1, NUM_TOKENS)),
        }
        calls = {
            f"{kind}, {count}": _writer(
                model, prompts, drafter, count, setting.new_tokens
            )
            for kind, (model, drafter, counts) in contenders.items()
            for count in counts
        }
        times = in_turns(
            calls, rounds=setting.rounds, warm_up=0, clock=time.process_time
        )
        report["targets"][name] = {
            "losses of the heads": losses,
            "passes": _passes(target, small, setting),
            "written": {
                key: call() | {"seconds": round(times[key].median, 4)}
                for key, call in calls.items()
            },
        }
        print(name, report["targets"][name], flush=True)
    return report


def _writer(
    model: GPT,
    prompts: Sequence[list[int]],
    drafter: Drafter,
    count: int,
    new_tokens: int,
) -> Callable[[], dict]:
    """Return a function that continues all prompts, and counts tokens and passes."""

    def write() -> dict:
        most = min(new_tokens, model.config.max_seq_len - PROMPT)
        written = [
            speculate(
                model,
                prompt,
                drafter,
                max_new_tokens=most,
                num_drafted=count,
                rng=RandomSource(seed),
            )
            for seed, prompt in enumerate(prompts)
        ]
        tokens = sum(len(text.tokens) for text in written)
        accepted = sum(sum(text.accepted) for text in written)
        looked_at = sum(
            min(drafted, kept + 1)
            for text in written
            for drafted, kept in zip(text.drafted, text.accepted, strict=True)
        )
        return {
            "tokens": tokens,
            "passes": tokens - accepted,
            "drafted": sum(sum(text.drafted) for text in written),
            "accepted": accepted,
            "acceptance": round(accepted / max(looked_at, 1), 4),
        }

    return write


def _passes(target: GPT, small: GPT, setting: Setting) -> dict[str, float]:
    """Time passes over some new tokens on top of 64, in milliseconds."""
    size = {"batch": 1, "length": 64}
    calls: dict[str, Callable[[], object]] = {
        f"target, {count}": step_call(target, count=count, **size)
        for count in (1, 2, 3, 5, 7, 17)
    }
    calls["small, 1"] = step_call(small, **size)
    rounds = 20 * setting.rounds
    times = in_turns(calls, rounds=rounds, calls=5, warm_up=2, clock=time.process_time)
    return milliseconds(times, digits=4)
