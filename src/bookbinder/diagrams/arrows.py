"""Hold the arrows of a diagram against the way that the numbers of a pass took."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from torch.utils._pytree import tree_leaves

from bookbinder.diagrams.flowcharts import Arrow, Flowchart
from bookbinder.diagrams.tracing import Flow

__all__ = ["arrow_problems"]

# What a word on an arrow promises: one of these operations, at least, on the way.
_PRODUCT = {"mm", "addmm", "bmm", "baddbmm", "mul"}
_LAYOUT = {"view", "_unsafe_view", "transpose", "permute", "unsqueeze", "clone"}
_SOFTMAX = {"_softmax", "_softmax of columns", "exp"}
_OPERATIONS = [
    ("softmax", _SOFTMAX),
    (
        "softmax of (?:each|the) (?:row|query)s?|softmax over (?:the )?keys",
        {"_softmax"},
    ),
    (
        "softmax of (?:each|the) (?:column|key)s?|softmax over (?:the )?queries",
        {"_softmax of columns"},
    ),
    ("attention", {*_SOFTMAX, "_scaled_dot_product_flash_attention_for_cpu"}),
    ("norm", {"native_layer_norm", "_fused_rms_norm", "rsqrt"}),
    ("feed-forward", {"relu", "gelu", "silu", "sigmoid"}),
    ("project|[qkvo]_proj|out_proj|mix|average|scores|head", _PRODUCT),
    ("embed|look up", {"embedding", "index_select"}),
    ("add", {"add"}),
    ("divide|temperature", {"div"}),
    ("split|cut|merge", _LAYOUT),
    ("concatenate", _LAYOUT | {"cat"}),
    ("append", {"cat", "copy_"}),
    ("reshape", {"view", "_unsafe_view"}),
    ("swap", {"transpose", "permute"}),
    ("repetition penalty", {"where"}),
    ("top-[kp]", {"sort", "topk"}),
    ("draw", {"argmax", "multinomial"}),
    ("clip", {"mul_", "clamp"}),
]


def arrow_problems(
    chart: Flowchart, bound: Mapping[str, Any], flow: Flow
) -> Iterator[tuple[int, str]]:
    """Find arrows that no numbers took, and ways of theirs that no arrow shows.

    Nodes without a tensor are passed through. An arrow that closes a loop stands for
    the next round and not for this pass.
    """
    leaves = {name: tree_leaves(value) for name, value in bound.items()}
    nodes: dict[int, str] = {}
    for name, values in leaves.items():
        for value in values:
            other = nodes.setdefault(id(value), name)
            if other != name:
                line = chart.nodes[name].line
                yield line, f"nodes {other} and {name} are one tensor of the pass"
                return
    drawn = _past_the_unbound(chart, bound)
    after = {name: _reachable(name, drawn) for name in bound}
    sources = {name: flow.sources(values, nodes) for name, values in leaves.items()}
    for (start, end), arrow in drawn.items():
        if start in after[end]:
            continue
        if start not in sources[end]:
            made_of = ", ".join(sorted(sources[end])) or "no other node"
            yield (
                arrow.line,
                f"an arrow leads from {start} to {end}, but in the pass {end} is made "
                f"of {made_of}",
            )
        elif (arrow.start, arrow.end) == (start, end):
            yield from _word_problems(arrow, sources[end][start])
    for end, found in sources.items():
        for start in sorted(found):
            if end not in after[start]:
                line = chart.nodes[end].line
                yield line, f"{end} is made of {start}, but no arrow leads there"


def _past_the_unbound(
    chart: Flowchart, bound: Mapping[str, Any]
) -> dict[tuple[str, str], Arrow]:
    """Give the arrows between nodes that have tensors, past those that have none."""
    drawn: dict[tuple[str, str], Arrow] = {}
    for start in bound:
        waiting = [arrow for arrow in chart.arrows if arrow.start == start]
        passed: set[str] = set()
        while waiting:
            arrow = waiting.pop()
            if arrow.end in bound:
                drawn[start, arrow.end] = arrow
            elif arrow.end not in passed:
                passed.add(arrow.end)
                waiting += [other for other in chart.arrows if other.start == arrow.end]
    return drawn


def _reachable(start: str, drawn: Mapping[tuple[str, str], Arrow]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        here = waiting.pop()
        new = {end for begin, end in drawn if begin == here} - found
        found |= new
        waiting += new
    return found


def _word_problems(arrow: Arrow, operations: list[str]) -> Iterator[tuple[int, str]]:
    """Find words on an arrow for what the pass does not do there, or not in turn."""
    if {*operations} == {""}:
        return  # Numbers of plain Python remember their parents, not how.
    where = f"the arrow from {arrow.start} to {arrow.end} says"
    steps: list[tuple[int, str, list[int]]] = []
    for words, wanted in _OPERATIONS:
        said = re.search(rf"(?<![\w-])(?:{words})(?![\w-])", arrow.label)
        done = [at for at, name in enumerate(operations) if name in wanted]
        if said and not done:
            there = ", ".join(sorted({*operations})) or "nothing"
            yield arrow.line, f"{where} {said[0]!r}, but the pass does {there} there"
        elif said:
            steps.append((said.start(), said[0], done))
    for (_, one, first), (_, other, then) in pairwise(sorted(steps)):
        if min(first) > max(then):
            yield (
                arrow.line,
                f"{where} {one!r} before {other!r}, but the pass does them the other "
                "way around",
            )
