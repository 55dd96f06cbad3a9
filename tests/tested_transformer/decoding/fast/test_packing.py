"""Weights that are packed once for a model, and again as soon as anything changes."""

import copy
import gc
import io
import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from tested_transformer.decoding import generating
from tested_transformer.decoding.fast import packing
from tested_transformer.decoding.fast.decoder import Decoder
from tested_transformer.decoding.fast.packing import PackingError, packed
from tested_transformer.gpt import GPT, GPTConfig

# Pairwise different. Some matrices are large enough for sums to stand for their bits.
V, LONGEST, H, D_K, L = 131, 19, 3, 64, 2
CONFIG = GPTConfig(
    vocab_size=V,
    max_seq_len=LONGEST,
    d_model=H * D_K,
    num_heads=H,
    num_layers=L,
    d_ff=160,
    tie_head=False,
)
PROMPTS = [[1, 2, 3], [4, 5]]
UP = "blocks.1.feed_forward.up"


def make(**changes) -> GPT:
    torch.manual_seed(0)
    model = GPT(replace(CONFIG, **changes))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def logits(model: GPT, *, use_cache: bool = True) -> Tensor:
    """Return what ``generate`` chooses tokens by."""
    reader = generating._reader(model, use_cache)
    steps = (reader.step(torch.tensor([6, 7])) for _ in range(2))
    return torch.stack([reader.read(PROMPTS), *steps])


def test_a_model_that_stays_as_it_is_is_packed_once(monkeypatch: pytest.MonkeyPatch):
    made: list[GPT] = []
    real = packing.pack
    monkeypatch.setattr(packing, "pack", lambda m: made.append(m) or real(m))
    model, other = make(), make()
    for _ in range(3):
        logits(model)
        model(torch.tensor(PROMPTS[:1]))
        model.zero_grad()
        model.train()
    assert made == [model]
    logits(other)
    logits(model)
    assert made == [model, other]
    model.blocks[0].attention.q_proj.weight.data[0, 0] += 1
    logits(model)
    assert made == [model, other, model]


def by_data(model: GPT) -> None:
    model.get_parameter(f"{UP}.weight").data.mul_(1.5)


def by_new_data(model: GPT) -> None:
    weight = model.get_parameter(f"{UP}.weight")
    weight.data = weight.data * 1.5


def by_numpy(model: GPT) -> None:
    model.get_parameter(f"{UP}.weight").detach().numpy()[:] *= 1.5


def by_swapped_rows(model: GPT) -> None:
    weight = model.get_parameter(f"{UP}.weight").data
    weight[[3, 7]] = weight[[7, 3]]


def by_swapped_columns(model: GPT) -> None:
    weight = model.get_parameter(f"{UP}.weight").data
    weight[:, [3, 9]] = weight[:, [9, 3]]  # both are odd: halves of 64 bits


def by_flipped_signs(model: GPT) -> None:
    model.get_parameter(f"{UP}.weight").data[:, ::2].neg_()


def by_a_bias(model: GPT) -> None:
    model.get_parameter(f"{UP}.bias").data[0] += 1


def by_a_norm(model: GPT) -> None:
    model.norm.weight.data[0] *= 2


def by_an_epsilon(model: GPT) -> None:
    model.norm.eps = 0.5


def by_a_state(model: GPT) -> None:
    state = make().state_dict()
    model.load_state_dict({name: 1.5 * tensor for name, tensor in state.items()})


def by_an_assigned_state(model: GPT) -> None:
    state = make().state_dict()
    state = {name: 1.5 * tensor for name, tensor in state.items()}
    model.load_state_dict(state, assign=True)


def by_an_optimizer(model: GPT) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.tensor([[1, 2]])).square().sum().backward()
    optimizer.step()


def by_a_new_parameter(model: GPT) -> None:
    up = model.get_submodule(UP)
    up.weight = nn.Parameter(up.weight.detach() * 1.5)


def by_a_new_module(model: GPT) -> None:
    inner = model.blocks[1].feed_forward
    inner.up = nn.Linear(inner.up.in_features, inner.up.out_features)


