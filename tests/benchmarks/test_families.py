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


def test_a_family_has_this_block_and_all_have_nearly_one_size() -> None:
    models = {name: model_of(name) for name in FAMILIES}
    assert models.keys() == {"GPT-2", *NAMES}
    to_gpt2(models["GPT-2"])
    for name, family in NAMES.items():
        # Qwen 3 has one place for norms, OLMo 2 another: no other family would do.
        to_family(models[name], family)
        for other_family in {*NAMES.values()} - {family}:
            with pytest.raises(ValueError, match=r"ForCausalLM has no "):
                to_family(models[name], other_family)
    sizes = [model.num_parameters() for model in models.values()]
    assert max(sizes) < 1.005 * min(sizes)
