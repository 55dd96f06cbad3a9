"""Training from end to end: it learns, it stops, it goes on, it gives up."""

import json
import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from tested_transformer.attentions import ATTENTIONS
from tested_transformer.data import batch_at
from tested_transformer.gpt import GPT
from tested_transformer.training import (
    Progress,
    Recipe,
    TrainingDivergedError,
    TrainingState,
    World,
    devices,
    evaluate,
    honest_loss,
    loop,
    train,
    training_precision,
    validate_run,
)
from tested_transformer.training.loop import Learner
from tested_transformer.training.monitor import Monitor

# Checks of shapes would take most of the time; test_evaluation.py has them.
pytestmark = pytest.mark.usefixtures("as_a_caller")

RECIPE = Recipe(
    steps=12,
    batch_size=6,
    seq_len=5,
    lr=0.01,
    warmup=2,
    evaluate_every=5,
    precision="fp32",
)


def copy_of(state: TrainingState) -> tuple[TrainingState, dict[str, Tensor]]:
    """Send a state through files, or nearly: copies of tensors, and JSON."""
    tensors = {name: x.clone() for name, x in state.state_tensors().items()}
    values = json.loads(json.dumps(state.state_json()))
    weights = {name: x.clone() for name, x in state.weights.items()}
    return TrainingState.from_state(tensors, values), weights


def same_weights(first: GPT, second: GPT) -> bool:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe.plain(steps=60, warmup=5, lr=0.01),
        Recipe.fast(steps=60, warmup=5, lr=0.03, batch_size=12, muon_lr=0.05),
    ],
    ids=["plain", "fast"],
)
def test_it_learns(recipe, make_model, tokens):
    model = make_model(tie_head=False)
    recipe = replace(recipe, precision="fp32")
    before = evaluate(model, tokens)
    state = train(model, tokens[:800], recipe, validation=tokens[800:])
    assert before > 2.35
    # The best there is: one of two, but for the first token's neighbor.
    assert state.validations[-1].loss < 1.0
    assert state.validations[-1].gap < 1e-5
    assert state.step == len(state.losses) == 60


def test_a_step_is_the_textbooks(make_model, tokens):
    recipe = replace(RECIPE, steps=3, warmup=1, clip=0.5, weight_decay=0.25, seed=3)
    model, by_hand = make_model(), make_model()
    reports: list[Progress] = []
    state = train(model, tokens, recipe, on_step=reports.append)

    matrices = [p for p in by_hand.parameters() if p.ndim == 2]
    rest = [p for p in by_hand.parameters() if p.ndim != 2]
    adamw = torch.optim.AdamW(
        [{"params": matrices}, {"params": rest, "weight_decay": 0.0}],
        betas=recipe.betas,
        weight_decay=0.25,
    )
    for step in range(3):
        factor = recipe.rate_factor(step)
        for group in adamw.param_groups:
            group["lr"] = 0.01 * factor
        inputs, targets = batch_at(tokens, step=step, batch_size=6, seq_len=5, seed=3)
        logits = by_hand(inputs)
        loss = -logits.log_softmax(-1).gather(-1, targets[..., None]).mean()
        loss.backward()
        length = torch.cat([p.grad.flatten() for p in by_hand.parameters()]).norm()
        for parameter in by_hand.parameters():
            parameter.grad *= min(1.0, 0.5 / length.item())
        adamw.step()
        adamw.zero_grad()
        assert state.losses[step] == pytest.approx(loss.item(), rel=1e-5)
        assert reports[step].gradient == pytest.approx(length.item(), rel=1e-4)
        assert reports[step].lr == 0.01 * factor
        assert (reports[step].step, reports[step].steps) == (step + 1, 3)
        assert reports[step].loss == state.losses[step]
    for one, two in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5)


def test_a_batch_in_parts_is_the_batch(make_model, tokens):
    for optimizer, accumulate in (("adamw", 2), ("muon", 6)):
        at_once, in_parts = make_model().double(), make_model().double()
        recipe = replace(RECIPE, optimizer=optimizer, steps=4)
        expected = train(at_once, tokens, recipe)
        result = train(in_parts, tokens, replace(recipe, accumulate=accumulate))
        assert result.losses == pytest.approx(expected.losses, rel=1e-6)
        for a, b in zip(at_once.parameters(), in_parts.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)


