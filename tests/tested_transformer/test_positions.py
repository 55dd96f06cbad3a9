"""Positions against sines worked out one by one, and against complex numbers."""

import math

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor

from tested_transformer.positions import (
    PAIRINGS,
    alibi_bias,
    alibi_slopes,
    rotary_table,
    rotate,
    sinusoidal_positions,
    to_halves,
    to_neighbors,
)

# Pairwise different: batch, heads, positions, head width.
B, H, T, D_K = 2, 3, 5, 8


def test_sinusoids_are_those_of_the_paper_however_far_away():
    d_model = 6
    for base in (10_000.0, 100.0):
        table = sinusoidal_positions(100_001, d_model, base=base)
        assert table.dtype == torch.float32
        for t in (0, 1, 77, 100_000):
            angles = (t / base ** (2 * i / d_model) for i in range(d_model // 2))
            expected = [f(angle) for angle in angles for f in (math.sin, math.cos)]
            assert table[t].tolist() == pytest.approx(expected, abs=1e-6)


def turned(x: Tensor, positions: Tensor, pairing: str) -> Tensor:
    """Turn x as complex numbers, in double precision: the second way."""
    rates = 10_000.0 ** (-torch.arange(D_K // 2, dtype=torch.float64) / (D_K // 2))
    turns = torch.polar(torch.ones_like(rates), positions[..., None].double() * rates)
    axis = -1 if pairing == "neighbors" else -2
    shape = (D_K // 2, 2) if pairing == "neighbors" else (2, D_K // 2)
    real, imaginary = x.double().unflatten(-1, shape).unbind(axis)
    numbers = torch.complex(real, imaginary) * turns
    return torch.stack([numbers.real, numbers.imag], dim=axis).flatten(-2).float()


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rotating_multiplies_complex_numbers(pairing: str):
    """Each sequence may stand elsewhere."""
    positions = torch.tensor([[4, 0, 9, 2, 77], [0, 1, 2, 3, 4]])[:, None]
    x = torch.randn(B, H, T, D_K, requires_grad=True)
    output = rotate(x, rotary_table(positions, D_K), pairing=pairing)
    assert_alike(output, turned(x, positions, pairing), [x])


def test_the_other_order_by_hand():
    # Two heads of four features; a bias, and a weight whose rows are its own numbers.
    bias = torch.arange(8.0)
    assert to_halves(bias, 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert to_neighbors(bias, 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert to_halves(bias, 1).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert to_neighbors(bias, 1).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    weight = bias[:, None].expand(8, 3)
    assert torch.equal(to_halves(weight, 1), to_halves(bias, 1)[:, None].expand(8, 3))


def test_reordered_projections_give_the_same_scores_and_gradients():
    width = H * D_K
    x = torch.randn(B, T, width, requires_grad=True)
    q_weight, k_weight = torch.randn(2, width, width)
    table = rotary_table(torch.tensor([0, 3, 4, 11, 12]), D_K)

    def scores(q_weight: Tensor, k_weight: Tensor, pairing: str) -> Tensor:
        q, k = (
            rotate(
                (x @ weight.T).unflatten(-1, (H, D_K)).transpose(1, 2),
                table,
                pairing=pairing,
            )
            for weight in (q_weight, k_weight)
        )
        return q @ k.mT / width

    expected = scores(q_weight, k_weight, "neighbors")
    output = scores(to_halves(q_weight, H), to_halves(k_weight, H), "halves")
    assert_alike(output, expected, [x], close=1e-4)
    assert not torch.allclose(scores(q_weight, k_weight, "halves"), expected, atol=0.1)


def test_half_precision_stays_half():
    x = torch.randn(H, T, D_K)
    table = rotary_table(torch.arange(T), D_K)
    assert table.dtype == torch.float32
    output = rotate(x.bfloat16(), table)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), rotate(x, table), rtol=2e-2, atol=2e-2)


def test_slopes_of_the_paper():
    # Section 3: they start at 2 ** (-8 / H), and that is the ratio, too.
    for num_heads in (2, 8, 16):
        ratio = 2 ** (-8 / num_heads)
        expected = torch.tensor([ratio**h for h in range(1, num_heads + 1)])
        torch.testing.assert_close(alibi_slopes(num_heads), expected)


def test_slopes_between_two_that_are_given():
    torch.testing.assert_close(
        alibi_slopes(4, steepest=1.0, flattest=1 / 8),
        torch.tensor([1, 1 / 2, 1 / 4, 1 / 8]),
    )
    assert alibi_slopes(1).tolist() == [1 / 256]


def test_bias_by_hand():
    slopes = torch.tensor([1.0, 0.5])
    bias = alibi_bias(slopes, 2, 3)
    assert bias.shape == (1, 2, 2, 3)
    # The last query is at the last key: queries stand at positions 1 and 2.
    assert bias[0, 0].tolist() == [[-1.0, 0.0, 1.0], [-2.0, -1.0, 0.0]]
    assert torch.equal(bias[0, 1], bias[0, 0] / 2)
    assert torch.equal(alibi_bias(slopes, 5)[:, :, -2:], alibi_bias(slopes, 2, 5))


def test_tables_are_made_where_and_as_they_are_wanted():
    assert sinusoidal_positions(T, D_K, device="meta").device.type == "meta"
    assert alibi_slopes(H, device="meta").device.type == "meta"
    positions = torch.arange(T, device="meta")
    assert rotary_table(positions, D_K).device.type == "meta"
    assert alibi_bias(alibi_slopes(H).to("meta"), T).device.type == "meta"
    double = sinusoidal_positions(T, D_K, dtype=torch.float64)
    assert double.dtype == torch.float64
    assert double[3, 0].item() == math.sin(3)


def test_a_table_cut_to_a_length_is_in_one_piece_in_memory():
    # What torch.export asks of a length that it leaves open.
    table = rotary_table(torch.arange(9), D_K)[:, :T]
    assert table.shape == (2, T, D_K // 2)
    assert table.movedim(0, -2).is_contiguous()


def test_a_table_may_have_rates_and_a_factor_of_its_own():
    rates = [10_000.0 ** (-2 * pair / D_K) for pair in range(D_K // 2)]
    table = rotary_table(torch.arange(T), D_K, rates=rates, attention_factor=3.0)
    torch.testing.assert_close(table, 3 * rotary_table(torch.arange(T), D_K))


@pytest.mark.usefixtures("as_a_caller")
def test_what_does_not_fit_is_named():
    x, positions, weight = torch.ones(T, D_K), torch.arange(3), torch.ones(6, 5)
    for call, message in (
        (lambda: sinusoidal_positions(3, 7), "d_model=7 must be positive and even$"),
        (lambda: rotary_table(positions, 0), "head_dim=0 must be positive and"),
        (lambda: rotary_table(positions, 4, rates=[1.0]), "1 rates must be 2: head_di"),
        (
            lambda: rotate(x, torch.ones(2, T, D_K), pairing="thirds"),
            "pairing='thirds' must be one of halves, neighbors$",
        ),
        (lambda: to_halves(weight, 2), "6 rows must be num_heads=2 heads of"),
        (lambda: to_neighbors(weight, 0), "6 rows must be num_heads=0 heads of"),
        (lambda: alibi_slopes(0), "num_heads=0 must be positive$"),
        (lambda: alibi_slopes(3, steepest=0.0), "steepest=0.0 must be positive$"),
        (lambda: alibi_slopes(3, flattest=-1.0), "flattest=-1.0 must be positive$"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            call()
