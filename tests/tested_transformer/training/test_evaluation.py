"""The loss of a whole text, token by token by hand, and a model that peeks."""

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.training import Recipe, evaluation, train
from tested_transformer.training.evaluation import (
    evaluate,
    honest_loss,
    next_token_loss,
    windows_that_fit,
)
from tested_transformer.training.loop import Learner


def test_the_loss_is_minus_the_log_of_a_probability():
    logits = torch.tensor([[[1 / 3, 1 / 3, 1 / 3], [0.5, 0.25, 0.25]]]).log()
    targets = torch.tensor([[2, 1]])
    expected = torch.tensor([3.0, 4.0]).log()
    torch.testing.assert_close(next_token_loss(logits, targets, "none"), expected)
    torch.testing.assert_close(next_token_loss(logits, targets), expected.mean())
    torch.testing.assert_close(next_token_loss(logits, targets, "sum"), expected.sum())
    # A target of -100 does not count, and a mean of none is nan.
    targets[0, 1] = -100
    torch.testing.assert_close(next_token_loss(logits, targets), expected[0])
    assert next_token_loss(logits, targets.fill_(-100)).isnan()
    assert next_token_loss(logits, targets, "sum") == 0.0


@pytest.mark.usefixtures("as_a_caller")
def test_every_token_is_predicted_once_from_its_window(make_model, tokens):
    model, seq_len = make_model(dropout=0.5), 5
    for count, batch_size in ((2, 1), (5, 3), (6, 64), (7, 1), (23, 3), (36, 64)):
        model.eval()
        losses = []
        with torch.no_grad():
            for at in range(1, count):
                # The window that predicts `at` starts at a multiple of its length.
                start = (at - 1) // seq_len * seq_len
                logits = model(tokens[None, start:at])[0, -1]
                losses.append(-logits.log_softmax(0)[tokens[at]].double())
        model.train()
        expected = torch.stack(losses).mean().item()
        loss = evaluate(model, tokens[:count], seq_len=seq_len, batch_size=batch_size)
        assert loss == pytest.approx(expected, rel=1e-6)
        assert model.training


def test_by_itself_it_takes_the_longest_window(make_model, tokens):
    model = make_model().eval()
    assert evaluate(model, tokens) == evaluate(model, tokens, seq_len=7)
    assert evaluate(model, tokens) != evaluate(model, tokens, seq_len=6)
    assert not model.training
    assert evaluate(model, tokens.to(torch.uint8)) == evaluate(model, tokens)
    module = nn.Sequential(nn.Embedding(11, 5), nn.Linear(5, 11))
    with pytest.raises(ValueError, match="seq_len must be given: Sequential"):
        evaluate(module, tokens)
    assert evaluate(module, tokens, seq_len=7) > 0.0


def test_a_causal_model_is_honest(make_model, tokens):
    model = make_model(dropout=0.5)
    honest = honest_loss(model, tokens)
    assert honest.gap < 1e-5
    assert honest.prefix == pytest.approx(honest.full, abs=1e-6)
    assert model.training
    assert honest_loss(model, tokens) == honest
    assert honest_loss(model, tokens, seed=1) != honest
    # Positions are drawn by the seed alone, too.
    few = [honest_loss(model, tokens, num_positions=1) for _ in "abcd"]
    assert len({*few}) == 1


def test_an_honest_model_that_trains_in_bfloat16_is_found_honest(make_model, tokens):
    # Wide enough that bfloat16 rounds a prefix and the whole window differently.
    model = make_model(d_model=48, max_seq_len=32)
    learner = Learner(model, tokens, Recipe(steps=200, precision="bf16"))
    for step in range(30):
        learner.begin(step)
        learner.backward(*learner.batch(step))
        learner.update()
    result = learner.validate(tokens, 30)
    assert result.gap < 1e-5
    # The loss itself is that of the training, rounding included.
    assert result.loss == evaluate(model, tokens, precision="bf16")
    assert result.loss != evaluate(model, tokens)


