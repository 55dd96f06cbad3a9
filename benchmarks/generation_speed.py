"""Measure tokens per second for one sequence, at each contender's best thread count.

Beyond its context a model can only continue from a part of the text. All contenders
with a cache follow the policy of this library: when the context is full, its last half
is read again. Without a cache, most read the last ``context`` tokens again for every
new one; transformers, whose ``generate`` stops at its context, follows the policy
above. So without a cache, the contenders do not do equal work.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from benchmarks.contenders import SMALL, Contender, num_parameters
from benchmarks.measuring import in_turns, ratio
from benchmarks.ours import Ours, scatter

__all__ = ["measure_generation"]

PROMPT = [0]


def measure_generation(
    contenders: Sequence[Contender],
    *,
    contexts: Sequence[int] = (64, 256),
    count: int = 500,
    threads: Sequence[int] = (1, 2),
    quick: bool = False,
) -> dict:
    """Time ``count`` tokens of each contender, in each of its ways to generate."""
    report: dict = {"tokens": count, "contexts": {}}
    allowed = torch.get_num_threads()
    for context in contexts:
        entries: dict[str, dict] = {}
        calls: dict[tuple[str, str], Callable[[], object]] = {}
        for contender in contenders:
            for way, call in _ways(contender, context, count, entries).items():
                for number in threads:
                    key = f"{way}, {number} thread" + "s" * (number > 1)
                    calls[contender.name, key] = _with_threads(number, call)
        # Most take seconds: a short warm-up for all, and few rounds.
        times = in_turns(calls, rounds=1 if quick else 3, calls=1, warm_up=0)
        torch.set_num_threads(allowed)
        for (name, way), taken in times.items():
            speed = round(count / taken.median, 1)
            entries[name]["tokens_per_second"][way] = speed
        for entry in entries.values():
            speeds = entry["tokens_per_second"]
            entry["best_way"] = max(speeds, key=speeds.__getitem__)
            entry["best"] = speeds[entry["best_way"]]
        report["contexts"][str(context)] = {
            "contenders": entries,
            "ratios": _ratios(entries),
        }
    return report


def _ways(
    contender: Contender, context: int, count: int, entries: dict[str, dict]
) -> dict[str, Callable[[], object]]:
    """Make a contender's model, describe it, and list its ways to generate."""
    torch.manual_seed(0)
    size = SMALL.with_context(context)
    model = scatter(contender.model(size)).eval()
    entry: dict = {
        "version": contender.version,
        "parameters": num_parameters(model),
        "tokens_per_second": {},
    }
    entries[contender.name] = entry

    def way(model: nn.Module, cached: bool) -> Callable[[], object]:
        # Generate some tokens before timing, because the first ones include setup.
        contender.generate(model, PROMPT, 2, cached=cached)
        return lambda: contender.generate(model, PROMPT, count, cached=cached)

    ways = {"no cache": way(model, False)}
    if contender.has_cache:
        ways["cache"] = way(model, True)
    if isinstance(contender, Ours):
        entry["same_tokens_as_without_cache"] = contender.same_tokens(
            model, PROMPT, count
        )
    if contender.name.startswith("transformers"):
        # This favors it: with room for all tokens, nothing has to be read again.
        roomy = scatter(contender.model(size, positions=len(PROMPT) + count)).eval()
        ways["cache, room for all tokens"] = way(roomy, True)
    return ways


def _with_threads(number: int, call: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        torch.set_num_threads(number)
        return call()

    return run


def _ratios(entries: dict[str, dict]) -> dict[str, dict[str, float]]:
    ours = [name for name in entries if name.startswith("ours")]
    return {
        own: {
            # These are speeds, not times, so the quotient is inverted.
            name: round(ratio(entries[own]["best"], entry["best"]), 2)
            for name, entry in entries.items()
            if name not in ours
        }
        for own in ours
    }
