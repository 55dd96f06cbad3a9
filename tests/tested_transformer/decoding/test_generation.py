"""Generation against a loop written out once more, alone, in batches, and streamed."""

import re
from dataclasses import replace
from inspect import signature
from itertools import chain, pairwise

import numpy
import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.decoding import (
    CachedReader,
    Decoder,
    Sampling,
    WholeReader,
    generate,
    generation,
    stream,
)
from tested_transformer.gpt import GPT, GPTConfig

# Pairwise different: vocabulary, longest sequence, heads, head width, layers.
V, LONGEST, H, D_K, L = 13, 11, 3, 4, 2
SMALL = GPTConfig(
    vocab_size=V,
    max_seq_len=LONGEST,
    d_model=H * D_K,
    num_heads=H,
    num_layers=L,
    tie_head=False,
)
PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11]]
GREEDY = Sampling(temperature=0.0)
DRAWN = Sampling(temperature=1.3, top_k=9, top_p=0.95, min_p=0.01)


def make(**changes) -> GPT:
    model = with_large_weights(GPT(replace(SMALL, **changes)), 1.0)
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return make()


def greedy_by_hand(model: GPT, prompt: list[int], number: int) -> list[int]:
    """Take the likeliest token, over and over, with the policy for a full context."""
    context, answer = list(prompt), []
    for _ in range(number):
        if len(context) > LONGEST:
            context = context[-(LONGEST + 1) // 2 :]
        token = int(model(torch.tensor([context]))[0, -1].argmax())
        answer.append(token)
        context.append(token)
    return answer


@pytest.mark.parametrize(
    "changes", [{}, {"positions": "alibi", "num_experts": 3}], ids=str
)
def test_the_likeliest_tokens_past_a_full_context(changes):
    model = make(**changes)
    prompts = [*PROMPTS, [token % V for token in range(LONGEST)]]
    expected = [greedy_by_hand(model, prompt, 25) for prompt in prompts]
    assert len({token for answer in expected for token in answer}) > 4
    # A prompt beyond the context is read from its last half.
    prompts.append([token % V for token in range(30)])
    expected.append(greedy_by_hand(model, prompts[-1][-6:], 25))
    for use_cache in (True, False):
        settings = {"sampling": GREEDY, "use_cache": use_cache}
        assert generate(model, prompts, max_new_tokens=25, **settings) == expected


@pytest.mark.parametrize(
    "sampling", [DRAWN, Sampling(temperature=0.0, repetition_penalty=1.7)], ids=str
)
def test_no_reader_and_no_other_row_changes_an_answer(model, sampling):
    same = {"max_new_tokens": 14, "sampling": sampling}
    together = generate(model, PROMPTS, seed=5, **same)
    for row, prompt in enumerate(PROMPTS):
        assert generate(model, [prompt], seed=5 + row, **same) == [together[row]]
    assert generate(model, PROMPTS, seed=5, use_cache=False, **same) == together
    for reader in (WholeReader, CachedReader, Decoder):
        assert generate(reader(model), PROMPTS, seed=5, **same) == together


def test_seeds(model, as_a_caller):
    def answer(**settings):
        return generate(model, PROMPTS[:2], max_new_tokens=14, **settings)

    before = torch.get_rng_state()
    assert answer(seed=1) == answer(seed=numpy.int64(1)) != answer(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    first, second = answer(), answer()
    assert first != second
    torch.manual_seed(3)
    assert answer() == first


def test_the_penalty_counts_the_prompt_and_the_answer(model):
    def by_hand(prompt, seen):
        """Take the likeliest token, over and over; halve what speaks for one seen."""
        context = list(prompt)
        for _ in range(6):  # all of it fits into the context
            logits = model(torch.tensor([context]))[0, -1]
            for token in seen:
                logits[token] *= 2 if logits[token] < 0 else 1 / 2
            context.append(int(logits.argmax()))
            seen = seen | {context[-1]}
        return context[len(prompt) :]

    prompts = [[token, token + 1, token + 2] for token in range(V - 2)]
    penalized = Sampling(temperature=0.0, repetition_penalty=2.0)
    got = generate(model, prompts, max_new_tokens=6, sampling=penalized)
    assert got == [by_hand(prompt, {*prompt}) for prompt in prompts]
    # Neither the prompt alone nor the answer alone would do.
    assert got != [by_hand(prompt, set()) for prompt in prompts]
    assert got != generate(model, prompts, max_new_tokens=6, sampling=GREEDY)


def test_stop_sequences_end_each_row_by_itself(model):
    settings = {"max_new_tokens": 20, "sampling": GREEDY}
    free = generate(model, PROMPTS, **settings)
    # The third and fourth token of row 0, and a token that only row 2 has.
    stop = [free[0][2:4], free[1][7:8]]
    got = generate(model, PROMPTS, stop=stop, **settings)
    for answer, free_answer in zip(got, free, strict=True):
        ends = [
            n
            for n in range(len(free_answer))
            if any(free_answer[n : n + len(sequence)] == sequence for sequence in stop)
        ]
        assert answer == (free_answer[: ends[0]] if ends else free_answer)
    assert got[0] != free[0]
    assert got[1] != free[1]
    # What could have been the start of a stop comes at the end.
    pairs = [*pairwise(free[0])]
    never = next(token for token in range(V) if (free[0][-1], token) not in pairs)
    stop = [[free[0][-1], never]]
    assert generate(model, PROMPTS[:1], stop=stop, **settings) == free[:1]


def test_it_writes_under_autocast(model):
    experts, settings = make(num_experts=3), {"max_new_tokens": 14, "seed": 3}
    usual = generate(Decoder(model), PROMPTS, **settings)
    with torch.autocast("cpu", torch.bfloat16):
        # The decoder keeps to the type of the weights.
        assert generate(Decoder(model), PROMPTS, **settings) == usual
        for candidate in (model, experts):
            answers = generate(candidate, PROMPTS, **settings)
            assert [len(answer) for answer in answers] == [14, 14, 14]


def test_tokens_come_one_by_one(model, monkeypatch):
    steps: list[int] = []
    real = CachedReader.step
    (answer,) = generate(model, [[1]], max_new_tokens=5, sampling=GREEDY)
    monkeypatch.setattr(
        CachedReader, "step", lambda self, t: steps.append(len(t)) or real(self, t)
    )
    pieces = stream(model, [[1]], max_new_tokens=5, sampling=GREEDY)
    for number, token in enumerate(answer):
        assert [*next(pieces)[0]] == [token]
        assert len(steps) == min(number, 4)  # no further than it must be
    assert next(pieces, None) is None


def test_tokens_that_arrive_late_are_the_same(model, monkeypatch):
    """As on a GPU: the next step starts before the host has the tokens of this one."""
    settings = {"max_new_tokens": 25, "seed": 4, "sampling": DRAWN}
    readers = (CachedReader(model), WholeReader(model), Decoder(model))
    free = generate(model, PROMPTS, **settings)
    stop = [free[0][6:8], free[1][11:12]]
    ends = [settings, settings | {"stop": stop}]
    expected = [generate(model, PROMPTS, **options) for options in ends]
    events: list[str] = []

    class Late(generation._Coming):
        def __init__(self, tokens):
            super().__init__(tokens)
            self.are_late = True

        def tolist(self):
            events.append("token")
            return super().tolist()

    real = CachedReader.step
    monkeypatch.setattr(
        CachedReader, "step", lambda self, t: events.append("step") or real(self, t)
    )
    monkeypatch.setattr(generation, "_Coming", Late)
    for reader in readers:
        assert [generate(reader, PROMPTS, **options) for options in ends] == expected
    events.clear()
    generate(model, [[1]], max_new_tokens=4)
    assert " ".join(events) == "step token step token step token token"


def test_it_ends_when_all_have_stopped_or_nothing_is_wanted(model):
    stop = [[token] for token in range(V)]
    assert generate(model, PROMPTS, max_new_tokens=10**9, stop=stop) == [[], [], []]
    assert generate(model, PROMPTS, max_new_tokens=0) == [[], [], []]
    # A stream may be left.
    assert len(next(stream(model, [[1]], max_new_tokens=10**9))[0]) == 1
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_logits_that_are_nan_are_refused():
    model = make()
    model.norm.weight[3] = torch.nan
    with pytest.raises(ValueError, match=r"^the model's logits are NaN: look at its"):
        generate(model, PROMPTS, max_new_tokens=2, sampling=GREEDY)


def test_it_learns_nothing_and_leaves_the_model_to_others():
    model = make(tie_head=True)
    tokens = torch.tensor([[1, 2]])
    generate(model, PROMPTS, max_new_tokens=3, seed=0)
    model.requires_grad_(True)
    model(tokens).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_streamed_tokens_are_those_of_generate(model):
    of_generate, of_stream = map(signature, (generate, stream))
    assert of_generate.parameters == of_stream.parameters
    settings = {"max_new_tokens": 14, "sampling": DRAWN, "stop": [[3], [5, 7]]}
    pieces = zip(*stream(model, PROMPTS, seed=1, **settings), strict=True)
    streamed = [list(chain(*row)) for row in pieces]
    assert streamed == generate(model, PROMPTS, seed=1, **settings)


def test_a_reader_reads_in_place_of_its_model(model, monkeypatch):
    calls: list[str] = []
    for kind in (Decoder, CachedReader, WholeReader):
        real = kind.read

        def read(self, contexts, real=real, name=kind.__name__):
            calls.append(name)
            return real(self, contexts)

        monkeypatch.setattr(kind, "read", read)
    for reader, settings, read_by in (
        (Decoder(model), {}, ["Decoder"]),
        (model, {}, ["CachedReader"]),
        (model, {"use_cache": False}, ["WholeReader"] * 2),
    ):
        generate(reader, PROMPTS, max_new_tokens=2, **settings)
        assert calls == read_by
        calls.clear()
    message = "use_cache=False does not fit a Decoder: pass its model"
    with pytest.raises(ValueError, match=f"^{message}$"):
        stream(Decoder(model), PROMPTS, max_new_tokens=2, use_cache=False)


NO_MODEL = "model must be a GPT or a reader for one; it is"
MISTAKES: list[tuple[dict[str, object], type[Exception], str]] = [
    ({"max_new_tokens": -1}, ValueError, "max_new_tokens=-1 must not be negative"),
    ({"stop": [[1], []]}, ValueError, "stop[1] is empty: it would stop at once"),
    ({"stop": None}, TypeError, "stop must be a list of sequences of token ids; it is"),
    ({"prompts": []}, ValueError, "prompts is empty: pass at least one prompt"),
    ({"seed": 0.5}, TypeError, "'float' object cannot be interpreted as an integer"),
    ({"sampling": {}}, TypeError, "sampling must be a Sampling(...); it is a dict"),
    ({"model": "gpt2"}, TypeError, f"{NO_MODEL} 'gpt2'"),
    ({"model": torch.nn.Linear(2, 3)}, TypeError, f"{NO_MODEL} a Linear"),
]


@pytest.mark.usefixtures("as_a_caller")
def test_mistakes_are_named_before_anything_is_done(model):
    for changes, error, message in MISTAKES:
        request = {"model": model, "prompts": [[1]], "max_new_tokens": 2} | changes
        with pytest.raises(error, match=f"^{re.escape(message)}"):
            stream(**request)