def test_of_a_batch_in_parts_only_the_balance_of_experts_differs(make_model, tokens):
    for weight, same in ((0.0, True), (1.0, False)):
        models = [make_model(num_experts=3).double() for _ in range(2)]
        for model, accumulate in zip(models, (1, 3), strict=True):
            recipe = replace(RECIPE, steps=2, warmup=0, accumulate=accumulate)
            train(model, tokens, replace(recipe, balance_weight=weight))
        routers = [model.blocks[0].feed_forward.router.weight for model in models]
        assert torch.allclose(*routers, rtol=1e-4, atol=1e-7) is same


def test_half_of_the_digits_lead_to_the_same_place(make_model, tokens):
    dtypes: set[torch.dtype] = set()

    def run(precision):
        model, lengths = make_model(), []
        model.blocks[1].feed_forward.up.register_forward_hook(
            lambda _, __, output: dtypes.add(output.dtype)
        )
        recipe = replace(RECIPE, precision=precision, clip=0.5)
        state = train(
            model, tokens, recipe, on_step=lambda p: lengths.append(p.gradient)
        )
        return state.losses, lengths

    expected_losses, expected_lengths = run("fp32")
    for precision, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        dtypes.clear()
        losses, lengths = run(precision)
        assert dtypes == {dtype}
        assert losses == pytest.approx(expected_losses, abs=0.01)
        assert lengths == pytest.approx(expected_lengths, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "settings", "frozen"),
    [
        (
            {"optimizer": "muon", "accumulate": 3},
            {"dropout": 0.25, "tie_head": False},
            ("position_embedding", "blocks.0.attention.q_proj"),
        ),
        ({"precision": "bf16"}, {"num_experts": 3, "dropout": 0.25}, ()),
        ({"precision": "fp16"}, {}, ("blocks.0.attention.q_proj",)),
    ],
    ids=str,
)
def test_who_goes_on_gets_the_same_losses_to_the_bit(
    changes, settings, frozen, make_model, tokens
):
    def make():
        model = make_model(**settings)
        for name in frozen:
            model.get_submodule(name).requires_grad_(False)
        return model

    recipe = replace(RECIPE, **changes)
    saved: list[tuple[TrainingState, dict[str, Tensor]]] = []
    reference = make()
    text = {"validation": tokens[:50]}
    keep = {"save": lambda state: saved.append(copy_of(state)), "save_every": 4}
    expected = train(reference, tokens, recipe, **keep, **text)
    assert [state.step for state, _ in saved] == [4, 8, 12]
    for state, weights in saved:
        model = make()
        model.load_state_dict(weights)
        torch.manual_seed(99)
        resumed = train(model, tokens, recipe, state=state, **text)
        assert resumed.losses == expected.losses
        assert resumed.validations == expected.validations
        assert same_weights(model, reference)
        assert resumed.scaler == expected.scaler
        # The state is as it was: one can go on from it again.
        assert len(state.losses) == state.step


def test_the_seed_decides_and_nothing_else_does(make_model, tokens):
    def losses(seed, *, dropout=0.25, on_step=None):
        torch.manual_seed(seed + 100)
        model = make_model(dropout=dropout)
        return train(model, tokens, replace(RECIPE, seed=seed), on_step=on_step).losses

    usual = losses(1)
    assert usual == losses(1, on_step=lambda _: torch.rand(7))
    assert usual != losses(2)
    assert usual != losses(1, dropout=0.0)


def test_it_stops_when_told_and_saves(make_model, tokens):
    reports, saved = list[Progress](), list[TrainingState]()
    how = {"validation": tokens[:50], "on_step": reports.append, "save_every": 5}
    how["save"] = saved.append
    how["stop"] = lambda: len(reports) == 10
    state = train(make_model(), tokens, RECIPE, **how)
    # Asked before the eleventh step is reported, as the flag of a signal is.
    assert (state.step, len(state.losses), state.saved_step) == (11, 11, 11)
    # What was saved stays as it was.
    steps = [(s.step, s.saved_step, len(s.losses), len(s.validations)) for s in saved]
    assert steps == [(5, 5, 5, 1), (10, 10, 10, 2), (11, 11, 11, 2)]
    assert [report.step for report in reports] == [*range(1, 12)]
    assert [report.step for report in reports if report.validation] == [5, 10]


