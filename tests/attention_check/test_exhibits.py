"""The exhibits: each one step, wrong in some use, with publications one can look up."""

import re
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_check import EXHIBITS, KNOWN, Publication, Reference, Rotary, Steps
from attention_check.exhibits.exhibit import issue, pull

B, T, D, H = 3, 7, 24, 4


def layer_of(
    steps: Steps | None = None, num_kv_heads: int = H, **settings
) -> Reference:
    torch.manual_seed(0)
    widths = (D, *2 * [num_kv_heads * D // H], D)
    parts = dict(zip("qkvo", (nn.Linear(D, width) for width in widths), strict=True))
    sizes = {"num_heads": H, "num_kv_heads": num_kv_heads}
    return Reference(**parts, **sizes, **settings, steps=steps).eval()


def answers(steps: Steps) -> Iterator[Tensor]:
    """Yield what a layer of these steps answers, in one use after another."""
    torch.manual_seed(1)
    x, context = torch.randn(2, B, T, D)
    real = torch.ones(B, T, dtype=torch.bool)
    real[1, :2] = False
    plain = layer_of(steps)
    for use in ({}, {"causal": True}, {"real": real}, {"context": context}):
        yield plain(x, **use)
    leaf = x.clone().requires_grad_()
    output = plain(leaf, causal=True, real=real)
    yield output
    yield from torch.autograd.grad(output[real].sin().sum(), leaf)
    yield plain(1000 * x, causal=True)
    yield layer_of(steps, dropout=0.2)(x, causal=True)
    norms = {"norm_q": nn.RMSNorm(D // H), "norm_k": nn.RMSNorm(D // H)}
    for settings in (
        {"num_kv_heads": 2},
        {"rotary": Rotary(), **norms},
        {"rotary": Rotary(pairing="neighbors", width=4), "num_kv_heads": 2},
        {"alibi": True, "window": 3},
    ):
        layer = layer_of(steps, **settings)
        yield layer(x, causal=True)
        yield layer.read(x.split((3, 2, 2), dim=1))


def test_an_exhibit_replaces_one_step_and_is_wrong_in_some_use() -> None:
    right, fields = Steps(), Steps.__dataclass_fields__
    right_answers = [*answers(right)]
    for name, exhibit in KNOWN.items():
        steps = exhibit.steps
        changed = [x for x in fields if getattr(steps, x) is not getattr(right, x)]
        assert changed == [exhibit.step], name
        assert re.fullmatch(r"[A-Z][^.]*\.", exhibit.mistake)
        differs = False
        wrong = answers(steps)
        for answer in right_answers:
            try:
                differs = differs or not torch.allclose(next(wrong), answer, atol=1e-5)
            except RuntimeError:  # its shapes do not fit this use
                break
        assert differs, name


@pytest.mark.parametrize(
    ("num_kv_heads", "causal", "padded"),
    [(4, False, False), (2, True, False), (1, False, True), (2, True, True)],
)
def test_the_right_steps_are_pytorchs(
    num_kv_heads: int, causal: bool, padded: bool
) -> None:
    layer = layer_of(num_kv_heads=num_kv_heads)
    x = torch.randn(B, T, D)
    real = torch.arange(T) < torch.tensor([[7], [3], [1]]) if padded else None
    q, k, v = (
        part(x).unflatten(-1, (-1, D // H)).transpose(1, 2)
        for part in (layer.q, layer.k, layer.v)
    )
    mask = torch.ones(T, T).tril() > 0 if causal else torch.ones(T, T) > 0
    mask = mask if real is None else mask & real[:, None, None]
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    expected = layer.o(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, causal=causal, real=real), expected)


def test_publications_can_be_looked_up() -> None:
    for known in KNOWN.values():
        threads = (*known.published, *known.related)
        assert len(set(threads)) == len(threads)
        for thread in threads:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", thread.project)
            if thread.when:
                assert re.fullmatch(r"(issues|pull)/\d+", thread.place)
                assert re.fullmatch(r"20\d\d, (open|closed|merged)", thread.when)


def test_a_publication_knows_its_address() -> None:
    assert issue("a/b", 7, "2020, open").url == "https://github.com/a/b/issues/7"
    assert str(pull("a/b", 7, "2021, merged")) == "a/b #7 (2021, merged)"
    of_file = Publication("a/b", "c/d.py")
    assert (str(of_file), of_file.url) == ("a/b d.py", "https://github.com/a/b")


def test_the_book_trained_with_some_of_the_known_and_five_are_limits() -> None:
    assert [*KNOWN][: len(EXHIBITS)] == [*EXHIBITS]
    assert {name for name, exhibit in KNOWN.items() if exhibit.reach} == {
        *("large-but-finite", "beyond-half", "no-maximum-taken"),
        *("nan-in-empty-rows", "nan-replaced"),
    }
