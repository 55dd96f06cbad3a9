"""Each variant of the book's model differs from it in what its name says."""

import math

import torch
from benchmarks.controls import CONTROLS
from benchmarks.parts import PARTS, SIZE

from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interpret import record_heads

TOKENS = torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(0))


def variant(name: str) -> GPT:
    torch.manual_seed(0)
    part = (PARTS | CONTROLS)[name]
    model = GPT(GPTConfig(vocab_size=11, **SIZE | part.model)).eval()
    for block in model.blocks:
        part.change(block)
    return model


def reach(model: GPT) -> torch.Tensor:
    """Return, for each position, which tokens its logits depend on: (T, T)."""
    before = model(TOKENS)
    moved = []
    for place in range(7):
        changed = TOKENS.clone()
        changed[:, place] = (changed[:, place] + 1) % 11
        moved.append((model(changed) - before).abs().amax(dim=(0, 2)) > 1e-6)
    return torch.stack(moved, dim=1)


CAUSAL = torch.ones(7, 7).tril().bool()


@torch.no_grad()
def test_a_variant_sees_what_it_should() -> None:
    others = {"no attention": torch.eye(7) > 0, "no mask": torch.ones(7, 7) > 0}
    for name in PARTS | CONTROLS:
        seen = reach(variant(name))
        if name == "heads as rows":
            assert (seen & ~CAUSAL).any()
        else:
            assert torch.equal(seen, others.get(name, CAUSAL)), name


@torch.no_grad()
def test_what_is_changed_is_what_the_name_says() -> None:
    full_model = variant("the whole model")
    even = record_heads(variant("plain averages"), TOKENS).weights[0]
    counts = torch.arange(1, 8).float()
    torch.testing.assert_close(even[0, 0], CAUSAL / counts[:, None])
    plain, sharp = (
        record_heads(model, TOKENS).weights[0].clamp_min(1e-30).log()
        for model in (full_model, variant("no root"))
    )
    # The logarithms of a row's weights differ as its scores do.
    torch.testing.assert_close(
        sharp[..., -1, 1:] - sharp[..., -1, :1],
        math.sqrt(16) * (plain[..., -1, 1:] - plain[..., -1, :1]),
        rtol=1e-3,
        atol=1e-5,
    )
    # Without a branch, or with another norm, other numbers come out.
    logits = {name: variant(name)(TOKENS) for name in PARTS}
    same = {name for name in PARTS if torch.equal(logits[name], full_model(TOKENS))}
    trained_otherwise = {name for name, part in PARTS.items() if part.recipe}
    assert same == {"the whole model", *trained_otherwise}
