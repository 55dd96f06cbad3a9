"""What the tables say of published models, held against counts of their publishers."""

from collections.abc import Iterable

import pytest

from tested_transformer.checkpoints import FAMILIES
from tested_transformer.gpt import GPT
from transformer_book.todays_models import published_models

# Phi-3 and Gemma 3 as Keras Hub lists them; the others by the formula, and near what
# the names of the models say.
COUNTS = {
    "SmolLM2 135M": 134_515_008,
    "Llama 3.2 1B": 1_235_814_400,
    "Mistral 7B": 7_241_732_096,
    "Mixtral 8x7B": 46_702_792_704,
    "Phi-3 mini": 3_821_079_552,
    "Qwen 2.5 0.5B": 494_032_768,
    "Qwen 3 0.6B": 596_049_920,
    "OLMo 2 1B": 1_484_916_736,
    "Gemma 2 2B": 2_614_341_888,
    "Gemma 3 1B": 999_885_952,
    "gpt-oss 20B": 20_914_757_184,
}


LARGE = ("Mixtral 8x7B", "gpt-oss 20B")  # of hundreds of experts


# Published settings have whole numbers where the library writes fractions.
@pytest.mark.usefixtures("as_a_caller")
@pytest.mark.parametrize(
    "names",
    [
        [name for name in COUNTS if name not in LARGE],
        pytest.param(LARGE, marks=pytest.mark.nightly),
    ],
    ids=["each change", "each night"],
)
def test_a_model_has_as_many_parameters_as_its_publisher_says(
    names: Iterable[str],
) -> None:
    models = published_models()
    assert models.keys() == COUNTS.keys()
    for name in names:
        model = GPT(models[name].config, device="meta")
        assert model.num_parameters() == COUNTS[name], name


def test_lines_that_change_nothing_may_stay() -> None:
    """As in the published file of SmolLM2."""
    smol = published_models()["SmolLM2 135M"]
    more = {
        "architectures": ["LlamaForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "initializer_range": 0.041666666666666664,
        "is_llama_config": True,
        "pretraining_tp": 1,
        "rope_interleaved": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1",
        "use_cache": True,
    }
    assert FAMILIES["llama"].config(smol.settings | more, smol.name) == smol.config
