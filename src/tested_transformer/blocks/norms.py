"""The norms that attention and feed-forward read through."""

from torch import nn

__all__ = ["NORMS", "make_norm"]

NORMS = ("layer", "rms")


# --8<-- [start:norms]
def make_norm(
    norm: str, d_model: int, *, bias: bool = True
) -> nn.LayerNorm | nn.RMSNorm:
    """Make a layer norm, or an RMS norm, which neither centers nor has a bias.

    Raises:
        ValueError: If ``norm`` is not one of ``NORMS``.

    Sources: Ba et al., 2016, "Layer Normalization"; Zhang and Sennrich, 2019, "Root
    Mean Square Layer Normalization".
    """
    if norm not in NORMS:
        raise ValueError(f"norm={norm!r} must be one of {', '.join(NORMS)}")
    if norm == "rms":
        return nn.RMSNorm(d_model, eps=1e-5)
    return nn.LayerNorm(d_model, eps=1e-5, bias=bias)


# --8<-- [end:norms]
