"""A rehearsal of a server takes the steps that the server takes."""

from typing import Any

import pytest
import torch
from benchmarks.serving import (
    POLICIES,
    Rehearsal,
    Traffic,
    clock,
    overlapping,
    requests_of,
)

from tested_transformer.decoding import Request, Server, Step, serve
from tested_transformer.gpt import GPT, GPTConfig

SMALL = {"num_pages": 40, "page_size": 16}


@pytest.mark.parametrize(
    "policy",
    [
        *POLICIES.values(),
        SMALL | {"token_budget": 48, "prefix_caching": True},
    ],
    ids=[*POLICIES, "chunks and prefixes"],
)
def test_a_rehearsal_takes_the_same_steps(policy: dict[str, Any]) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 4, "num_heads": 1, "num_layers": 1}
    model = GPT(GPTConfig(vocab_size=40, max_seq_len=768, **sizes)).eval()
    traffic = Traffic(load=80, system=40, prompt=(16, 64), most=60)
    all_steps = list[list[list[int]]](), list[list[list[int]]]()
    known = list[list[int]]()
    for steps, kind in zip(all_steps, (Server, Rehearsal), strict=True):
        requests, arrivals = requests_of(traffic, count=30, seed=1)
        server = kind(model, **policy)
        if isinstance(server, Rehearsal):
            server.answers = dict(zip(requests, known, strict=True))
        served = serve(server, requests, arrivals=arrivals, seconds=clock())
        known = [request.answer for request in requests]
        for *_, step in served.steps:
            reads = [[requests.index(r), n] for r, n in step.reads.items()]
            steps.append([*reads, [len(step.preempted), step.reused]])
        assert sum(map(len, known)) > 30 * 10
    assert all_steps[0] == all_steps[1]
    if policy.get("prefix_caching"):
        assert any(step[-1][0] for step in all_steps[0])
        assert any(step[-1][1] for step in all_steps[0])


def test_a_step_that_overlaps_takes_the_longer_of_two_times() -> None:
    times, request = clock(), Request(prompt=[1], max_new_tokens=2)
    for tokens in (1, 1000):
        step = Step({request: tokens}, 7, [], [], 0)
        longer = max(times.per_step, tokens * times.per_token)
        assert overlapping(step) == pytest.approx(longer + 7 * times.per_key)


def test_requests_arrive_as_often_as_the_load_says() -> None:
    _, arrivals = requests_of(Traffic(load=20), count=2000, seed=1)
    assert 2000 / arrivals[-1] == pytest.approx(20, rel=0.05)
    assert arrivals == sorted(arrivals)
