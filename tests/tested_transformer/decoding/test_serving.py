"""Requests on a server get what they would get alone, and no page is lost."""

from collections import Counter
from random import Random
from typing import Any

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.decoding import (
    Request,
    Sampling,
    Server,
    Step,
    StepTime,
    generate,
    serve,
)
from tested_transformer.gpt import GPT, GPTConfig

V, LONGEST = 11, 24
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5, 3, 5], [8, 9], [7, 9, 3, 2, 3], [8, 4]]
LENGTHS = [9, 2, 5, 1, 13, 4]
KINDS: list[dict[str, Any]] = [
    {},
    {"positions": "rotary", "num_kv_heads": 1, "qk_norm": True},
    {"positions": "alibi", "smear": True},
    {"positions": "sinusoidal", "num_experts": 2, "windows": 5},
]
POLICIES: dict[str, dict[str, Any]] = {
    "one slot": {"num_pages": 1, "page_size": LONGEST},
    "static": {"num_pages": 4, "page_size": LONGEST, "static": True},
    "slots": {"num_pages": 4, "page_size": LONGEST},
    "pages, reserved": {"num_pages": 9, "page_size": 3, "reserve": True},
    "pages": {"num_pages": 9, "page_size": 2},
    "chunks": {"num_pages": 9, "page_size": 2, "token_budget": 3},
    "prefixes": {"num_pages": 9, "page_size": 2, "prefix_caching": True},
    "all": {"num_pages": 9, "page_size": 2, "token_budget": 4, "prefix_caching": True},
}


def make(**changes: Any) -> GPT:
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_heads": 2, "num_layers": 3, "max_seq_len": LONGEST}
    config = GPTConfig(vocab_size=V, **{**sizes, **changes})
    return with_large_weights(GPT(config).double()).eval()


def request(prompt: list[int], max_new_tokens: int = 2, **more: Any) -> Request:
    return Request(prompt=prompt, max_new_tokens=max_new_tokens, **more)


def make_requests(**changes: Any) -> list[Request]:
    pairs = zip(PROMPTS, LENGTHS, strict=True)
    return [
        Request(prompt=prompt, max_new_tokens=length, seed=seed, **changes)
        for seed, (prompt, length) in enumerate(pairs)
    ]


def alone(model: GPT, request: Request, sampling: Sampling | None = None) -> list[int]:
    """Return the whole answer of a request that nobody else is served beside."""
    (answer,) = generate(
        model,
        [request.prompt],
        max_new_tokens=request.max_new_tokens,
        sampling=Sampling() if sampling is None else sampling,
        seed=request.seed,
    )
    if request.stop in answer:
        return answer[: answer.index(request.stop) + 1]
    return answer


def check_pages(server: Server) -> None:
    """Assert that each page is used by as many as hold it, and cached or free else."""
    held = Counter(page for cache in server.running.values() for page in cache.table)
    held.update(p for cache in server._elsewhere.values() for p in cache.table)
    assert server.pool.users == [held[page] for page in range(len(server.pool.users))]
    blank, cached = {*server.pool._blank}, {*server.pool._cached}
    assert len(blank) + len(cached) + len(held) == len(server.pool.users)
    assert blank | cached | {*held} == {*range(len(server.pool.users))}


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        *zip([*KINDS, *KINDS], POLICIES, strict=True),
        *((kind, "all") for kind in KINDS[:-1]),
    ],
    ids=str,
)
def test_the_tokens_are_those_of_each_alone(kind, policy):
    model, sampling = make(**kind), Sampling(temperature=1.2, top_p=0.95)
    server = Server(model, probabilities=sampling.probabilities, **POLICIES[policy])
    # The last one begins like the fifth, and comes after it.
    requests = [
        *make_requests(),
        Request(prompt=[*PROMPTS[4], 6], max_new_tokens=3, seed=7),
    ]
    serve(server, requests, arrivals=[0, 0, 0, 1, 1, 12, 30])
    for request in requests:
        assert request.answer == alone(model, request, sampling)
    check_pages(server)


@pytest.mark.parametrize("kind", KINDS[1:3], ids=str)
def test_another_server_goes_on_with_the_same_tokens(kind):
    model = make(**kind)
    first = Server(model, num_pages=9, page_size=2, prefix_caching=True)
    second = Server(model, num_pages=8, page_size=2)
    with pytest.raises(ValueError, match="do not fit into 8 pages of 2"):
        serve(first, make_requests(), decoder=second)
    second, requests = Server(model, num_pages=9, page_size=2), make_requests()
    served = serve(first, requests, decoder=second, transfer=0.1)
    assert {who for *_, who, step in served.steps if step.wrote} == {0, 1}
    # Pages that come with a request are not those of another.
    assert not any(step.reused for *_, who, step in served.steps if who == 1)
    # If the decoder is full, pages stay where they were read. Some requests are
    # cancelled there, and some on the way.
    small = [Server(model, num_pages=4, page_size=2) for _ in "ab"]
    many = [request([n, 1, 4], 6, seed=n) for n in range(9)]
    ends = {r: 2.6 + 2.1 * n for n, r in enumerate(many[3:])}
    how = {"decoder": small[1], "transfer": 0.2, "cancellations": ends}
    times = serve(small[0], many, **how).times
    assert sum(r.cancelled for r in many) > 3
    assert all(time < ends[r] + 1 for r in many[3:] for time in times[r])
    for r in [*requests, *many]:
        answer = alone(model, r)
        assert r.answer == (answer[: len(r.answer)] if r.cancelled else answer)
    for server in (first, second, *small):
        check_pages(server)
        assert server.pool.num_free == len(server.pool.users)


