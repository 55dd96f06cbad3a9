"""Requests that join and leave a running batch get what they would get alone."""

import pytest
import torch

from tested_transformer.caches import slot_cache
from tested_transformer.decoding import Batcher, Request, Sampling, generate, serve
from tested_transformer.gpt import GPT, GPTConfig

V = 11
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5, 3, 5], [8, 9], [7, 9, 3, 2, 3], [8, 4]]
WANTED = [9, 2, 5, 1, 13, 4]
KINDS = [
    {},
    {"positions": "rotary", "num_kv_heads": 1, "qk_norm": True},
    {"positions": "alibi", "smear": True},
    {"positions": "sinusoidal", "num_experts": 2},
]


def make(**changes) -> GPT:
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_heads": 2, "num_layers": 3, "max_seq_len": 24}
    model = GPT(GPTConfig(vocab_size=V, **{**sizes, **changes}), dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def requests(**changes) -> list[Request]:
    pairs = zip(PROMPTS, WANTED, strict=True)
    return [
        Request(prompt=prompt, max_new_tokens=wanted, seed=seed, **changes)
        for seed, (prompt, wanted) in enumerate(pairs)
    ]


@pytest.mark.parametrize("static", [False, True], ids=["continuous", "static"])
@pytest.mark.parametrize("num_slots", [1, 2, 4, 7])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_tokens_are_those_of_one_by_one(kind, num_slots, static):
    model, sampling = make(**kind), Sampling(temperature=1.2, top_p=0.95)
    asked = requests()
    serve(
        model,
        asked,
        num_slots=num_slots,
        static=static,
        arrivals=[0, 0, 0, 1, 1, 12],
        probabilities=sampling.probabilities,
    )
    for request in asked:
        (expected,) = generate(
            model,
            [request.prompt],
            max_new_tokens=request.max_new_tokens,
            sampling=sampling,
            seed=request.seed,
        )
        assert request.answer == expected


def test_under_autocast_it_reads_the_same_rounded():
    """Then keys come in another type than that of the cache, which the weights have."""
    model, found = make().float(), {}
    for precise in (True, False):
        logits = found[precise] = []

        def always_three(rows, logits=logits):
            logits.append(rows.float())
            return torch.eye(V)[[3] * len(rows)]

        with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
            serve(model, requests(), num_slots=2, probabilities=always_three)
    exact, rounded = torch.cat(found[True]), torch.cat(found[False])
    assert 0 < (rounded - exact).norm() < 0.05 * exact.norm()


def test_a_slot_is_free_for_the_next_as_soon_as_a_request_is_done():
    timeline = serve(make(), requests(), num_slots=2)
    assert [[step[slot] for step in timeline] for slot in (0, 1)] == [
        [0] * 9 + [5] * 4 + [None] * 8,
        [1] * 2 + [2] * 5 + [3] + [4] * 13,
    ]


def test_a_static_batch_waits_for_its_longest():
    timeline = serve(make(), requests(), num_slots=2, static=True)
    assert [[step[slot] for step in timeline] for slot in (0, 1)] == [
        [0] * 9 + [2] * 5 + [4] * 13,
        [1] * 2 + [None] * 7 + [3] + [None] * 4 + [5] * 4 + [None] * 9,
    ]


def test_nobody_is_served_before_arriving():
    arrivals = [0, 3, 3, 20, 21, 40]
    timeline = serve(make(), requests(), num_slots=3, arrivals=arrivals)
    for number, arrival in enumerate(arrivals):
        at = [step for step, slots in enumerate(timeline) if number in slots]
        assert at == [*range(arrival, arrival + WANTED[number])]


def test_a_request_ends_with_its_stop():
    model, greedy = make(), Sampling(temperature=0.0)
    (whole,) = generate(model, [[3, 1, 4]], max_new_tokens=9, sampling=greedy)
    stop = whole[3]
    request = Request(prompt=[3, 1, 4], max_new_tokens=9, stop=stop)
    timeline = serve(model, [request], num_slots=2, probabilities=greedy.probabilities)
    assert request.answer == whole[: whole.index(stop) + 1]
    assert len(timeline) == len(request.answer)


def test_a_step_runs_no_slot_beyond_the_last_that_is_taken():
    model, batches = make(), []
    model.register_forward_pre_hook(lambda _, inputs: batches.append(len(inputs[0])))
    serve(model, requests()[:3], num_slots=6)
    # Three prompts, one by one; then all three slots, until the third is done.
    assert batches == [1, 1, 1, 3, 3, 3, 3, 1, 1, 1, 1]


def test_it_takes_no_more_memory_however_many_come():
    model = make()
    batcher = Batcher(model, num_slots=2)
    where = [layer.keys.data_ptr() for layer in batcher.cache.layers]
    nbytes = batcher.cache.nbytes
    for request in requests():
        batcher.submit(request)
    while batcher.waiting or any(batcher.slots):
        batcher.step()
    assert [layer.keys.data_ptr() for layer in batcher.cache.layers] == where
    assert batcher.cache.nbytes == nbytes == model.new_cache(2).nbytes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m: slot_cache(make(windows=5), 2),
            "windows=5 of model must be None",
        ),
        (lambda m: Batcher(m, num_slots=0), "num_slots=0 must be positive"),
        (
            lambda m: serve(m, [Request(prompt=[], max_new_tokens=2)], num_slots=1),
            "prompt is empty",
        ),
        (
            lambda m: Request(prompt=[1], max_new_tokens=0),
            "max_new_tokens=0 must be positive",
        ),
        (
            lambda m: serve(m, [Request(prompt=[1], max_new_tokens=24)], num_slots=1),
            "are more than max_seq_len=24",
        ),
        (
            lambda m: Batcher(m, num_slots=1).submit(
                Request(prompt=[1, V], max_new_tokens=2)
            ),
            f"prompt holds {V}; tokens must be at least 0 and less than vocab_size={V}",
        ),
        (
            lambda m: Batcher(m, num_slots=1).submit(
                Request(prompt=[1], max_new_tokens=2, answer=[4])
            ),
            "answer holds 1 tokens; it must be empty when a request is submitted: to",
        ),
        (
            lambda m: serve(m, requests(), num_slots=1, arrivals=[3, 2, 4, 5, 6, 7]),
            "arrivals must be 6 steps in ascending order",
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
        serve(make(), asked, num_slots=2, arrivals=[*range(7)])
    assert not any(request.answer for request in asked[:-1])