def by_drawing_anew(model: GPT) -> None:
    model.reset_parameters()


def by_another_type(model: GPT) -> None:
    model.bfloat16().float()


def by_pruning(model: GPT) -> None:
    prune.l1_unstructured(model.get_submodule(UP), "weight", amount=0.5)


def by_pruning_for_good(model: GPT) -> None:
    by_pruning(model)
    prune.remove(model.get_submodule(UP), "weight")


def by_a_parametrization(model: GPT) -> None:
    parametrizations.weight_norm(model.get_submodule(UP))
    model.get_submodule(UP).parametrizations.weight.original0.data.mul_(2)


def by_a_hook(model: GPT) -> None:
    model.get_submodule(UP).register_forward_hook(lambda _, __, out: out * 1.5)


def by_a_hook_before(model: GPT) -> None:
    model.norm.register_forward_pre_hook(lambda _, given: (given[0] * 0 + 1,))


def by_a_forward_of_its_own(model: GPT) -> None:
    up = model.get_submodule(UP)
    up.forward = lambda x: 1.5 * nn.Linear.forward(up, x)


def by_another_activation(model: GPT) -> None:
    model.blocks[1].feed_forward.activation = torch.relu


def by_normed_queries(model: GPT) -> None:
    for block in model.blocks:
        block.attention.qk_norm = True


def by_slopes(model: GPT) -> None:
    model.slopes.mul_(30)


CHANGES: list[Callable[[GPT], None]] = [
    *(by_data, by_new_data, by_numpy, by_swapped_rows, by_swapped_columns),
    *(by_flipped_signs, by_a_bias, by_a_norm, by_an_epsilon, by_a_state),
    *(by_an_assigned_state, by_an_optimizer, by_a_new_parameter, by_a_new_module),
    *(by_drawing_anew, by_another_type, by_pruning, by_pruning_for_good),
    *(by_a_parametrization, by_a_hook, by_a_hook_before, by_a_forward_of_its_own),
    *(by_another_activation, by_normed_queries),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_seen_whichever_way_it_came(change: Callable[[GPT], None]):
    model = make()
    before = logits(model)
    change(model)
    wanted = logits(model, use_cache=False)
    got = logits(model)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    assert (before - wanted).abs().amax() > 1e-3


def test_slopes_are_seen_too():
    model = make(positions="alibi")
    before = logits(model)
    by_slopes(model)
    after = logits(model)
    torch.testing.assert_close(after, logits(model, use_cache=False))
    assert (after - before).abs().amax() > 1e-3


def test_a_hook_on_all_modules_is_seen():
    model = make()
    before = logits(model)
    hook = nn.modules.module.register_module_forward_hook(
        lambda module, _, out: 1.5 * out if isinstance(module, nn.LayerNorm) else out
    )
    try:
        after = logits(model)
        torch.testing.assert_close(after, logits(model, use_cache=False))
    finally:
        hook.remove()
    assert (after - before).abs().amax() > 1e-3
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_bit_is_enough(dtype: torch.dtype):
    model = make(num_layers=1).to(dtype)
    weights = packed(model)
    assert packed(model) is weights
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    for turn, parameter in enumerate(model.parameters()):
        bits = parameter.data.view(integers[parameter.itemsize]).view(-1)
        # The first number and the last, the last bit and the first after the sign's.
        place, bit = -(turn % 2), (1, 8 * parameter.itemsize - 2)[turn // 2 % 2]
        bits[place] ^= 1 << bit
        assert packed(model) is not weights
        weights = packed(model)
        assert packed(model) is weights


def test_rows_of_an_odd_number_of_bytes_and_weights_that_do_not_lie_in_a_row():
    for dtype in (torch.bfloat16, torch.float32):
        model = make(num_heads=1, d_model=131, d_ff=131).to(dtype)
        up = model.get_submodule(UP)
        up.weight = nn.Parameter(up.weight.detach().t().contiguous().t())
        weights = packed(model)
        assert packed(model) is weights
        up.weight.data[5, 3] += 1
        assert packed(model) is not weights


def test_another_config_and_another_type_of_numbers_are_seen():
    model = make(positions="sinusoidal", num_layers=1)
    assert packed(model).positions is not None
    model.config = replace(model.config, positions="none")
    assert packed(model).positions is None
    assert packed(model.double()).tokens.dtype == torch.float64


def test_packed_weights_go_with_their_model():
    model = make()
    logits(model)
    weights = weakref.ref(packed(model))
    matrix = weakref.ref(packed(model).layers[0].qkv.weight)
    assert weights() is not None
    del model
    gc.collect()
    assert weights() is None
    assert matrix() is None


def test_a_change_frees_what_was_packed_before():
    model = make()
    logits(model)
    weights = weakref.ref(packed(model))
    by_data(model)
    logits(model)
    gc.collect()
    assert weights() is None


def test_a_model_is_copied_and_saved_without_what_was_packed():
    model, fresh = make(), make()
    logits(model)
    for each in (model, fresh):
        assert copy.deepcopy(each).__dict__.keys() == fresh.__dict__.keys()
    sizes = []
    for each in (model, fresh):
        torch.save(each, file := io.BytesIO())
        sizes.append(len(file.getvalue()))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        *((by_a_hook, UP), (by_a_forward_of_its_own, UP), (by_a_parametrization, UP)),
        (by_normed_queries, "blocks.0.attention"),
        (by_another_activation, "blocks.1.feed_forward"),
        (by_an_epsilon, "norm"),
        (lambda model: model.register_forward_hook(lambda *_: None), "the model"),
    ],
)
def test_what_would_be_overlooked_is_refused(change: Callable[[GPT], None], where: str):
    model = make()
    change(model)
    message = f"{where} is not as its config makes it, or has hooks"
    with pytest.raises(PackingError, match=f"^{message}$"):
        packed(model)