def test_requests_that_come_and_go_lose_no_page():
    """Of random lengths, and a tenth of them are cancelled."""
    model, rng = make(num_layers=1, max_seq_len=40, positions="rotary"), Random(3)
    count, beginnings = 100, [rng.choices(range(V), k=n) for n in (4, 9, 13)]
    requests = [
        request(
            rng.choice(beginnings) + rng.choices(range(V), k=rng.randint(1, 9)),
            rng.randint(1, 8),
            stop=3,
            seed=number,
        )
        for number in range(count)
    ]
    arrivals = [rng.uniform(0, count / 2) for _ in requests]
    cancellations = {
        requests[number]: arrivals[number] + rng.uniform(0, 12)
        for number in rng.sample(range(count), 10)
    }
    server = Server(
        model, num_pages=20, page_size=4, token_budget=16, prefix_caching=True
    )
    steps: list[Step] = []

    def seconds(step):
        check_pages(server)
        steps.append(step)
        return 1.0

    serve(
        server,
        requests,
        arrivals=arrivals,
        seconds=seconds,
        cancellations=cancellations,
    )
    # Cancelled ones keep what they had; some had all before.
    assert 0 < sum(r.cancelled for r in requests) <= 10
    for r in requests:
        expected = alone(model, r)
        assert r.answer == (expected[: len(r.answer)] if r.cancelled else expected)
    # What the test is about has happened.
    assert sum(len(step.preempted) for step in steps) > 1
    assert sum(step.reused for step in steps) > count
    assert server.pool.num_evicted > 1
    assert server.pool.num_free == 20
    assert not server.running
    assert not server._generators


def test_under_autocast_it_reads_the_same_rounded():
    """Then keys come in another type than that of the cache, which the weights have."""
    model, result = make().float(), dict[bool, list[torch.Tensor]]()
    for precise in (True, False):
        logits = result[precise] = []

        def always_three(rows, logits=logits):
            logits.append(rows.float())
            return torch.eye(V)[[3] * len(rows)]

        server = Server(
            model, num_pages=2, page_size=LONGEST, probabilities=always_three
        )
        with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
            serve(server, make_requests())
    exact, rounded = torch.cat(result[True]), torch.cat(result[False])
    assert 0 < (rounded - exact).norm() < 0.05 * exact.norm()


def slots(**settings: Any) -> Server:
    return Server(make(), page_size=LONGEST, **settings)


def test_a_slot_is_free_for_the_next_and_a_static_batch_waits_for_its_longest():
    turns = {
        False: {(0, 1): 2, (0, 2): 5, (0, 3): 1, (0, 4): 1, (4, 5): 4, (4,): 8},
        True: {(0, 1): 2, (0,): 7, (2, 3): 1, (2,): 4, (4, 5): 4, (4,): 9},
    }
    for static, expected in turns.items():
        requests = make_requests()
        steps = serve(slots(num_pages=2, static=static), requests).steps
        wrote = [(*sorted(map(requests.index, step.wrote)),) for *_, step in steps]
        assert wrote == [turn for turn, count in expected.items() for _ in range(count)]


def test_nobody_is_served_before_arriving():
    arrivals, requests = [0, 3, 3, 20, 21, 40], make_requests()
    times = serve(slots(num_pages=3), requests, arrivals=arrivals).times
    for request, arrival, length in zip(requests, arrivals, LENGTHS, strict=True):
        assert times[request] == [*range(arrival + 1, arrival + 1 + length)]


def test_tokens_go_on_when_their_keys_and_values_have_arrived_elsewhere():
    times = []
    for transfer in (0.0, 2.5):
        servers = [Server(make(), num_pages=9, page_size=2) for _ in "ab"]
        asked = request([1, 2, 3], 4)
        served = serve(servers[0], [asked], decoder=servers[1], transfer=transfer)
        times.append(served.times[asked])
    # The prompt and the first token have gone over.
    assert times == [[1, 2, 3, 4], [1, *(1 + 4 * 2.5 + n for n in (1, 2, 3))]]


