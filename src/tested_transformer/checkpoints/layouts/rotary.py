"""How a ``config.json`` describes rotary positions: the base, and the rule of scaling.

Before version 5, ``transformers`` wrote ``rope_theta`` and ``rope_scaling``; since then
it writes both as ``rope_parameters``. Both are read, and the older form is written,
which every program reads.
"""

from collections.abc import Mapping
from typing import Any

from tested_transformer.checkpoints.configs import CheckpointError
from tested_transformer.checkpoints.layouts.family import Settings
from tested_transformer.config import GPTConfig
from tested_transformer.rotary_scaling import (
    linear_rates,
    llama3_rates,
    plain_rates,
    yarn_attention_factor,
    yarn_rates,
)

__all__ = ["read_rotary", "write_rotary"]


def read_rotary(
    settings: Settings, head_dim: int, *, base: float = 10_000.0
) -> dict[str, Any]:
    """Return the fields of a ``GPTConfig`` that rotary positions need.

    Args:
        settings: Where they are described.
        head_dim: d_k, the width of a head.
        base: The base, if the settings do not say it.

    Raises:
        CheckpointError: If a rule or one of its numbers is unknown.
    """
    rule = settings.get("rope_parameters", None) or settings.get("rope_scaling", None)
    rule = Settings(rule or {}, f"rope_parameters of {settings.origin}")
    base = float(rule.get("rope_theta", settings.get("rope_theta", base)))
    kind = rule.get("rope_type", rule.get("type", "default"))
    rule.require("partial_rotary_factor", 1.0)
    settings.require("partial_rotary_factor", 1.0)
    fields: dict[str, Any] = {"positions": "rotary", "rotary_base": base}
    if kind not in ("default", "linear", "llama3", "yarn", "longrope"):
        raise CheckpointError(
            f"{settings.origin} has rope_type={kind!r}; only default, linear, llama3 "
            "and yarn can be read, and longrope within the trained length"
        )
    longest = settings.get("max_position_embeddings")
    # Phi-3 says it outside of the rule, and transformers lets that go first.
    trained = "original_max_position_embeddings"
    if trained in settings.values and kind in ("llama3", "yarn", "longrope"):
        rule.values[trained] = settings.get(trained)
    try:
        rates, sharpened = _rates(kind, rule, head_dim, base, longest)
    except (TypeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{rule.origin}: {error}") from None
    rule.refuse_the_rest()
    if rates is not None:
        fields["rotary_rates"] = tuple(rates.tolist())
        fields["rotary_attention_factor"] = sharpened
    return fields


def _rates(
    kind: str, rule: Settings, head_dim: int, base: float, longest: int
) -> tuple[Any, float]:
    """Return the rates of a rule, ``None`` for the plain ones, and its factor."""
    if kind == "default":
        return None, 1.0
    if kind == "longrope":
        # transformers takes the short factors for texts up to the trained length.
        trained = rule.get("original_max_position_embeddings", longest)
        if trained < longest:
            raise CheckpointError(
                f"{rule.origin} has original_max_position_embeddings={trained}, less "
                f"than max_position_embeddings={longest}: it has other angles for "
                "long texts than for short ones, which cannot be read"
            )
        rule.get("long_factor", None)
        plain = plain_rates(head_dim, base=base)
        factors = plain.new_tensor(rule.get("short_factor"))
        return plain / factors, float(rule.get("attention_factor", None) or 1.0)
    factor = float(rule.get("factor"))
    if kind == "linear":
        return linear_rates(head_dim, factor=factor, base=base), 1.0
    trained = rule.get("original_max_position_embeddings", longest)
    if kind == "llama3":
        return llama3_rates(
            head_dim,
            factor=factor,
            trained_length=trained,
            base=base,
            fast=rule.get("high_freq_factor"),
            slow=rule.get("low_freq_factor"),
        ), 1.0
    rates = yarn_rates(
        head_dim,
        factor=factor,
        trained_length=trained,
        base=base,
        fast=rule.get("beta_fast", None) or 32.0,
        slow=rule.get("beta_slow", None) or 1.0,
        truncate=rule.get("truncate", True),
    )
    explicit = rule.get("attention_factor", None)
    return rates, yarn_attention_factor(factor) if explicit is None else float(explicit)


def write_rotary(config: GPTConfig) -> Mapping[str, Any]:
    """Return the settings that describe a config's rotary positions.

    Rates of any rule are written as those of LongRoPE, with a factor for each pair.
    """
    written: dict[str, Any] = {"rope_theta": config.rotary_base}
    if config.rotary_rates is not None:
        plain = plain_rates(config.d_k, base=config.rotary_base)
        factors = (plain / plain.new_tensor(config.rotary_rates)).tolist()
        written["rope_scaling"] = {
            "rope_type": "longrope",
            "short_factor": factors,
            "long_factor": factors,
            "attention_factor": config.rotary_attention_factor,
            "original_max_position_embeddings": config.max_seq_len,
        }
    return written
