"""Which optimizer changes what, rates, the norm of a gradient, and what is kept."""

import copy
import re

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.attentions import Differential
from tested_transformer.gpt import GPT
from tested_transformer.training.optimizers import (
    clip_gradients,
    make_optimizers,
    optimizer_tensors,
    restore_optimizers,
    set_rates,
)
from tested_transformer.training.recipe import Recipe


def names_of(model: nn.Module, parameters: list[nn.Parameter]) -> list[str]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    return sorted(names[parameter] for parameter in parameters)


PARTS = ("attention.k_proj", "attention.o_proj", "attention.q_proj", "attention.v_proj")
MATRICES = [
    f"blocks.{layer}.{part}.weight"
    for layer in (0, 1)
    for part in (*PARTS, "feed_forward.down", "feed_forward.up")
]
TABLES = ["head.weight", "position_embedding.weight", "token_embedding.weight"]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_matrices_decay_and_nothing_else(optimizer, make_model):
    model = make_model(tie_head=False)
    rates = {"lr": 0.5, "head_lr": 0.125, "vector_lr": 0.0625, "muon_lr": 0.75}
    inner = {"betas": (0.75, 0.875), "eps": 0.5, "muon_momentum": 0.5, "muon_rounds": 3}
    recipe = Recipe(optimizer=optimizer, weight_decay=0.25, **rates, **inner)
    adamw, *muon = make_optimizers(model, recipe)
    assert len(muon) == (optimizer == "muon")
    for group in adamw.param_groups:
        assert (group["betas"], group["eps"]) == ((0.75, 0.875), 0.5)
    for group in [group for m in muon for group in m.param_groups]:
        assert (group["momentum"], group["rounds"]) == (0.5, 3)
    *decaying, others = adamw.param_groups
    decaying += [group for m in muon for group in m.param_groups]
    assert {group["weight_decay"] for group in decaying} == {0.25}
    assert others["weight_decay"] == 0.0
    rest = {name for name, _ in model.named_parameters()} - {*MATRICES, *TABLES}
    assert all(name.endswith("bias") or "norm" in name for name in rest)
    rate_of = {
        tuple(names_of(model, group["params"])): group["lr"]
        for group in [*decaying, others]
    }
    assert rate_of == {
        tuple(MATRICES): 0.75 if muon else 0.5,
        ("head.weight",): 0.125,
        ("position_embedding.weight", "token_embedding.weight"): 0.5,
        tuple(sorted(rest)): 0.0625,
    }


def test_a_smear_and_the_shares_of_differential_attention_are_no_matrices(make_model):
    model = make_model(attention=Differential(), num_heads=2, smear=True)
    for optimizer in ("adamw", "muon"):
        adamw, *_ = make_optimizers(model, Recipe(optimizer=optimizer))
        vectors = names_of(model, adamw.param_groups[-1]["params"])
        shares = [name for name, _ in model.named_parameters() if "share_" in name]
        assert len(shares) == 4
        assert {"smear", *shares} <= {*vectors}
    # Without biases there is no empty group.
    (adamw,) = make_optimizers(nn.Linear(3, 5, bias=False), Recipe())
    assert [len(group["params"]) for group in adamw.param_groups] == [1]


def test_a_compiled_model_is_refused(make_model):
    model, in_part = make_model(), make_model()
    in_part.norm = torch.compile(in_part.norm, backend="eager")
    for compiled, name in (
        (torch.compile(model, backend="eager"), "_orig_mod.token_embedding.weight"),
        (in_part, "norm._orig_mod.weight"),
    ):
        message = f"model comes from torch.compile, which calls a parameter {name}: "
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            make_optimizers(compiled, Recipe())
    # Compiled in place, a model keeps its names.
    model.compile(backend="eager")
    assert make_optimizers(model, Recipe())


def test_rates_follow_the_schedule(make_model):
    rates = {"lr": 0.5, "muon_lr": 0.25, "embedding_lr": 2.0, "final_lr": 0.0}
    recipe = Recipe(optimizer="muon", steps=4, warmup=1, schedule="linear", **rates)
    optimizers = make_optimizers(make_model(), recipe)
    for step, factor in enumerate([0.5, 1.0, 2 / 3, 1 / 3]):
        assert set_rates(optimizers, recipe, step) == pytest.approx(factor)
        rates = [g["lr"] for optimizer in optimizers for g in optimizer.param_groups]
        assert rates == pytest.approx([2.0 * factor, 0.5 * factor, 0.25 * factor])


