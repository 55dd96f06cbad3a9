"""The models that are compared differ in their attention alone."""

from benchmarks.latent import KINDS, make_model

from tested_transformer.gpt import GPT
from transformer_book import load_record


def kept(model: GPT) -> int:
    """Return how many numbers the first layer leaves in a cache for one token."""
    attention = model.blocks[0].attention
    widths = {name: part.weight for name, part in attention.named_modules() if name}
    if "kv_down" in widths:
        return widths["kv_down"].shape[0]
    return widths["k_proj"].shape[0] + widths["v_proj"].shape[0]


def test_each_keeps_what_the_record_says() -> None:
    results = load_record("latent")["results"]
    for kind in KINDS:
        recorded = results["kinds"][kind]
        model = make_model(kind, results["size"]["characters"])
        assert recorded["numbers a token and layer"] == kept(model), kind
        assert recorded["parameters"] == model.num_parameters(), kind