def test_reports_and_evaluations(make_model, tokens):
    reports: list[Progress] = []
    model, text = make_model(), tokens[:60]
    state = train(model, tokens, RECIPE, validation=text, on_step=reports.append)
    assert [validation.step for validation in state.validations] == [5, 10, 12]
    assert [r.validation for r in reports if r.validation] == state.validations
    last, honest = state.validations[-1], honest_loss(model, text, seq_len=5)
    assert last.loss == evaluate(model, text, seq_len=5)
    assert vars(last).items() >= vars(honest).items()
    for report in reports:
        assert report.tokens_per_second > 0.0
        left = (12 - report.step) * 30 / report.tokens_per_second
        assert report.seconds_left == pytest.approx(left)
    assert reports[-1].seconds == state.seconds > reports[0].seconds > 0.0
    assert state.saved_step is None
    # A run that is over is left alone.
    saved: list[TrainingState] = []
    again = train(model, tokens, RECIPE, state=state, save=saved.append)
    assert (again.step, again.losses, saved) == (12, state.losses, [])


@pytest.mark.parametrize(
    ("step", "number", "message", "saved_steps"),
    [
        (
            7,
            math.inf,
            "the loss is nan at step 7; the last state was saved at step 6; "
            "try lr=0.005, or warmup=10",
            [3, 6],
        ),
        # Between the report of a step and its save: no loss has seen it.
        (6, math.nan, "a weight is not a number at step 6; the last state", [3]),
        (None, math.nan, "the gradient's norm is nan at step 0; nothing was saved", []),
    ],
)
def test_what_is_no_number_stops_the_run_and_is_not_saved(
    step, number, message, saved_steps, make_model, tokens
):
    model, saved = make_model(), list[int]()

    def spoil(progress):
        if progress.step == step:
            model.token_embedding.weight.data[3, 1] = number

    if step is None:
        model.norm.weight.register_hook(lambda gradient: gradient * number)
    keep = {"save": lambda state: saved.append(state.step), "save_every": 3}
    with pytest.raises(TrainingDivergedError, match=f"^{message}") as diverged:
        train(model, tokens, RECIPE, on_step=spoil, **keep)
    assert saved == saved_steps
    assert diverged.value.saved_step == (saved[-1] if saved else None)


def test_a_loss_that_rises_stops_the_run_and_is_not_saved(make_model, tokens):
    recipe = replace(RECIPE, steps=40, evaluate_every=40, margin=0.5, patience=6)

    def run(**stop):
        model = make_model()

        def scramble(progress):
            if progress.step == 7:
                model.token_embedding.weight.data.mul_(-50.0)

        saved.clear()
        keep = {"save": lambda state: saved.append(state.step), "save_every": 2}
        return model, train(model, tokens, recipe, on_step=scramble, **keep, **stop)

    saved: list[int] = []
    with pytest.raises(
        TrainingDivergedError,
        match=r"^the loss rose from 2\.\d+ to \d+\.\d+ at step 12; "
        r"the last state was saved at step 6; try",
    ):
        run()
    assert saved == [2, 4, 6]
    # Told to stop while the loss is up, it keeps what is good, and says so.
    model, first = run(stop=iter([False] * 8 + [True]).__next__)
    assert (first.step, first.saved_step, saved) == (9, 6, [2, 4, 6])
    # The watch remembers over a break: six steps are six steps.
    with pytest.raises(TrainingDivergedError, match="at step 12"):
        train(model, tokens, recipe, state=first)


def test_experts_are_balanced(make_model, tokens):
    def spread_of(weight):
        model = make_model(num_experts=5, experts_per_token=1)
        for block in model.blocks:
            # All tokens to the first expert, at the beginning.
            block.feed_forward.router.weight.data[0] += 0.5
            block.feed_forward_norm.bias.data += 1.0
        train(model, tokens, replace(RECIPE, steps=30, balance_weight=weight))
        model(tokens[None, :7])
        return model.balance_loss().item()

    assert spread_of(1.0) < spread_of(0.0) - 0.5


def test_the_loss_reported_is_that_of_the_text(make_model, tokens):
    recipe = replace(RECIPE, steps=1, warmup=0, balance_weight=100.0)
    model = make_model(num_experts=3)
    inputs, targets = batch_at(tokens, step=0, batch_size=6, seq_len=5, seed=0)
    logits = model(inputs)
    expected = -logits.log_softmax(-1).gather(-1, targets[..., None]).mean()
    (loss,) = train(model, tokens, recipe).losses
    assert loss == pytest.approx(expected.item(), rel=1e-5)