def some_logits(model: GPT, **settings) -> Tensor:
    decoder = Decoder(model, **settings)
    return torch.stack(
        [decoder.read(PROMPTS), *(decoder.step(torch.tensor([6, 7])) for _ in range(4))]
    )


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"activation": "swiglu", "bias": False}, torch.float32),
        ({"positions": "rotary"}, torch.bfloat16),
    ],
    ids=str,
)
def test_int8_weights_are_near_and_a_quarter(changes: dict, dtype: torch.dtype):
    model = make(**changes)
    for parameter in model.parameters():  # as small as trained ones are
        nn.init.normal_(parameter, std=0.05)
    model.to(dtype)
    exact, rounded = some_logits(model), some_logits(model, weights="int8")
    assert rounded.dtype == dtype
    apart = (exact - rounded).float().norm() / exact.float().norm()
    assert 1e-4 < apart < 0.02
    matrix = Decoder(model, weights="int8").weights.layers[0].up
    assert matrix.weight.dtype == torch.int8
    assert matrix.weight.abs().amax() == 127


def test_int8_rounds_each_row_by_itself():
    weight = torch.zeros(3, 32)
    weight[:, :3] = torch.tensor([[1.0, -2.0, 0.5], [100.0, 0.0, 50.0], [0, 0, 0]])
    bias = torch.tensor([0.0, 1.0, 2.0])
    matrix = packing.Int8Matrix(weight, bias)
    rounded = [[64, -127, 32], [127, 0, 64], [0, 0, 0]]
    assert matrix.weight[:, :3].tolist() == rounded
    got = matrix.project(torch.eye(32))
    torch.testing.assert_close(got, weight.T + bias, rtol=0.01, atol=0.6)


@pytest.mark.usefixtures("as_a_caller")
def test_int8_says_where_it_cannot_be():
    with pytest.raises(ValueError, match=r"^weights='int4' must be 'own' or 'int8'$"):
        Decoder(make(), weights="int4")
    narrow = (
        "weights='int8' needs widths divisible by 32; one projection has 40 input "
        "features"
    )
    with pytest.raises(PackingError, match=f"^{narrow}$"):
        Decoder(make(d_ff=40), weights="int8")
    message = "weights='int8' needs a CPU; the model is on meta"
    with pytest.raises(ValueError, match=f"^{message}$"):
        Decoder(make().to("meta"), weights="int8")
