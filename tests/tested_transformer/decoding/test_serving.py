"""Requests on a server get what they would get alone, and no page is lost."""

from collections import Counter
from random import Random
from typing import Any

import pytest
import torch

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
WANTED = [9, 2, 5, 1, 13, 4]
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
GREEDY = Sampling(temperature=0.0)


def make(**changes: Any) -> GPT:
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_heads": 2, "num_layers": 3, "max_seq_len": LONGEST}
    model = GPT(GPTConfig(vocab_size=V, **{**sizes, **changes}), dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def requests(**changes: Any) -> list[Request]:
    pairs = zip(PROMPTS, WANTED, strict=True)
    return [
        Request(prompt=prompt, max_new_tokens=wanted, seed=seed, **changes)
        for seed, (prompt, wanted) in enumerate(pairs)
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
    asked = [*requests(), Request(prompt=[*PROMPTS[4], 6], max_new_tokens=3, seed=7)]
    serve(server, asked, arrivals=[0, 0, 0, 1, 1, 12, 30])
    for request in asked:
        assert request.answer == alone(model, request, sampling)
    check_pages(server)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_another_server_goes_on_with_the_same_tokens(kind):
    model = make(**kind)
    first = Server(model, num_pages=9, page_size=2, prefix_caching=True)
    second = Server(model, num_pages=8, page_size=2)
    with pytest.raises(ValueError, match="do not fit into 8 pages of 2"):
        serve(first, requests(), decoder=second)
    second, asked = Server(model, num_pages=9, page_size=2), requests()
    served = serve(first, asked, decoder=second, transfer=0.1)
    for request in asked:
        assert request.answer == alone(model, request)
    wrote = {who: [*s.wrote] for *_, who, s in served.steps if len(s.wrote)}
    assert {*wrote} == {0, 1}
    for server in (first, second):
        check_pages(server)
        assert server.pool.num_free == 9


def test_a_full_decoder_lets_the_other_wait():
    """Pages of requests that the decoder has no room for stay where they were read."""
    model = make()
    asked = [Request(prompt=[n, 1, 4], max_new_tokens=6, seed=n) for n in range(6)]
    first = Server(model, num_pages=4, page_size=2)
    second = Server(model, num_pages=4, page_size=2)
    serve(first, asked, decoder=second)
    assert all(request.answer == alone(model, request) for request in asked)
    assert first.pool.num_free == second.pool.num_free == 4


def test_requests_that_come_and_go_lose_no_page():
    """Of random lengths, and a tenth of them are cancelled."""
    model, rng = make(num_layers=1, max_seq_len=40, positions="rotary"), Random(3)
    count, beginnings = 100, [rng.choices(range(V), k=n) for n in (4, 9, 13)]
    asked = [
        Request(
            prompt=rng.choice(beginnings) + rng.choices(range(V), k=rng.randint(1, 9)),
            max_new_tokens=rng.randint(1, 8),
            stop=3,
            seed=number,
        )
        for number in range(count)
    ]
    arrivals = {request: rng.uniform(0, count / 2) for request in asked}
    cancellations = {
        request: arrivals[request] + rng.uniform(0, 12)
        for request in rng.sample(asked, 10)
    }
    server = Server(
        model, num_pages=20, page_size=4, token_budget=16, prefix_caching=True
    )
    steps: list[Step] = []

    def seconds(step):
        check_pages(server)
        steps.append(step)
        return 1.0

    times = [*arrivals.values()]
    serve(server, asked, arrivals=times, seconds=seconds, cancellations=cancellations)
    # Cancelled ones keep what they had; some had all before.
    assert 0 < sum(request.cancelled for request in asked) <= 10
    for request in asked:
        expected = alone(model, request)
        if request.cancelled:
            expected = expected[: len(request.answer)]
        assert request.answer == expected
    # What the test is about has happened.
    assert sum(len(step.preempted) for step in steps) > 1
    assert sum(step.reused for step in steps) > count
    assert server.pool.num_evicted > 1
    assert server.pool.num_free == 20
    assert not server.running
    assert not server._generators


def test_under_autocast_it_reads_the_same_rounded():
    """Then keys come in another type than that of the cache, which the weights have."""
    model, found = make().float(), dict[bool, list[torch.Tensor]]()
    for precise in (True, False):
        logits = found[precise] = []

        def always_three(rows, logits=logits):
            logits.append(rows.float())
            return torch.eye(V)[[3] * len(rows)]

        server = Server(
            model, num_pages=2, page_size=LONGEST, probabilities=always_three
        )
        with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
            serve(server, requests())
    exact, rounded = torch.cat(found[True]), torch.cat(found[False])
    assert 0 < (rounded - exact).norm() < 0.05 * exact.norm()


def present(server: Server, asked: list[Request], **how: Any) -> list[list[int]]:
    """Return which requests each step wrote for."""
    steps = serve(server, asked, **how).steps
    return [sorted(map(asked.index, step.wrote)) for *_, step in steps]


def slots(**settings: Any) -> Server:
    return Server(make(), page_size=LONGEST, **settings)


def test_a_slot_is_free_for_the_next_as_soon_as_a_request_is_done():
    assert present(slots(num_pages=2), requests()) == [
        *[[0, 1]] * 2,
        *[[0, 2]] * 5,
        [0, 3],
        [0, 4],
        *[[4, 5]] * 4,
        *[[4]] * 8,
    ]


def test_a_static_batch_waits_for_its_longest():
    assert present(slots(num_pages=2, static=True), requests()) == [
        *[[0, 1]] * 2,
        *[[0]] * 7,
        [2, 3],
        *[[2]] * 4,
        *[[4, 5]] * 4,
        *[[4]] * 9,
    ]


def test_nobody_is_served_before_arriving():
    arrivals, asked = [0, 3, 3, 20, 21, 40], requests()
    times = serve(slots(num_pages=3), asked, arrivals=arrivals).times
    for request, arrival, wanted in zip(asked, arrivals, WANTED, strict=True):
        assert times[request] == [*range(arrival + 1, arrival + 1 + wanted)]


def test_a_request_ends_with_its_stop():
    model = make()
    whole = alone(model, requests()[0], GREEDY)
    request = Request(prompt=[3, 1, 4], max_new_tokens=9, stop=whole[3])
    server = Server(
        model, num_pages=1, page_size=LONGEST, probabilities=GREEDY.probabilities
    )
    served = serve(server, [request])
    assert request.answer == whole[: whole.index(whole[3]) + 1]
    assert len(served.steps) == len(request.answer)


def reads(server: Server, asked: list[Request]) -> list[list[tuple[int, int]]]:
    """Return which request read how many tokens in each step."""
    return [
        [(asked.index(request), count) for request, count in step.reads.items()]
        for *_, step in serve(server, asked).steps
    ]


def test_a_long_prompt_is_read_beside_the_answers_of_others():
    asked = [
        Request(prompt=[1, 2], max_new_tokens=5),
        Request(prompt=[*range(7)], max_new_tokens=2),
    ]
    server = Server(make(), num_pages=9, page_size=2, token_budget=4)
    assert reads(server, asked) == [
        [(0, 2), (1, 2)],
        [(0, 1), (1, 3)],
        [(0, 1), (1, 2)],
        [(0, 1), (1, 1)],
        [(0, 1)],
    ]
    asked = [Request(prompt=r.prompt, max_new_tokens=r.max_new_tokens) for r in asked]
    server = Server(make(), num_pages=9, page_size=2)
    assert reads(server, asked)[0] == [(0, 2), (1, 7)]


def test_the_youngest_gives_its_pages_back_and_reads_its_tokens_again():
    asked = [Request(prompt=[1, 2, 3], max_new_tokens=4, seed=n) for n in range(2)]
    server = Server(make(), num_pages=5, page_size=2)
    steps = [step for *_, step in serve(server, asked).steps]
    assert [step.preempted for step in steps] == [[], [], [asked[1]], *[[]] * 3]
    # After its third and fourth token it has five to read again, and one more.
    assert [step.reads.get(asked[1], 0) for step in steps] == [3, 1, 0, 0, 5, 1]
    reserved = Server(make(), num_pages=5, page_size=2, reserve=True)
    asked = [Request(prompt=[1, 2, 3], max_new_tokens=4, seed=n) for n in range(2)]
    steps = [step for *_, step in serve(reserved, asked).steps]
    assert [step.reads.get(asked[1], 0) for step in steps] == [0] * 4 + [3, 1, 1, 1]


def test_what_others_have_read_is_not_read_again():
    asked = [Request(prompt=[1, 2, 3, 4, n], max_new_tokens=2) for n in (5, 5, 6)]
    asked += [Request(prompt=[9, 2, 3, 4, 5], max_new_tokens=2)]
    settings: dict[str, Any] = {"num_pages": 12, "page_size": 2, "token_budget": 5}
    server = Server(make(), prefix_caching=True, **settings)
    served = serve(server, asked, arrivals=[0, 10, 20, 30])
    assert [step.reused for *_, step in served.steps if step.wrote][::2] == [0, 4, 4, 0]
    again = [Request(prompt=r.prompt, max_new_tokens=2) for r in asked]
    served = serve(Server(make(), **settings), again, arrivals=[0, 10, 20, 30])
    assert not any(step.reused for *_, step in served.steps)


def test_the_clock_adds_up_steps_tokens_and_keys():
    asked = [Request(prompt=[1, 2, 3], max_new_tokens=2) for _ in "ab"]
    seconds = StepTime(per_step=100, per_token=10, per_key=1)
    served = serve(slots(num_pages=1), asked, arrivals=[5, 6], seconds=seconds)
    # The prompt: 100 + 3 * 10 + 3; then a token that sees four: 100 + 10 + 4.
    ends = [5 + 133, 5 + 133 + 114, 5 + 247 + 133, 5 + 247 + 247]
    assert [end for _, end, _, _ in served.steps] == ends
    assert served.to_first_token == [133, 247 + 133 - 1]
    assert served.between_tokens == [114, 114]
    assert served.seconds == 494


def test_two_servers_share_the_requests():
    asked = requests()
    served = serve([slots(num_pages=1), slots(num_pages=1)], asked)
    who = [{w for *_, w, step in served.steps if r in step.reads} for r in asked]
    assert who == [{0}, {1}] * 3


def test_it_takes_no_more_memory_however_many_come():
    server = slots(num_pages=2)
    where, nbytes = server.pool.keys.data_ptr(), server.pool.nbytes
    serve(server, requests())
    assert server.pool.keys.data_ptr() == where
    assert server.pool.nbytes == nbytes == server.model.new_cache(2).nbytes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: Server(m, num_pages=0, page_size=2), "num_pages=0 must be positive"),
        (
            lambda m: Server(m, num_pages=1, page_size=2, token_budget=0),
            "token_budget=0 must be positive",
        ),
        (
            lambda m: serve(slots(num_pages=1), [Request(prompt=[], max_new_tokens=2)]),
            "prompt is empty",
        ),
        (
            lambda m: Request(prompt=[1], max_new_tokens=0),
            "max_new_tokens=0 must be positive",
        ),
        (
            lambda m: slots(num_pages=1).submit(Request(prompt=[1], max_new_tokens=24)),
            "are more than max_seq_len=24",
        ),
        (
            lambda m: Server(m, num_pages=3, page_size=2).submit(
                Request(prompt=[1, 2, 3], max_new_tokens=5)
            ),
            "3 tokens of prompt and max_new_tokens=5 do not fit into 3 pages of 2",
        ),
        (
            lambda m: slots(num_pages=1).submit(
                Request(prompt=[1, V], max_new_tokens=2)
            ),
            f"prompt holds {V}; tokens must be at least 0 and less than vocab_size={V}",
        ),
        (
            lambda m: slots(num_pages=1).submit(
                Request(prompt=[1], max_new_tokens=2, answer=[4])
            ),
            "answer holds 1 tokens; it must be empty when a request is submitted: to",
        ),
        (
            lambda m: serve(slots(num_pages=1), requests(), arrivals=[1, 2]),
            "arrivals must be 6 times; they are 2",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(make())


@pytest.mark.parametrize("wrong", [{"prompt": [-1]}, {"answer": [4]}], ids=str)
def test_nobody_is_served_if_somebody_later_does_not_fit(wrong):
    settings = {"prompt": [1], "max_new_tokens": 2} | wrong
    asked = [*requests(), Request(**settings)]
    with pytest.raises(ValueError, match=r"^(prompt holds -1|answer holds 1)"):
        serve(slots(num_pages=2), asked, arrivals=[*range(7)])
    assert not any(request.answer for request in asked[:-1])