def test_a_long_gradient_is_shortened_and_a_short_one_is_not():
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1, 3))]
    idle = nn.Parameter(torch.zeros(5))

    def clipped(longest):
        parameters[0].grad = torch.tensor([3.0, 0.0])
        parameters[1].grad = torch.tensor([[0.0, -4.0, 12.0]])
        length = clip_gradients([*parameters, idle], longest)
        return length.item(), torch.cat([p.grad.flatten() for p in parameters]).tolist()

    unclipped = [3.0, 0.0, 0.0, -4.0, 12.0]
    assert clipped(0.0) == (13.0, unclipped)
    assert clipped(26.0) == (13.0, unclipped)
    length, shorter = clipped(6.5)
    assert length == 13.0
    assert shorter == pytest.approx([1.5, 0.0, 0.0, -2.0, 6.0], rel=1e-5)
    _, short = clipped(0.13)
    assert short == pytest.approx([0.03, 0.0, 0.0, -0.04, 0.12], rel=1e-5)
    assert idle.grad is None


def steps_of(
    model: GPT, optimizers: list[torch.optim.Optimizer], seeds: list[int]
) -> None:
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_new_optimizers_go_on_where_others_were(optimizer, make_model):
    recipe = Recipe(optimizer=optimizer)
    model = make_model()
    optimizers = make_optimizers(model, recipe)
    steps_of(model, optimizers, [1, 2])
    kept = copy.deepcopy(optimizer_tensors(model, optimizers))
    twin = copy.deepcopy(model)
    new_optimizers = make_optimizers(twin, recipe)
    tensors = copy.deepcopy(kept)
    restore_optimizers(twin, new_optimizers, tensors)
    for one, its in ((model, optimizers), (twin, new_optimizers)):
        steps_of(one, its, [3, 4])
    exact = {"rtol": 0, "atol": 0}
    torch.testing.assert_close(twin.state_dict(), model.state_dict(), **exact)
    # What was given was copied, not taken.
    torch.testing.assert_close(tensors, kept, **exact)


@pytest.fixture
def stepped(make_model):
    """Return a model, and what AdamW remembers of it after a step."""
    model = make_model()
    optimizers = make_optimizers(model, Recipe())
    steps_of(model, optimizers, [1])
    return model, optimizer_tensors(model, optimizers)


def restored(model: GPT, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    optimizers = make_optimizers(model, Recipe())
    restore_optimizers(model, optimizers, tensors)
    return optimizer_tensors(model, optimizers)


def check_refused(model: GPT, tensors: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        restored(model, tensors)


OTHER = "the training state belongs to another model or optimizer: {} entries differ, "


def test_the_memory_of_another_optimizer_or_shape_is_refused(stepped):
    model, tensors = stepped
    muon = make_optimizers(model, Recipe(optimizer="muon"))
    steps_of(model, muon, [1])
    # Twelve matrices with three entries each on one side, one on the other.
    message = OTHER.format(48) + "such as blocks.0.attention.k_proj.weight/exp_avg"
    check_refused(model, optimizer_tensors(model, muon), message)
    for name, tensor, message in (
        ("norm.weight/exp_avg", torch.zeros(3), "is (3,), not (12,)"),
        ("norm.weight/step", torch.zeros(1), "is (1,), not ()"),
    ):
        message = f"{name} of the training state {message}"
        check_refused(model, tensors | {name: tensor}, message)


def test_a_frozen_parameter_may_have_a_memory_or_none(stepped):
    model, tensors = stepped
    rest = {name: x for name, x in tensors.items() if not name.startswith("norm.bias/")}
    check_refused(model, rest, OTHER.format(3) + "such as norm.bias/exp_avg")
    model.norm.bias.requires_grad_(False)
    # It was trained and then frozen, or frozen from the beginning.
    assert restored(model, tensors).keys() == tensors.keys()
    assert restored(model, rest).keys() == rest.keys()
    # Half a memory would fail in the next step.
    half = rest | {"norm.bias/exp_avg": tensors["norm.bias/exp_avg"]}
    check_refused(model, half, OTHER.format(2) + "such as norm.bias/exp_avg_sq")
