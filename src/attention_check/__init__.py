"""Is your attention right? Checks of any attention, and the bugs they know by name."""

from attention_check.exhibits import EXHIBITS, KNOWN, Exhibit, Publication
from attention_check.reference import Reference, Rotary, allowed, packed, together
from attention_check.steps import Steps

__all__ = [
    "EXHIBITS",
    "KNOWN",
    "Exhibit",
    "Publication",
    "Reference",
    "Rotary",
    "Steps",
    "allowed",
    "packed",
    "together",
]
