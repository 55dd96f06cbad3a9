"""Serve requests by different policies, on a clock that is computed, and measured.

The clock is that of a model of eight billion parameters in 16 bits on an H100: a step
fetches all weights and the keys and values that its tokens attend to, and multiplies
every token with every weight. The speeds are those of the record ``h100``. Nothing
overlaps, which is the slowest case. ``overlapping`` repeats runs with the fastest, in
which a step takes only as long as the slower of fetching weights and multiplying.

Who is served when depends on lengths alone. So here the server's passes are left out,
and a request writes tokens that were drawn before; no policy knows where they end.

The measured part serves a model of six layers, in processor time. The last part lets
the book's GPT answer a thousand requests, and compares each answer with that of
``generate``.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from benchmarks.run import Results, Run
from tested_transformer.decoding import (
    Request,
    Served,
    Server,
    Step,
    StepTime,
    generate,
    serve,
)
from tested_transformer.gpt import GPT, GPTConfig
from transformer_book import load_record
from transformer_book.our_gpt import held_out_stories, our_gpt

__all__ = ["POLICIES", "Rehearsal", "Traffic", "clock", "measure", "requests_of"]

PARAMETERS, BYTES = 8e9, 2  # of the model that the clock stands for, in 16 bits
LAYERS, KV_HEADS, HEAD_DIM = 32, 8, 128  # those of Llama 3 with 8 billion
NETWORK = 50e9  # bytes per second between two machines: 400 Gbit/s
VOCABULARY, LONGEST, SLOTS, PAGE = 40, 768, 8, 16
SLOT = {"num_pages": SLOTS, "page_size": LONGEST}
PAGES = {"num_pages": SLOTS * LONGEST // PAGE, "page_size": PAGE}  # equal memory
POLICIES: dict[str, dict[str, Any]] = {
    "static": SLOT | {"static": True},
    "slots": SLOT,
    "pages, reserved": PAGES | {"reserve": True},
    "pages": PAGES,
}
# What a rehearsal needs of a model: the sizes of its caches, here as small as can be.
_MODEL = GPT(
    GPTConfig(
        vocab_size=VOCABULARY, max_seq_len=8192, d_model=2, num_heads=1, num_layers=1
    )
)


@dataclass(frozen=True)
class Traffic:
    """Which requests arrive, and how fast.

    Args:
        load: How many arrive in a second, on average.
        prompt: The shortest and the longest prompt; lengths between are as likely on a
            scale of logarithms.
        system: How many tokens stand before each prompt.
        shared: Whether these are the same for all.
        stops: Whether answers may end before the 256 tokens that they may have.
        most: How many tokens an answer may have.
    """

    load: float = 20.0
    prompt: tuple[int, int] = (16, 512)
    system: int = 0
    shared: bool = True
    stops: bool = True
    most: int = 256


def requests_of(
    traffic: Traffic, *, count: int, seed: int
) -> tuple[list[Request], list[float]]:
    """Draw requests and their arrivals, a Poisson process."""
    rng = random.Random(seed)

    def draw(length: int) -> list[int]:
        return [rng.randrange(1, VOCABULARY) for _ in range(length)]

    system, shortest, longest = draw(traffic.system), *traffic.prompt
    requests, arrivals, now = list[Request](), list[float](), 0.0
    for number in range(count):
        length = round(shortest * (longest / shortest) ** rng.random())
        before = system if traffic.shared else draw(traffic.system)
        requests.append(
            Request(
                prompt=[*before, *draw(length)],
                max_new_tokens=traffic.most,
                stop=0 if traffic.stops else None,
                seed=1000 * seed + number,
            )
        )
        now += rng.expovariate(traffic.load)
        arrivals.append(now)
    return requests, arrivals


@cache
def clock() -> StepTime:
    """Return the times of a step of the large model, from the speeds of an H100."""
    device: Any = load_record("h100")["results"]["device"]
    fetched = 1e9 * device["gigabytes_per_second_of_a_copy"]
    computed = 1e12 * device["teraflops_of_a_product"]
    return StepTime(
        per_step=PARAMETERS * BYTES / fetched,
        per_token=2 * PARAMETERS / computed,
        per_key=_bytes_of_a_token() / fetched,
    )


def overlapping(step: Step) -> float:
    """Return the seconds of a step that multiplies while it fetches weights."""
    times = clock()
    fetched = times.per_token * sum(step.reads.values())
    return times(step) - min(times.per_step, fetched)


def measure(run: Run) -> Results:
    """Serve by each policy."""
    seeds, count = ([1], 5) if run.quick else ([1, 2, 3], 400)
    serve_all, times = _Runs(seeds, count).serve, clock()
    loads = (20,) if run.quick else (5, 10, 20, 40, 80, 160)
    long, short = Traffic(prompt=(16, 4096)), Traffic(prompt=(16, 32))
    large = PAGES | {"num_pages": 2048}
    larger = PAGES | {"num_pages": 5 * PAGES["num_pages"]}
    system, full = Traffic(load=80.0, system=256, prompt=(16, 256)), Traffic(load=160.0)
    texts = {
        "long": long,
        "long, 40": replace(long, load=40.0),
        "short": short,
        "short, 320": replace(short, load=320.0),
    }

    def by_load(seconds: Callable[[Step], float], loads: Sequence[float]) -> Results:
        return {
            name: {
                str(load): serve_all(Traffic(load=load), policy, seconds=seconds)
                for load in loads
            }
            for name, policy in POLICIES.items()
        }

    def by_chunk(seconds: Callable[[Step], float], *names: str) -> Results:
        budgets = (None, 1024, 512, 256, 128, 64)
        return {
            text: {
                str(budget): serve_all(
                    traffic, large | {"token_budget": budget}, seconds=seconds
                )
                for budget in budgets
            }
            for text, traffic in ((name, texts[name]) for name in names)
        }

    def by_place(seconds: Callable[[Step], float]) -> Results:
        ways = {
            "together": {},
            "together, 512": {"token_budget": 512},
            "together, 256": {"token_budget": 256},
            "apart": {"apart": True},
        }
        return {
            text: {
                name: {
                    str(load): serve_all(
                        replace(traffic, load=load),
                        large | {k: v for k, v in way.items() if k != "apart"},
                        servers=2,
                        apart="apart" in way,
                        seconds=seconds,
                    )
                    for load in loads[-3:-1] or loads
                }
                for name, way in ways.items()
            }
            for text, traffic in (("long", long), ("short", short))
        }

    return {
        "seconds": {
            "per step": times.per_step,
            "per token": times.per_token,
            "per key": times.per_key,
            "per token sent": _bytes_of_a_token() / NETWORK,
        },
        "size": {
            "requests": count,
            "slots": SLOTS,
            "longest": LONGEST,
            "page": PAGE,
            "stop": VOCABULARY,
            "most": full.most,
        },
        "seeds": seeds,
        "load": by_load(times, loads),
        "chunks": by_chunk(times, *texts),
        "prefixes": {
            text: {
                str(kept): serve_all(traffic, memory | {"prefix_caching": kept})
                for kept in (False, True)
            }
            for text, (traffic, memory) in {
                "shared": (system, PAGES),
                "shared, 5 times the memory": (system, larger),
                "shared, 20": (replace(system, load=20.0), PAGES),
                "not shared": (replace(system, shared=False), PAGES),
            }.items()
        },
        "preemption": {
            text: {
                name: serve_all(traffic, POLICIES[name])
                for name in ("pages, reserved", "pages")
            }
            for text, traffic in {
                "stop early": full,
                "never stop": replace(full, stops=False),
            }.items()
        },
        "apart": by_place(times),
        "overlapping": {
            "load": by_load(overlapping, loads[-2:]),
            "chunks": by_chunk(overlapping, "long"),
            "apart": by_place(overlapping),
        },
        "measured": _measured(seeds, 2 if run.quick else 40),
        "thousand": _thousand(10 if run.quick else 1000),
    }


class Rehearsal(Server):
    """A server that leaves its passes out: requests write answers known before."""

    answers: Mapping[Request, Sequence[int]]

    def _read(self, requests: list[Request], count: int) -> dict[Request, int]:
        written = dict[Request, int]()
        for request in requests:
            read = self.running[request]
            for layer in read._paged:
                layer.length += count
            if read.length == len(request.tokens):
                written[request] = self.answers[request][len(request.answer)]
        return written


@dataclass(frozen=True)
class _Runs:
    """Runs with some seeds."""

    seeds: Sequence[int]
    count: int

    def serve(
        self,
        traffic: Traffic,
        policy: dict[str, Any],
        *,
        servers: int = 1,
        apart: bool = False,
        seconds: Callable[[Step], float] | None = None,
    ) -> list[dict[str, float]]:
        """Return the figures for each seed."""
        results = list[dict[str, float]]()
        for seed in self.seeds:
            requests, arrivals = requests_of(traffic, count=self.count, seed=seed)
            rng = random.Random(seed)
            stop = 0 if traffic.stops else 1
            answers = {
                request: [rng.randrange(stop, VOCABULARY) for _ in range(traffic.most)]
                for request in requests
            }
            several = [Rehearsal(_MODEL, **policy) for _ in range(servers)]
            for rehearsal in several:
                rehearsal.answers = answers
            served = serve(
                several[:1] if apart else several,
                requests,
                arrivals=arrivals,
                seconds=clock() if seconds is None else seconds,
                decoder=several[1] if apart else None,
                transfer=_bytes_of_a_token() / NETWORK,
            )
            results.append(figures(served))
        print(traffic, policy, servers, apart, results, flush=True)
        return results


def figures(served: Served) -> dict[str, float]:
    """Return what is told of a run, times in milliseconds."""
    steps = [step for *_, step in served.steps]
    tokens = sum(len(times) for times in served.times.values())
    prompts = sum(len(request.prompt) for request in served.arrivals)
    first, between = served.to_first_token, served.between_tokens
    return {
        "first": round(1000 * statistics.median(first), 2),
        "first, p99": round(1000 * _p99(first), 1),
        "next": round(1000 * statistics.median(between), 2),
        "next, p99": round(1000 * _p99(between), 2),
        "next, longest": round(1000 * max(between), 1),
        "tokens per second": round(tokens / served.seconds, 1),
        "most at once": max(len(step.reads) for step in steps),
        "preempted": sum(len(step.preempted) for step in steps),
        "reused": round(sum(step.reused for step in steps) / prompts, 4),
        "read": round(sum(sum(step.reads.values()) for step in steps) / tokens, 3),
    }


def _p99(values: Sequence[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).quantile(0.99))


def _bytes_of_a_token() -> int:
    return 2 * LAYERS * KV_HEADS * HEAD_DIM * BYTES  # a key and a value each


def _measured(seeds: Sequence[int], count: int) -> dict[str, Any]:
    """Serve a model of six layers in processor time."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 128, "num_layers": 6, "max_seq_len": 256}
    model = GPT(GPTConfig(vocab_size=65, positions="rotary", **sizes)).eval()
    slot = {"page_size": 256}
    policies: dict[str, dict[str, Any]] = {
        "one by one": {"num_pages": 1, **slot},
        "static": {"num_pages": 8, "static": True, **slot},
        "slots": {"num_pages": 8, **slot},
        "pages": {"num_pages": 128, "page_size": 16},
    }
    report: dict[str, Any] = {name: [] for name in policies}
    for seed in seeds:
        for name, policy in policies.items():
            requests = _of_all_lengths(count, seed)
            last = [time.process_time()]

            def lap(step: Step, last: list[float] = last) -> float:
                last.append(time.process_time())
                return last[-1] - last[-2]

            served = serve(
                Server(model, **policy),
                requests,
                arrivals=[0.0] * count,
                seconds=lap,
            )
            tokens = sum(len(request.answer) for request in requests)
            report[name].append(round(tokens / served.seconds, 1))
        print(seed, report, flush=True)
    return report


