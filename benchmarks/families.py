"""Train the book's GPT with the blocks of today's families, at equal parameters."""

from typing import Any

from benchmarks.parts import SIZE, Part, rates, train_parts
from benchmarks.run import Results, Run

__all__ = ["FAMILIES", "RATES", "measure"]

# The width of each feed-forward makes up for what the other parts save.
_LLAMA: dict[str, Any] = {
    "positions": "rotary",
    "norm": "rms",
    "bias": False,
    "activation": "swiglu",
    "num_kv_heads": 2,
    "d_ff": 207,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "GPT-2": {"activation": "gelu_tanh"},
    "Llama": _LLAMA,
    "Qwen 3": {**_LLAMA, "qk_norm": "heads", "norm_eps": 1e-6},
    "OLMo 2": {
        **_LLAMA,
        "norm_place": "after",
        "qk_norm": "projection",
        "norm_eps": 1e-6,
    },
    "Gemma 3": {
        **_LLAMA,
        "norm_place": "both",
        "qk_norm": "heads",
        "norm_eps": 1e-6,
        "activation": "geglu_tanh",
        "embedding_scale": SIZE["d_model"] ** 0.5,
        "windows": (16, None),
        "rotary_base": 1e6,
        "local_rotary_base": 1e4,
        "d_ff": 206,
    },
}
# The recipe's rate was chosen with the first of them; another may want another.
RATES = (1.0, 2.0, 0.5)
_SCORES = ("loss", "number", "sentences")


def measure(run: Run) -> Results:
    """Train each family's block at some rates and seeds, and measure what it learns."""
    parts = {
        f"{name}, {times:g}": Part(family, rates(times))
        for times in RATES
        for name, family in FAMILIES.items()
    }
    results = train_parts(run, parts)
    rows: dict[str, dict[str, Any]] = {}
    for name in FAMILIES:
        at_rates = {times: results["rows"][f"{name}, {times:g}"] for times in RATES}
        rows[name] = {"parameters": at_rates[1.0]["parameters"]} | {
            f"rate x {times:g}": {key: row[key] for key in _SCORES}
            for times, row in at_rates.items()
        }
    return results | {"rows": rows}
