"""Weights behind which a mistake cannot be seen are drawn anew, and no others."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking import check_attention
from tested_transformer.checking.weights import draw_anew

D_MODEL, HEADS = 20, 5

pytestmark = pytest.mark.usefixtures("as_a_caller")


class Zeroed(nn.Module):
    """As a GPT of today starts: nothing comes out of its last projection."""

    def __init__(self, *, causal: bool = True, scale: float | None = None) -> None:
        super().__init__()
        self.n_head, self.causal, self.scale = HEADS, causal, scale
        self.c_q, self.c_k, self.c_v, self.c_proj = (
            nn.Linear(D_MODEL, D_MODEL, bias=False) for _ in range(4)
        )
        nn.init.zeros_(self.c_proj.weight)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2)
            for each in (self.c_q, self.c_k, self.c_v)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, scale=self.scale
        )
        return self.c_proj(y.transpose(1, 2).flatten(2))


def test_a_projection_of_zeros_hides_nothing() -> None:
    layer = Zeroed()
    report = check_attention(layer)
    assert report.passed, str(report)
    assert report.drawn == ("c_proj.weight",)
    assert str(report).splitlines()[-1] == "Drawn again for the checks: c_proj.weight"
    assert not layer.c_proj.weight.any()
    open_to_all = Zeroed(causal=False)
    assert not check_attention(open_to_all).passed
    failed = check_attention(open_to_all, style="causal").failed
    assert {"leak", "output"} <= {*failed}
    assert check_attention(Zeroed(scale=1.0)).failed == ["output", "gradient"]


def test_in_a_function_too_and_what_fails_leaves_all_as_it_was() -> None:
    layer = Zeroed()
    before = copy.deepcopy(layer.state_dict())

    def stumbles(x: Tensor) -> Tensor:
        if x.shape[1] == 1:
            raise RuntimeError("too short")
        return layer(x)

    assert check_attention(lambda x: layer(x)).drawn == ("layer.c_proj.weight",)
    with pytest.raises(ValueError, match="too short"):
        check_attention(stumbles)
    after = layer.state_dict()
    assert all(torch.equal(after[name], each) for name, each in before.items())
    assert layer.c_proj.weight.dtype == torch.float32
    assert layer.training


def test_with_an_oracle_the_weights_are_those_that_it_knows() -> None:
    layer = Zeroed()
    report = check_attention(layer, oracle=copy.deepcopy(layer).double())
    assert (report.state, report.drawn) == ("not known", ())
    assert report.unknown == ("its output is the same whatever it is given",)


def of(*weights: Tensor) -> nn.ParameterList:
    return nn.ParameterList([nn.Parameter(each) for each in weights])


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


HIDING: dict[str, Callable[[], list[Tensor]]] = {
    "zeros": lambda: [torch.zeros(4, 3)],
    "ones": lambda: [torch.ones(4, 3)],
    "a row twice": lambda: [drawn(2, 3).repeat(2, 1)],
    "a column twice": lambda: [drawn(4, 3).repeat(1, 2)],
    "tiny": lambda: [1e-4 * drawn(4, 3)],
    "biases of 0": lambda: [torch.zeros(7)],
    "norms of 1": lambda: [torch.ones(7)],
    "a gate that is shut": lambda: [torch.zeros(())],
}


@pytest.mark.parametrize("name", HIDING)
def test_what_hides_is_drawn_anew(name: str) -> None:
    (before,) = HIDING[name]()
    module = of(before.clone())
    named = before.ndim > 1 and name != "tiny"
    assert draw_anew(module) == (("0",) if named else ())
    (after,) = module
    assert after.dtype == before.dtype
    assert after.isfinite().all()
    if after.numel() > 1:
        assert (after != before).all()
        assert len(after.unique()) == after.numel()
    else:
        assert after == 1


def test_of_two_that_are_equal_the_second_is_drawn_anew() -> None:
    one = drawn(4, 3)
    module = of(one.clone(), one.clone())
    assert draw_anew(module) == ("1",)
    assert torch.equal(module[0], one)
    assert not torch.equal(module[1], one)


def test_all_others_stay_as_they_are() -> None:
    weights = [drawn(4, 3), drawn(3, 4), drawn(2, 4, 3), drawn(7), torch.tensor(2.0)]
    module = of(*[each.clone() for each in weights])
    assert draw_anew(module) == ()
    assert all(map(torch.equal, module, weights))