def test_a_long_prompt_is_read_beside_the_answers_of_others():
    for budget, first_reads in (
        (4, [[2, 2], [1, 3], [1, 2], [1, 1], [1]]),
        (None, [[2, 7], [1, 1]]),
    ):
        requests = [request([1, 2], 5), request([*range(7)], 2)]
        server = Server(make(), num_pages=9, page_size=2, token_budget=budget)
        steps = [step for *_, step in serve(server, requests).steps]
        reads = [[*step.reads.values()] for step in steps]
        assert reads[: len(first_reads)] == first_reads
        assert [*steps[0].reads] == requests


def test_the_youngest_gives_its_pages_back_and_reads_its_tokens_again():
    # After its third and fourth token it has five to read again, and one more.
    for reserve, reads in ((False, [3, 1, 0, 0, 5, 1]), (True, [0] * 4 + [3, 1, 1, 1])):
        requests = [request([1, 2, 3], 4, seed=n) for n in range(2)]
        server = Server(make(), num_pages=5, page_size=2, reserve=reserve)
        steps = [step for *_, step in serve(server, requests).steps]
        assert [step.reads.get(requests[1], 0) for step in steps] == reads
        preempted = [
            n for n, step in enumerate(steps) if step.preempted == requests[1:]
        ]
        assert preempted == ([] if reserve else [2])


def test_what_others_have_read_is_not_read_again():
    prompts = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [9, 2, 3, 4, 5]]
    for prefix_caching in (True, False):
        server = Server(
            make(),
            num_pages=12,
            page_size=2,
            token_budget=5,
            prefix_caching=prefix_caching,
        )
        served = serve(server, [*map(request, prompts)], arrivals=[0, 10, 20, 30])
        reused = [step.reused for *_, step in served.steps if step.wrote][::2]
        assert reused == ([0, 4, 4, 0] if prefix_caching else [0] * 4)
        # Of two that come at once, both count.
        served = serve(server, [*map(request, prompts[:2])], arrivals=[0, 0])
        assert served.steps[0][-1].reused == (8 if prefix_caching else 0)


def test_a_cancelled_request_stops_wherever_it_is_and_others_stay_as_they_are():
    server = Server(make(), num_pages=1, page_size=LONGEST)
    running, waiting, stranger = (request([1, 2], 5) for _ in range(3))
    server.submit(running)
    server.submit(waiting)
    server.step()
    for r in (running, waiting, stranger):
        server.cancel(r)
    assert [r.cancelled for r in (running, waiting, stranger)] == [True, True, False]
    assert [len(r.answer) for r in (running, waiting)] == [1, 0]
    check_pages(server)
    assert server.pool.num_free == 1
    assert not server.step().reads


def test_the_clock_adds_up_steps_tokens_and_keys():
    requests = [Request(prompt=[1, 2, 3], max_new_tokens=2) for _ in "ab"]
    seconds = StepTime(per_step=100, per_token=10, per_key=1)
    served = serve(slots(num_pages=1), requests, arrivals=[5, 6], seconds=seconds)
    # The prompt: 100 + 3 * 10 + 3; then a token that sees four: 100 + 10 + 4.
    ends = [5 + 133, 5 + 133 + 114, 5 + 247 + 133, 5 + 247 + 247]
    assert [end for _, end, _, _ in served.steps] == ends
    assert served.to_first_token == [133, 247 + 133 - 1]
    assert served.between_tokens == [114, 114]
    assert served.seconds == 494


def test_two_servers_share_the_requests():
    requests = make_requests()
    served = serve([slots(num_pages=1), slots(num_pages=1)], requests)
    who = [{w for *_, w, step in served.steps if r in step.reads} for r in requests]
    assert who == [{0}, {1}] * 3


def test_it_takes_no_more_memory_however_many_come():
    server = slots(num_pages=2)
    where, nbytes = server.pool.keys.data_ptr(), server.pool.nbytes
    serve(server, make_requests())
    assert server.pool.keys.data_ptr() == where
    assert server.pool.nbytes == nbytes == server.model.new_cache(2).nbytes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: slots(num_pages=0), "num_pages=0 must be positive"),
        (lambda: slots(num_pages=1, token_budget=0), "token_budget=0 must be positive"),
        (lambda: request([1], 0), "max_new_tokens=0 must be positive"),
        (
            lambda: serve(slots(num_pages=1), make_requests(), arrivals=[1, 2]),
            "arrivals must be 6 times; they are 2",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_a_request_that_does_not_fit_is_refused_before_anybody_is_served():
    server = Server(make(), num_pages=3, page_size=2)
    for wrong, message in (
        (request([]), "prompt is empty"),
        (request([1], LONGEST), "are more than max_seq_len=24"),
        (
            request([1, 2, 3], 5),
            "3 tokens of prompt and max_new_tokens=5 do not fit in",
        ),
        (request([1, V]), f"prompt holds {V}; tokens must be at least 0 and less than"),
        (
            request([1], answer=[4]),
            "answer holds 1 tokens; it must be empty when a req",
        ),
    ):
        first = request([1])
        with pytest.raises(ValueError, match=message):
            serve(server, [first, wrong], arrivals=[0, 1])
        assert first.answer == []
