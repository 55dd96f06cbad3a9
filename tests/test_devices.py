"""The same answers on a GPU as in the open on the processor: outputs and gradients.

Without a GPU each test runs on the processor, so that it is known to run at all. Of
several cases only the first does: they have tests of their own elsewhere.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tested_transformer import (
    GPT,
    GPTConfig,
    MultiHeadAttention,
    Recipe,
    alibi_bias,
    attention_with_weights,
    causal_mask,
    fused_attention,
    generate,
    load_checkpoint,
    padding_mask,
    rotary_table,
    save_checkpoint,
    sliding_window_mask,
    train,
)
from tested_transformer.attentions import ATTENTIONS
from tested_transformer.checking import check_attention
from tested_transformer.decoding import (
    Decoder,
    NgramDrafter,
    Request,
    Sampling,
    Server,
    serve,
    speculate,
)
from tested_transformer.decoding.cache_readers import reader_with
from tested_transformer.positions import alibi_slopes
from transformer_book import families

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
on_each_device = pytest.mark.parametrize("device", DEVICES)


def with_each(argument: str, values: Iterable[object]) -> pytest.MarkDecorator:
    """Run a test with every value on a GPU, and with the first on the processor."""
    first, *others = values
    rows = [(device, first) for device in DEVICES]
    rows += [("cuda", value) for value in others if "cuda" in DEVICES]
    return pytest.mark.parametrize(("device", argument), rows, ids=str)


# Pairwise different: batch, heads, queries, keys, head width.
B, H, T, S, D_K = 2, 3, 37, 53, 16
D = H * D_K

# How far apart an output may lie from that in float64, as a part of its length.
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}

WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "causal": lambda: {"causal": True},
    "window": lambda: {"mask": sliding_window_mask(T, S, window=11)},
    "padding": lambda: {"mask": padding_mask(torch.tensor([S, 29]), S)},
    "empty rows": lambda: {"mask": causal_mask(T, S) & (torch.arange(S) > 20)},
    "alibi": lambda: {"score_bias": alibi_bias(alibi_slopes(H), T, S), "causal": True},
}


@pytest.fixture(autouse=True)
def _exact_products() -> None:
    torch.set_float32_matmul_precision("highest")


def error(actual: Tensor, expected: Tensor) -> float:
    actual, expected = actual.detach().cpu().double(), expected.detach().cpu().double()
    assert actual.isfinite().all()
    return ((actual - expected).norm() / expected.norm().clamp(min=1e-12)).item()


def moved(options: dict[str, Any], device: str, dtype: torch.dtype) -> dict[str, Any]:
    def move(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        kind = dtype if value.is_floating_point() else value.dtype
        return value.to(device, kind)

    return {name: move(value) for name, value in options.items()}


@with_each("dtype", CLOSE)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "open"])
def test_attention(device: str, dtype: torch.dtype, way: str, fused: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = [(B, H, T, D_K), (B, H, S, D_K), (B, H, S, D_K), (B, H, T, D_K)]
    drawn = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    q, k, v, weight = (x.double() for x in drawn)
    for x in (q, k, v):
        x.requires_grad_()
    expected, _ = attention_with_weights(q, k, v, **moved(WAYS[way](), "cpu", q.dtype))
    (expected * weight).sum().backward()

    here = [x.to(device).requires_grad_() for x in drawn[:3]]
    options = moved(WAYS[way](), device, dtype)
    if fused:
        actual = fused_attention(*here, **options)
    else:
        actual, _ = attention_with_weights(*here, **options)
    (actual * drawn[3].to(device)).sum().backward()
    assert error(actual, expected) < CLOSE[dtype]
    for mine, theirs in zip(here, (q, k, v), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert error(mine.grad, theirs.grad) < 2 * CLOSE[dtype]


@with_each("num_kv_heads", [1, H])
def test_a_layer_with_its_cache(device: str, num_kv_heads: int) -> None:
    torch.manual_seed(2)
    sizes = {"d_model": D, "num_heads": H, "num_kv_heads": num_kv_heads}
    layer = MultiHeadAttention(**sizes).to(device)
    x = torch.randn(B, T, D, device=device)
    rotary = rotary_table(torch.arange(T, device=device), D_K)
    opened = copy.deepcopy(layer).cpu().double()
    table = rotary_table(torch.arange(T), D_K).double()
    expected, _ = opened(
        x.cpu().double(), causal=True, rotary=table, return_weights=True
    )
    cache = layer.new_cache(B, T)
    parts = [
        layer(x[:, a:b], causal=True, rotary=rotary[:, a:b], cache=cache)
        for a, b in ((0, 19), (19, 20), (20, T))
    ]
    assert error(layer(x, causal=True, rotary=rotary), expected) < 1e-5
    assert error(torch.cat(parts, dim=1), expected) < 1e-5


def make_model(positions: str = "alibi", **options: Any) -> GPT:
    torch.manual_seed(3)
    sizes = {"d_model": 40, "num_heads": 5, "num_layers": 2, "max_seq_len": 24}
    model = GPT(GPTConfig(vocab_size=29, positions=positions, **sizes, **options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


@with_each("positions", ["rotary", "learned", "alibi"])
def test_a_model_reads_and_writes_the_same(device: str, positions: str) -> None:
    """Writes from prompts of two lengths, and beyond its context of 24 tokens."""
    model = make_model(positions).eval()
    tokens = torch.randint(29, (B, 23))
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(tokens)
        assert error(model.to(device)(tokens.to(device)), expected) < 1e-5
    prompts = [[1, 2, 3, 4, 5], [7, 8]]
    settings = {"max_new_tokens": 31, "seed": 5}
    without = generate(model, prompts, use_cache=False, **settings)
    assert generate(model, prompts, **settings) == without
    decoder = Decoder(model)
    assert generate(decoder, prompts, **settings) == without
    if device == "cuda":
        decoder.capture()
        assert generate(decoder, prompts, **settings) == without
        assert generate(decoder, prompts[:1], **settings) == without[:1]


@with_each("name", ["fast", "plain"])
def test_a_model_learns_the_same(device: str, name: str) -> None:
    tokens = torch.arange(29).repeat(30)
    sizes = {"steps": 20, "batch_size": 7, "precision": "fp32", "warmup": 5}
    recipe = getattr(Recipe, name)(**sizes)

    def losses(where: str, recipe: Recipe) -> list[float]:
        return train(make_model("rotary").to(where), tokens.to(where), recipe).losses

    expected, actual = losses("cpu", recipe), losses(device, recipe)
    assert actual == pytest.approx(expected, rel=0.02)
    assert actual[-1] < 0.8 * actual[0]
    if device == "cuda":  # both in one way, so nearly the same
        graph = losses(device, replace(recipe, graph=True))
        assert graph == pytest.approx(actual, rel=1e-3)


@on_each_device
def test_a_checkpoint_comes_back_on_the_processor(device: str, tmp_path: Path) -> None:
    model = make_model().to(device)
    weights = model.state_dict()
    save_checkpoint(tmp_path / "run", config=model.config, weights=weights)
    loaded = load_checkpoint(tmp_path / "run").weights
    for name, weight in weights.items():
        assert torch.equal(loaded[name], weight.cpu())


def check_pass(model: GPT, tokens: Tensor, device: str) -> None:
    """Compare logits and the gradients of all weights together, some of which are 0."""

    def measured(model: GPT, tokens: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(tokens)
        logits.double().square().mean().backward()
        return logits, torch.cat([x.grad.flatten() for x in model.parameters()])

    model.requires_grad_()
    expected = measured(copy.deepcopy(model).double(), tokens)
    actual = measured(model.to(device), tokens.to(device))
    assert error(actual[0], expected[0]) < 1e-5
    assert error(actual[1], expected[1]) < 1e-4


@with_each("name", ATTENTIONS)
def test_every_kind_of_attention(device: str, name: str) -> None:
    """Longer than several chunks and blocks."""
    attention = ATTENTIONS[name]
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=29,
        max_seq_len=97,
        d_model=48,
        num_heads=4,
        num_layers=2,
        attention=attention,
        positions=attention.positions[0],
    )
    check_pass(GPT(config), torch.randint(29, (B, 97)), device)


@with_each("name", families.SETTINGS)
def test_every_family(device: str, name: str) -> None:
    model = families.tiny(name)
    check_pass(model, torch.randint(61, (B, 23)), device)
    prompts, settings = [[1, 2, 3, 4, 5], [7, 8]], {"max_new_tokens": 19, "seed": 5}
    without = generate(model, prompts, use_cache=False, **settings)
    assert generate(model, prompts, **settings) == without


@with_each("cache", ["rolling", "int8", "int4", "paged"])
def test_every_reader_writes_as_on_the_processor(device: str, cache: str) -> None:
    model = make_model("rotary").eval()
    prompts, greedy = [[1, 2, 3, 4, 5], [7, 8]], Sampling(temperature=0.0)
    expected = generate(
        reader_with(cache, copy.deepcopy(model)),
        prompts,
        max_new_tokens=15,
        sampling=greedy,
    )
    reader = reader_with(cache, model.to(device))
    assert generate(reader, prompts, max_new_tokens=15, sampling=greedy) == expected


@on_each_device
def test_drafts_and_a_running_batch_write_the_same(device: str) -> None:
    model, prompt = make_model("rotary").eval().to(device), [1, 2, 3, 1, 2]
    sampling = Sampling(temperature=0.0)
    greedy = {"probabilities": sampling.probabilities}
    [expected] = generate(model, [prompt], max_new_tokens=15, sampling=sampling)
    drafted = speculate(model, prompt, NgramDrafter(29), max_new_tokens=15, **greedy)
    assert drafted.tokens == expected
    requests = [Request(prompt=prompt, max_new_tokens=15) for _ in range(3)]
    server = Server(model, num_pages=20, page_size=4, prefix_caching=True, **greedy)
    serve(server, requests)
    assert [request.answer for request in requests] == [expected] * 3


@on_each_device
def test_the_checker_knows_a_right_layer(device: str) -> None:
    layer = MultiHeadAttention(d_model=24, num_heads=3, device=device)
    assert check_attention(layer).state == "right"