def test_compiled_it_is_the_same(make_model, tokens, monkeypatch):
    # As one program without a break, which is then run as it is: a compiler for C++
    # is not on every machine.
    captured: list[object] = []

    def capture(function):
        captured.append(function)
        return compile_it(function, backend="eager", fullgraph=True)

    compile_it = torch.compile
    monkeypatch.setattr(torch, "compile", capture)
    recipe = replace(RECIPE, compile=True, accumulate=2, steps=7)
    models = make_model(), make_model()
    text = {"validation": tokens[:50]}
    compiled = train(models[0], tokens, recipe, **text)
    plain = train(models[1], tokens, replace(recipe, compile=False), **text)
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)
    assert compiled.weights.keys() == plain.weights.keys()
    assert len(captured) == 1


@pytest.mark.parametrize(
    "recipe",
    [
        replace(RECIPE, accumulate=2, clip=0.0),
        Recipe.fast(steps=12, batch_size=6, seq_len=5, precision="fp32"),
    ],
    ids=["plain", "fast"],
)
def test_a_recorded_step_learns_the_same(
    recipe, make_model, tokens, recordings, monkeypatch
):
    """With dropout, rates that change, and a run that goes on from a file."""
    monkeypatch.setattr(loop, "_validate_graph", lambda *_: None)
    plain, model, resumed = (make_model(dropout=0.2, tie_head=False) for _ in range(3))
    expected = train(plain, tokens, recipe, validation=tokens[:50])
    graph = replace(recipe, graph=True)
    state = train(model, tokens, graph, validation=tokens[:50])
    assert len(recordings) == 1
    assert state.losses == pytest.approx(expected.losses, rel=1e-5)
    text = tokens[None, :7]
    close = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(model.eval()(text), plain.eval()(text), **close)
    half = train(resumed, tokens, graph, stop=iter([False] * 4 + [True]).__next__)
    again, weights = copy_of(half)
    resumed.load_state_dict(weights)
    assert train(resumed, tokens, graph, state=again).losses == state.losses


def test_a_graph_is_refused_where_none_can_be(make_model, tokens):
    with pytest.raises(ValueError, match=r"^graph=True needs a GPU; the model is on"):
        train(make_model(), tokens, replace(RECIPE, graph=True))
    gpu, plain = torch.device("cuda"), make_model()
    indexed = make_model(
        attention=ATTENTIONS["indexer"], positions="rotary", d_model=24
    )
    half, full = (
        replace(RECIPE, graph=True, precision=precision)
        for precision in ("fp16", "bf16")
    )
    for what, *setting in (
        ("precision=", plain, half, World()),
        ("a model without experts", make_model(num_experts=3), full, World()),
        ("a model without an indexer", indexed, full, World()),
        ("a single process", plain, full, World(1, 2)),
    ):
        with pytest.raises(ValueError, match=f"^graph=True needs {what}"):
            validate_run(*setting, device=gpu)
    validate_run(plain, full, World(), device=gpu)


