"""Is your attention right? Checks of any attention, and the bugs they know by name."""

from tested_transformer.checking.checker import (
    assert_attention,
    assert_causal,
    check_attention,
)
from tested_transformer.checking.checks import CHECKS
from tested_transformer.checking.counterexample import Counterexample
from tested_transformer.checking.exhibits import (
    EXHIBITS,
    ExchangeableAttention,
    Exhibit,
    Publication,
    Steps,
    with_steps,
)
from tested_transformer.checking.report import Report, Verdict

__all__ = [
    "CHECKS",
    "EXHIBITS",
    "Counterexample",
    "ExchangeableAttention",
    "Exhibit",
    "Publication",
    "Report",
    "Steps",
    "Verdict",
    "assert_attention",
    "assert_causal",
    "check_attention",
    "with_steps",
]
