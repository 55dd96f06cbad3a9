"""Each block is one that its family can have, at nearly the same size."""

import pytest
from benchmarks.families import FAMILIES
from benchmarks.parts import SIZE

from tested_transformer.checkpoints import to_family, to_gpt2
from tested_transformer.gpt import GPT, GPTConfig

NAMES = {
    "Llama": "llama",
    "Qwen 3": "qwen3",
    "OLMo 2": "olmo2",
    "Gemma 3": "gemma3_text",
}


def model_of(name: str) -> GPT:
    return GPT(GPTConfig(vocab_size=107, **SIZE | FAMILIES[name]))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_this_block(name: str) -> None:
    model = model_of(name)
    if name == "GPT-2":
        to_gpt2(model)
        return
    # Qwen 3 has one place for norms, OLMo 2 another: no other family would do.
    to_family(model, NAMES[name])
    others = {*NAMES.values()} - {NAMES[name]}
    for other in others:
        with pytest.raises(ValueError, match=r"ForCausalLM has no "):
            to_family(model, other)


def test_they_have_nearly_equally_many_parameters() -> None:
    sizes = [model_of(name).num_parameters() for name in FAMILIES]
    assert max(sizes) < 1.005 * min(sizes)