def test_what_does_not_go_together_is_refused(make_model, tokens, monkeypatch):
    usual, text = make_model(), torch.zeros_like(tokens)
    message = r"^shard=True cannot be combined with precision='fp16'$"
    with pytest.raises(ValueError, match=message):
        train(usual, text, replace(RECIPE, precision="fp16"), shard=True)
    monkeypatch.setattr(loop, "training_precision", lambda *_, **__: "fp16")
    with pytest.raises(ValueError, match=message):
        train(usual, text, AUTO, shard=True)
    # All else is refused before anything is measured.
    monkeypatch.setattr(loop, "training_precision", None)
    two = {"world": World(rank=1, size=2)}
    over = {"state": TrainingState(step=6, losses=[1.0] * 6)}
    short = {"validation": torch.tensor([3])}
    compiled = torch.compile(make_model(), backend="eager")
    for model, changes, settings, message in (
        (usual, {"seq_len": 8}, {}, "seq_len=8 must be at most max_seq_len=7"),
        (usual, {"steps": 5}, over, "the training state has 6 steps; the recipe ends"),
        (usual, {}, {"save_every": 0}, "save_every=0 must be positive"),
        (usual, {}, short, "validation must be at least 2 tokens"),
        (usual, {"batch_size": 9}, two, "batch_size=9 must be divisible by accumulate"),
        (usual, {"accumulate": 6}, two, "batch_size=6 must be divisible by accumulate"),
        (make_model(vocab_size=1), {}, {}, "vocab_size=1 leaves nothing to learn: eve"),
        (make_model(dropout=1.0), {}, {}, "dropout=1.0 must be less than 1: it drops "),
        (compiled, {}, {}, r".*write Recipe\(compile=True"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            train(model, text, replace(RECIPE, **changes), **settings)


def test_losses_are_read_many_at_a_time_where_reading_is_waiting(
    make_model, tokens, monkeypatch
):
    reads: list[int] = []
    read, start = Monitor.read, Learner.__init__

    def count(monitor):
        reads.append(len(monitor.unread))
        read(monitor)

    def slow_to_read(learner, *args, **settings):
        start(learner, *args, **settings)
        learner.read_every = 4

    recipe = replace(RECIPE, steps=7, evaluate_every=3)
    expected = train(make_model(), tokens, recipe)
    monkeypatch.setattr(Monitor, "read", count)
    monkeypatch.setattr(Learner, "__init__", slow_to_read)
    reports, saved = list[Progress](), list[tuple[int, int]]()
    how = {"validation": tokens[:50], "on_step": reports.append, "save_every": 5}
    how["save"] = lambda state: saved.append((state.step, len(state.losses)))
    state = train(make_model(), tokens, recipe, **how)
    # At 3 and 6 it is evaluated, at 4 it is time, at 5 and 7 it is saved.
    assert reads == [3, 1, 1, 1, 1]
    assert state.losses == expected.losses
    assert saved == [(5, 5), (7, 7)]
    assert [r.step for r in reports] == [1, 2, 3, 4, 5, 6, 7]
    assert [r.step for r in reports if r.validation] == [3, 6, 7]


def test_each_step_process_and_seed_draws_its_own_dropout(make_model, tokens):
    learner = Learner(make_model(), tokens, replace(RECIPE, steps=50))
    numbers = set()
    for seed, rank, step in product(range(3), range(3), range(50)):
        learner.recipe = replace(learner.recipe, seed=seed)
        learner.world = World(rank, 3)
        learner.begin(step)
        numbers.add(torch.initial_seed() % 2**32)
    # PyTorch's generator on the CPU takes 32 bits of a seed.
    assert len(numbers) == 3 * 3 * 50


def play_a_cpu(monkeypatch: pytest.MonkeyPatch, fast: str) -> list[str]:
    """Let steps in one precision be the faster ones; return those that are done."""
    done: list[str] = []

    def faster(step):
        for name in ("fp32", "bf16"):
            step(name)
            done.append(name)
        return fast

    monkeypatch.setattr(devices, "faster_precision", faster)
    return done


AUTO = replace(RECIPE, precision="auto")


def test_to_measure_changes_nothing(make_model, tokens, monkeypatch):
    done = play_a_cpu(monkeypatch, "bf16")
    model = make_model(dropout=0.25, num_experts=3).eval()
    model.norm.weight.grad = torch.ones(12)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    generator = torch.get_rng_state()
    assert training_precision(model, tokens, AUTO) == "bf16"
    assert done == ["fp32", "bf16"]
    assert torch.equal(torch.get_rng_state(), generator)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    grads = {name: p.grad for name, p in model.named_parameters()}
    assert torch.equal(grads.pop("norm.weight"), torch.ones(12))
    assert set(grads.values()) == {None}
    assert not model.training
    # Measured and then trained is as if it had been named.
    model, twin = make_model(dropout=0.25), make_model(dropout=0.25)
    state = train(model, tokens, AUTO)
    assert state.losses == train(twin, tokens, replace(AUTO, precision="bf16")).losses
    assert same_weights(model, twin)


def test_who_goes_on_computes_in_what_was_chosen(make_model, tokens, monkeypatch):
    play_a_cpu(monkeypatch, "bf16")
    reference, model = make_model(), make_model()
    expected = train(reference, tokens, AUTO)
    state = train(model, tokens, AUTO, stop=iter([False] * 6 + [True]).__next__)
    assert (state.step, state.precision) == (7, "bf16")
    # On a machine where the other is faster.
    done = play_a_cpu(monkeypatch, "fp32")
    assert train(model, tokens, AUTO, state=state).losses == expected.losses
    # What is named counts, whatever was chosen; several processes do not measure.
    for name in ("fp32", "bf16"):
        named = replace(AUTO, precision=name)
        assert training_precision(model, tokens, named, state=state) == name
    assert training_precision(model, tokens, AUTO, world=World(0, 2)) == "fp32"
    assert done == []
