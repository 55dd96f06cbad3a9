"""The names of ways to attend, which files and the command line know them by.

A new way to attend is a module of this folder, imported here, and a line in
``ATTENTIONS``: its name, and its settings with their defaults. Files, the command line
and the tests that ask every way to attend find it there. CONTRIBUTING.md says what it
needs to become part of this library.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace

from tested_transformer.attentions.chosen_blocks import ChosenBlocks
from tested_transformer.attentions.compressed import Compressed
from tested_transformer.attentions.delta import DeltaRule
from tested_transformer.attentions.differential import Differential
from tested_transformer.attentions.indexer import ChosenKeys
from tested_transformer.attentions.latent import Latent
from tested_transformer.attentions.linear import LinearRecurrence
from tested_transformer.attentions.softmaxes import AdjustedSoftmax
from tested_transformer.checks import validate_choice
from tested_transformer.interfaces import Attention
from tested_transformer.multihead import Softmax

__all__ = ["ATTENTIONS", "attention_named", "name_of"]

ATTENTIONS: dict[str, Attention] = {
    "softmax": Softmax(),
    "latent": Latent(),
    "linear": LinearRecurrence(),
    "gated_linear": LinearRecurrence(gated=True),
    "delta": DeltaRule(),
    "gated_delta": DeltaRule(gated=True),
    "kimi_delta": DeltaRule(gated=True, by_feature=True),
    "differential": Differential(),
    "gated": AdjustedSoftmax(gate="features"),
    "soft_capped": AdjustedSoftmax(soft_cap=50.0),  # Gemma 2's
    "sink": AdjustedSoftmax(learned_sink=True),
    "blocks": ChosenBlocks(),
    "indexer": ChosenKeys(),
    "compressed": Compressed(),
}


def attention_named(
    name: str, settings: Mapping[str, object] | None = None
) -> Attention:
    """Return the attention that has a name, with other settings if some are given.

    Raises:
        ValueError: If the name, or a setting, is unknown, or a value does not fit.
        TypeError: If a value has the wrong type.
    """
    validate_choice("attention", name, ATTENTIONS)
    attention, settings = ATTENTIONS[name], dict(settings or {})
    known = [field.name for field in fields(attention)]
    for setting, value in settings.items():
        if setting not in known:
            raise ValueError(
                f"{setting}={value!r} does not fit attention={name!r}: leave it out"
            )
    return replace(attention, **settings)


def name_of(attention: Attention) -> tuple[str, dict[str, object]]:
    """Return a name and settings from which ``attention_named`` makes the same.

    If several names are of the same kind, it is the one with the nearest settings.

    Raises:
        ValueError: If no name is of this kind.
    """
    settings = asdict(attention)
    differing = {
        name: sum(settings[key] != value for key, value in asdict(named).items())
        for name, named in ATTENTIONS.items()
        if type(named) is type(attention)
    }
    if not differing:
        raise ValueError(
            f"attention={attention!r} has no name: give it one in attentions.ATTENTIONS"
        )
    return min(differing, key=differing.__getitem__), settings