def test_the_honest_loss_by_hand(make_model, tokens):
    # One window fits, and all of its positions are drawn, or one between the ends,
    # which stands for the others.
    model, tokens = make_model().eval(), tokens[:6]
    honest = honest_loss(model, tokens, num_windows=3, num_positions=5)
    with torch.no_grad():
        first, *between, last = losses = [
            -model(tokens[None, :at])[0, -1].log_softmax(0)[tokens[at]].item()
            for at in range(1, 6)
        ]
    assert honest.prefix == pytest.approx(sum(losses) / 5, rel=1e-5)
    assert honest.full == pytest.approx(evaluate(model, tokens), rel=1e-5)
    estimates = {
        round(honest_loss(model, tokens, num_positions=1, seed=seed).full, 4)
        for seed in range(20)
    }
    assert estimates == {round((first + 3 * loss + last) / 5, 4) for loss in between}


class Peeking(nn.Module):
    """Knows the token after each position from the input itself, where there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(5.0))

    def forward(self, tokens: Tensor) -> Tensor:
        after = torch.cat([tokens[:, 1:], tokens[:, :1]], dim=1)
        return self.sharpness * nn.functional.one_hot(after, 11)


class Averaging(nn.Module):
    """Subtracts a mean over time, as a norm over the wrong axis does."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(11, 11))

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.table[tokens]
        return logits - logits.mean(dim=1, keepdim=True)


def test_a_model_that_peeks_is_caught(tokens):
    honest = honest_loss(Peeking(), tokens, seq_len=7, num_positions=5)
    assert honest.full < 1.5
    assert honest.prefix > 3.0
    assert honest.gap > 3.0
    assert evaluate(Peeking(), tokens, seq_len=7) < 1.5


def test_a_leak_that_the_means_hide_is_seen_in_the_gap(tokens):
    honest = honest_loss(Averaging(), tokens, seq_len=7)
    assert honest.gap > 5 * abs(honest.full - honest.prefix)
    assert honest.gap > 0.5


def test_as_many_windows_as_fit_are_read_side_by_side():
    # 65 536 * 16 * 64 logits are a quarter of a gibibyte of float32.
    size = {"vocab_size": 65_536, "seq_len": 16}
    assert windows_that_fit(**size, at_most=100) == 64
    assert windows_that_fit(**size, at_most=7) == 7
    assert windows_that_fit(vocab_size=65_537, seq_len=16, at_most=100) == 63
    assert windows_that_fit(vocab_size=2**30, seq_len=16, at_most=100) == 1


def test_training_reads_no_more_windows_than_fit(make_model, tokens, monkeypatch):
    model, rows = make_model(), []
    model.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0].shape[0]))
    # Room for the logits of three windows.
    vocab_size, seq_len = model.config.vocab_size, model.config.max_seq_len
    monkeypatch.setattr(evaluation, "_LOGITS", 3 * vocab_size * seq_len)
    Learner(model, tokens, Recipe(steps=200, precision="fp32")).validate(tokens, 0)
    assert max(rows) == 3


def test_the_mode_comes_back_after_an_error_too(make_model, tokens):
    model = make_model()
    model.blocks[0].eval()
    with pytest.raises(ValueError, match="more than max_seq_len=7"):
        evaluate(model, tokens, seq_len=8)
    honest_loss(model, tokens)
    assert model.training
    assert not any(module.training for module in model.blocks[0].modules())


@pytest.mark.usefixtures("as_a_caller")
def test_what_cannot_be_measured_is_named(make_model, tokens):
    model = make_model()
    names = {
        evaluate: ("seq_len", "batch_size"),
        honest_loss: ("seq_len", "num_windows", "num_positions"),
    }
    for measure in names:
        message = r"^1 tokens are too few: at least 2 are needed$"
        with pytest.raises(ValueError, match=message):
            measure(model, tokens[:1])
        for name in names[measure]:
            with pytest.raises(ValueError, match=f"^{name}=0 must be positive$"):
                measure(model, tokens, **{name: 0})
    logits, targets = torch.randn(2, 3, 9), torch.randint(9, (2, 3))
    message = r"^targets must be \(2, 3\); it is \(3, 2\)$"
    with pytest.raises(ValueError, match=message):
        next_token_loss(logits, targets.T)


def test_a_run_has_the_shapes_that_it_is_said_to_have(make_model, tokens):
    model = make_model(num_experts=3)
    recipe = Recipe(
        steps=2, batch_size=6, seq_len=5, warmup=1, optimizer="muon", precision="fp32"
    )
    state = train(model, tokens.to(torch.uint8), recipe, validation=tokens[:20])
    assert state.step == 2
