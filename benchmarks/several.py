"""Measure speculative decoding with three kinds of drafts, and continuous batching.

Speculative decoding uses the three shipped models of the grammar corpus. For each, a
small model of one layer, and two further heads on the frozen trunk, are trained with
its seed. Each model continues the same starts of held-out text, without a draft and
with each kind of draft, always in the loop of ``speculate``.

For batching, requests of different lengths arrive at random, at twice the rate at which
they could be served one by one. The model has random weights, which do not affect the
times.

All times are CPU times, so that they do not depend on other programs; with one thread
they equal those of an idle machine.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.learning import Descent, fit, seeded
from benchmarks.measuring import in_turns
from benchmarks.run import Results, Run
from benchmarks.steps import step_call
from tested_transformer.checkpoints import load_shipped
from tested_transformer.data import batch_at, load_corpus, split, tokenizer_from_dict
from tested_transformer.decoding import (
    Batcher,
    Drafter,
    HeadDrafter,
    ModelDrafter,
    MultiTokenGPT,
    NgramDrafter,
    RandomSource,
    Request,
    multi_token_loss,
    speculate,
)
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import Recipe, train
from transformer_book import model_folder

__all__ = ["POLICIES", "Setting", "add_heads", "measure", "train_draft"]

TARGETS = ("grammar", "grammar-2", "grammar-3")
PROMPT, NUM_TOKENS, NUM_DRAFTED = 24, 3, (1, 2, 4, 6)
POLICIES = {
    "one by one": {"num_slots": 1},
    "static": {"num_slots": 8, "static": True},
    "continuous": {"num_slots": 8},
}


@dataclass(frozen=True)
class Setting:
    """How much to measure."""

    targets: Sequence[str] = TARGETS
    steps: int = 400
    prompts: int = 10
    rounds: int = 2
    new_tokens: int = 1000  # fewer where the context ends
    requests: int = 40
    seeds: Sequence[int] = (1, 2, 3)


QUICK = Setting(
    targets=TARGETS[:1],
    steps=2,
    prompts=1,
    rounds=1,
    new_tokens=12,
    requests=2,
    seeds=(1,),
)


def measure(run: Run) -> Results:
    """Measure speculative decoding and batching."""
    setting = QUICK if run.quick else Setting()
    return {"drafts": _drafts(setting), "batches": _batches(setting)}


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
    """Add further heads to a target, train only these, and return the last losses."""
    torch.manual_seed(seed)
    model = MultiTokenGPT(target, num_tokens=NUM_TOKENS)
    model.requires_grad_(False)
    model.further.requires_grad_()
    last: list[float] = []

    def loss_at(step: int) -> Tensor:
        size = {"batch_size": 12, "seq_len": 128}
        inputs, targets = batch_at(tokens, step=step, seed=seed, **size)
        losses = multi_token_loss(model(inputs), targets)
        last[:] = losses.tolist()
        return losses.sum()

    fit(model, loss_at, Descent(steps, 2e-3))
    return model.eval(), [round(loss, 4) for loss in last]


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
    return {key: round(1000 * taken.median, 4) for key, taken in times.items()}


def _batches(setting: Setting) -> dict:
    torch.manual_seed(0)
    model = GPT(
        GPTConfig(vocab_size=65, max_seq_len=256, d_model=128, num_layers=6)
    ).eval()
    report: dict = {
        "size": {
            "layers": 6,
            "d_model": 128,
            "slots": 8,
            "requests": setting.requests,
            "prompt": [8, 32],
            "new tokens": [4, 200],
        },
        "seeds": [*setting.seeds],
        "policies": {name: [] for name in POLICIES},
    }
    alone = _served(model, _requests(setting.requests, 0), None, "one by one")
    gap = alone["seconds"] / setting.requests / 2
    for seed in setting.seeds:
        for name in POLICIES:
            requests = _requests(setting.requests, seed)
            waits = torch.empty(setting.requests).exponential_(generator=seeded(seed))
            arrivals = (gap * waits).cumsum(0).tolist()
            served = _served(model, requests, arrivals, name)
            report["policies"][name].append(served)
            print(name, seed, served, flush=True)
    return report


def _requests(count: int, seed: int) -> list[Request]:
    """Draw requests of different lengths: most are short, a few are long."""
    generator = seeded(seed)
    requests: list[Request] = []
    for number in range(count):
        length = int(torch.randint(8, 33, (), generator=generator))
        wanted = 4 + 196 * float(torch.rand((), generator=generator)) ** 2
        prompt = torch.randint(65, (length,), generator=generator).tolist()
        requests.append(Request(prompt=prompt, max_new_tokens=int(wanted), seed=number))
    return requests


def _served(
    model: GPT, requests: list[Request], arrivals: list[float] | None, policy: str
) -> dict[str, float]:
    """Serve requests as they arrive, and time them."""
    batcher = Batcher(model, **POLICIES[policy])
    arrivals = [0.0] * len(requests) if arrivals is None else arrivals
    coming = deque(zip(arrivals, requests, strict=True))
    finished: dict[Request, float] = {}
    began, passes = time.process_time(), 0
    while len(finished) < len(requests):
        now = time.process_time() - began
        while coming and coming[0][0] <= now:
            batcher.submit(coming.popleft()[1])
        if not batcher.waiting and not any(batcher.slots):
            began -= coming[0][0] - now  # nothing to do: the next one is here
            continue
        present = batcher.step()
        passes += 1
        now = time.process_time() - began
        finished |= {
            request: now for request in present if request is not None and request.done
        }
    times = zip(arrivals, requests, strict=True)
    latencies = [finished[request] - arrival for arrival, request in times]
    seconds = max(finished.values())
    tokens = sum(len(request.answer) for request in requests)
    return {
        "tokens": tokens,
        "steps": passes,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1),
        "mean_latency": round(statistics.mean(latencies), 3),
        "longest_latency": round(max(latencies), 3),
    }
