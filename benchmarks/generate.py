"""Measure tokens per second for one sequence, with each number of threads.

Beyond its context a model can only continue from a part of the text. All contenders
with a cache follow the policy of this library: when the context is full, its last half
is read again. Without a cache, most read the last ``context`` tokens again for every
new one; transformers, whose ``generate`` stops at its context, follows the policy
above. So without a cache, the contenders do not do equal work.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from benchmarks.contenders import SMALL, Contender, num_parameters
from benchmarks.measuring import in_turns
from benchmarks.ours import Ours, contestants, scatter
from benchmarks.peers import RaschkaFast, TransformersGPT2, load
from benchmarks.run import Results, Run

__all__ = ["measure"]

PROMPT, CONTEXTS = [0], (64, 256)


def measure(run: Run) -> Results:
    """Time the tokens of each contender, in each of its ways to generate."""
    count = 40 if run.quick else 500
    contenders = [*load(run), *contestants()]
    contexts: dict[str, dict] = {}
    for context in CONTEXTS:
        entries: dict[str, dict] = {}
        calls: dict[tuple[str, str], Callable[[], object]] = {}
        for contender in contenders:
            if isinstance(contender, RaschkaFast):
                continue  # it generates as Raschka's other model does
            entry, ways = _ways(contender, context, count)
            entries[contender.name] = entry
            for way, call in ways.items():
                for number in range(1, run.threads + 1):
                    key = f"{way}, {number} thread" + "s" * (number > 1)
                    calls[contender.name, key] = _with_threads(number, call)
        # Most take seconds: a short warm-up for all, and few rounds.
        times = in_turns(calls, rounds=1 if run.quick else 3, warm_up=0)
        torch.set_num_threads(run.threads)
        for (name, way), taken in times.items():
            speed = round(count / taken.median, 1)
            entries[name]["tokens_per_second"][way] = speed
        contexts[str(context)] = {"contenders": entries}
    return {"tokens": count, "contexts": contexts}


def _ways(
    contender: Contender, context: int, count: int
) -> tuple[dict, dict[str, Callable[[], object]]]:
    """Make a contender's model, describe it, and list its ways to generate."""
    torch.manual_seed(0)
    size = replace(SMALL, context=context)
    model = scatter(contender.model(size)).eval()
    entry: dict = {
        "version": contender.version,
        "parameters": num_parameters(model),
        "tokens_per_second": {},
    }

    def way(model: nn.Module, cached: bool) -> Callable[[], object]:
        # Generate some tokens before timing, because the first ones include setup.
        contender.generate(model, PROMPT, 2, cached=cached)
        return lambda: contender.generate(model, PROMPT, count, cached=cached)

    ways = {"no cache": way(model, False)}
    if contender.has_cache:
        ways["cache"] = way(model, True)
    if isinstance(contender, Ours):
        same = contender.same_tokens(model, PROMPT, count)
        entry["same_tokens_as_without_cache"] = same
    if isinstance(contender, TransformersGPT2):
        # This favors it: with room for all tokens, nothing has to be read again.
        roomy = scatter(contender.model(size, positions=len(PROMPT) + count)).eval()
        ways["cache, room for all tokens"] = way(roomy, True)
    return entry, ways


def _with_threads(number: int, call: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        torch.set_num_threads(number)
        return call()

    return run
