"""The GPT in plain Python, held against PyTorch's numbers and against paper."""

import ast
import math
import random
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tested_transformer.gpt import GPT, GPTConfig
from transformer_book import microgpt
from transformer_book.microgpt import (
    Alphabet,
    MicroGPT,
    Scalar,
    cross_entropy,
    dot,
    softmax,
    train,
    write,
)

# Thousands of small calls: checking each of them takes longer than all else.
pytestmark = pytest.mark.usefixtures("as_a_caller")

# Pairwise different: heads, width of a head, tokens, context, vocabulary, width.
H, D_K, T, S, V, D = 3, 2, 5, 7, 11, 6
TOKENS = [1, 5, 3, 0, 9]


def small(*, num_layers: int = 1, num_heads: int = H, seed: int = 0) -> MicroGPT:
    return MicroGPT(
        vocab_size=V,
        max_seq_len=S,
        d_model=D,
        num_heads=num_heads,
        num_layers=num_layers,
        seed=seed,
    )


def pytorchs(ours: MicroGPT) -> GPT:
    """Give PyTorch's GPT the same weights, in double precision."""
    config = GPTConfig(
        vocab_size=V,
        max_seq_len=ours.max_seq_len,
        d_model=D,
        num_heads=ours.num_heads,
        num_layers=ours.num_layers,
        norm="rms",
        activation="relu",
        bias=False,
        tie_head=False,
    )
    theirs = GPT(config).double()
    weights = {
        f"{name}.weight": tensor(matrix) for name, matrix in ours.weights.items()
    }
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert unexpected == []
    # All that ours does without are the gains of the norms, which are 1.
    for name in missing:
        assert name.endswith("norm.weight")
        assert theirs.get_parameter(name).eq(1).all()
    return theirs


def tensor(matrix: list[list[Scalar]], attribute: str = "value") -> Tensor:
    rows = [[getattr(number, attribute) for number in row] for row in matrix]
    return torch.tensor(rows, dtype=torch.float64)


def values(numbers: list[Scalar]) -> list[float]:
    return [number.value for number in numbers]


def test_every_operation_has_the_value_and_the_slopes_of_paper():
    for operation, value, slopes in (
        (lambda x, y: x + y, 5.0, (1.0, 1.0)),
        (lambda x, y: x + 7, 9.0, (1.0, 0.0)),
        (lambda x, y: 7 + x, 9.0, (1.0, 0.0)),
        (lambda x, y: sum([x, y]), 5.0, (1.0, 1.0)),
        (lambda x, y: x * y, 6.0, (3.0, 2.0)),
        (lambda x, y: y * 7, 21.0, (0.0, 7.0)),
        (lambda x, y: x**3, 8.0, (12.0, 0.0)),
        (lambda x, y: y**-1, 1 / 3, (0.0, -1 / 9)),
        (lambda x, y: (x + -2).exp(), 1.0, (1.0, 0.0)),
        (lambda x, y: y.log(), math.log(3), (0.0, 1 / 3)),
        (lambda x, y: x.relu(), 2.0, (1.0, 0.0)),
        (lambda x, y: (x * -1).relu(), 0.0, (0.0, 0.0)),
        (lambda x, y: dot([x, y], [y, y]), 15.0, (3.0, 8.0)),
    ):
        x, y = Scalar(2.0), Scalar(3.0)
        result = operation(x, y)
        result.backward()
        assert result.value == pytest.approx(value)
        assert (x.grad, y.grad) == pytest.approx(slopes)


def test_a_number_waits_for_all_it_went_into():
    """z = x^2 y + x^2 by two ways of different length, so that order matters."""
    x, y = Scalar(3.0), Scalar(5.0)
    square = x * x
    z = square * y + square
    z.backward()
    assert square.grad == 6.0  # y + 1
    assert (x.grad, y.grad) == (36.0, 9.0)  # 2 x (y + 1), x^2
    (x * 5).backward()  # the gradient of another result is added
    assert x.grad == 41.0