def _of_all_lengths(count: int, seed: int) -> list[Request]:
    """Draw requests of different lengths: most are short, a few are long."""
    rng = random.Random(seed)
    return [
        Request(
            prompt=[rng.randrange(65) for _ in range(rng.randint(8, 32))],
            max_new_tokens=int(4 + 196 * rng.random() ** 2),
            seed=number,
        )
        for number in range(count)
    ]


def _thousand(count: int) -> dict[str, Any]:
    """Let the book's GPT answer requests, of which a tenth are cancelled at random."""
    model, words = our_gpt()
    model, rng = model.double(), random.Random(0)
    stories = words.encode(held_out_stories(20_000).text)
    requests = [
        Request(
            prompt=stories[at : at + rng.randint(1, 30)],
            max_new_tokens=rng.randint(1, 30),
            seed=number,
        )
        for number, at in enumerate(rng.choices(range(0, 2000, 50), k=count))
    ]
    arrivals = [rng.uniform(0, 2 * count) for _ in requests]
    pairs = list(zip(requests, arrivals, strict=True))
    gone = {r: at + rng.uniform(0, 40) for r, at in rng.sample(pairs, count // 10)}
    server = Server(
        model, num_pages=40, page_size=4, token_budget=16, prefix_caching=True
    )
    served = serve(server, requests, arrivals=arrivals, cancellations=gone)
    differing = 0
    for request in requests:
        how = {"max_new_tokens": request.max_new_tokens, "seed": request.seed}
        (alone,) = generate(model, [request.prompt], **how)
        expected = alone[: len(request.answer)] if request.cancelled else alone
        differing += request.answer != expected
    steps = [step for *_, step in served.steps]
    return {
        "requests": count,
        "cancelled": sum(request.cancelled for request in requests),
        "tokens": sum(len(request.answer) for request in requests),
        "differing": differing,
        "preempted": sum(len(step.preempted) for step in steps),
        "reused": sum(step.reused for step in steps),
        "evicted": server.pool.num_evicted,
        "pages": len(server.pool.users),
        "free or cached at the end": server.pool.num_free,
    }