@pytest.mark.parametrize(("num_heads", "num_layers"), [(1, 1), (H, 2), (D, 1)])
def test_it_is_the_gpt_of_pytorch_with_the_same_weights(
    num_heads: int, num_layers: int
):
    ours = small(num_layers=num_layers, num_heads=num_heads)
    # Far from zero, so that weights are far from even and ReLU is on and off.
    for number in ours.parameters():
        number.value *= 10
    theirs = pytorchs(ours)
    past = ours.new_past()
    assert (len(past), len(past[0])) == (num_layers, num_heads)
    logits = [ours.read(token, past) for token in TOKENS]
    their_logits, maps = theirs(torch.tensor([TOKENS]), return_weights=True)
    close = {"rtol": 0, "atol": 1e-9}
    torch.testing.assert_close(tensor(logits), their_logits[0], **close)
    for heads, weights in zip(past, maps, strict=True):
        for head, table in zip(heads, weights[0], strict=True):
            assert [len(row) for row in head.weights] == [1, 2, 3, 4, 5]
            for row, expected in zip(head.weights, table, strict=True):
                padded = row + [0.0] * (T - len(row))
                torch.testing.assert_close(torch.tensor(padded).double(), expected)
            assert (len(head.keys), len(head.keys[0])) == (T, D // num_heads)

    targets = torch.tensor([*TOKENS[1:], 2])
    loss = ours.loss([*TOKENS, 2])
    loss.backward()
    right = F.cross_entropy(their_logits[0], targets)
    right.backward()
    assert loss.value == pytest.approx(right.item(), rel=0, abs=1e-9)
    for name, matrix in ours.weights.items():
        gradient = theirs.get_parameter(f"{name}.weight").grad
        assert gradient.any(), f"{name} has no gradient to compare"
        torch.testing.assert_close(tensor(matrix, "grad"), gradient, **close)


def test_large_scores_keep_their_differences():
    scores = [Scalar(score) for score in (4000.0, 3999.0, -8000.0)]
    reference = torch.tensor(values(scores), dtype=torch.float64)
    got = torch.tensor(values(softmax(scores)), dtype=torch.float64)
    torch.testing.assert_close(got, reference.softmax(dim=0))
    loss = cross_entropy(scores, 2)
    loss.backward()
    assert loss.value == F.cross_entropy(reference, torch.tensor(2)).item()
    assert scores[2].grad == pytest.approx(-1.0)
    assert scores[0].grad == pytest.approx(got[0].item())


def test_training_takes_the_steps_of_pytorch():
    """Batches, gradients, optimizer and schedule, all in one."""
    ours = small()
    theirs = pytorchs(ours)
    sequences = [[0, 1, 2, 0], [0, 3, 4, 5, 6, 0], [0, 7, 0]]
    losses = train(ours, sequences, steps=4, batch_size=2, learning_rate=0.05, seed=3)
    assert len(losses) == 4
    norms = [name for name, _ in theirs.named_parameters() if "norm" in name]
    for name in norms:
        theirs.get_parameter(name).requires_grad_(False)
    right = torch.optim.Adam(theirs.parameters(), betas=(0.9, 0.95))
    draw = random.Random(3)
    for step in range(4):
        batch = draw.choices(sequences, k=2)
        right.param_groups[0]["lr"] = 0.05 * (4 - step) / 4
        right.zero_grad()
        loss = sum(
            F.cross_entropy(theirs(torch.tensor([s[:-1]]))[0], torch.tensor(s[1:]))
            for s in batch
        )
        (loss / 2).backward()
        assert losses[step] == pytest.approx(loss.item() / 2, rel=1e-9)
        right.step()
    for name, matrix in ours.weights.items():
        expected = theirs.get_parameter(f"{name}.weight").detach()
        torch.testing.assert_close(tensor(matrix), expected, rtol=0, atol=1e-9)


def test_it_learns_a_name_by_heart_and_writes_it():
    names = ["nora"]
    alphabet = Alphabet(names)
    model = MicroGPT(vocab_size=alphabet.vocab_size, d_model=4, num_heads=2, seed=1)
    sequences = [alphabet.encode(name) for name in names]
    losses = train(model, sequences, steps=60, batch_size=1, learning_rate=0.1)
    assert losses[0] == pytest.approx(math.log(5), abs=0.1)
    assert losses[-1] < 0.05
    draw = random.Random(0)
    written = [alphabet.decode(write(model, draw)) for _ in range(5)]
    assert written.count("nora") >= 4


def test_the_same_seed_gives_the_same_weights_and_losses():
    sequences = [[0, 1, 0], [0, 2, 3, 0]]
    model, twin = small(seed=5), small(seed=5)
    assert values(model.parameters()) == values(twin.parameters())
    assert values(model.parameters()) != values(small(seed=6).parameters())
    kept = values(model.parameters())
    first = train(model, sequences, steps=2, seed=7)
    assert first == train(twin, sequences, steps=2, seed=7)
    assert values(model.parameters()) == values(twin.parameters()) != kept


def certain_of(token: int) -> MicroGPT:
    """Make a model that always writes one and the same token."""
    model = small()
    for number in model.parameters():
        number.value = 0.0
    for position in model.weights["position_embedding"]:
        position[0].value = 1.0
    model.weights["head"][token][0].value = 1000.0
    return model


def test_writing_ends_at_a_zero_or_when_the_model_is_full():
    draw = random.Random(0)
    assert write(certain_of(0), draw) == [0, 0]
    assert write(certain_of(4), draw) == [0] + [4] * S


def test_tokens_are_written_as_often_as_the_model_says():
    """One token has a logit of ln 10 and ten others have 0, so it has half of all."""
    model = certain_of(4)
    # The norm makes of (1, 0, 0, ...) a vector of that length.
    model.weights["head"][4][0].value = math.log(V - 1) / math.sqrt(D)
    draw = random.Random(0)
    firsts = [write(model, draw)[1] for _ in range(200)]
    assert 80 <= firsts.count(4) <= 120
    assert {*firsts} == {*range(V)}


def test_letters_are_tokens_and_tokens_are_letters():
    alphabet = Alphabet(["mia", "ada"])
    assert (alphabet.letters, alphabet.vocab_size) == ("adim", 5)
    assert alphabet.encode("amid") == [0, 1, 4, 3, 2, 0]
    assert alphabet.decode([0, 1, 4, 3, 2, 0]) == "amid"


def test_what_does_not_fit_is_named():
    empty = "must have one or more names, none empty"
    for action, message in (
        (
            lambda: MicroGPT(vocab_size=V, d_model=16, num_heads=3),
            "d_model=16 must be divisible by num_heads=3",
        ),
        (
            lambda: small().loss([1] * (S + 2)),
            "max_seq_len=7 tokens are read: no more room",
        ),
        (
            lambda: Alphabet(["mia", "ada"]).encode("idée"),
            "'idée' has letters that are not in 'adim'",
        ),
        (lambda: Alphabet([]), f"names=[] {empty}"),
        (lambda: Alphabet(["mia", ""]), f"names=['mia', ''] {empty}"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            action()


def test_it_is_about_two_hundred_lines():
    """Lines of code: without docstrings, comments, imports, and lines left empty."""
    source = Path(microgpt.__file__).read_text("utf-8")
    code = {
        number
        for number, line in enumerate(source.splitlines(), start=1)
        if line.strip() and not line.strip().startswith("#")
    }
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import() | ast.ImportFrom():
                aside = node
            case ast.Expr(value=ast.Constant(value=str())):
                aside = node
            case ast.Assign(targets=[ast.Name("__all__")]):
                aside = node
            case _:
                continue
        code -= {*range(aside.lineno, aside.end_lineno + 1)}
    assert 180 <= len(code) <= 220
