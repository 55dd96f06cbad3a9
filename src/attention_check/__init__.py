"""Is your attention right? Say how it is called and what it should compute."""

from attention_check.checker import assert_attention, assert_causal, check_attention
from attention_check.checks import CHECKS
from attention_check.exhibits import EXHIBITS, KNOWN, Exhibit, Publication
from attention_check.reference import Reference, Rotary, allowed, packed, together
from attention_check.report import Counterexample, Report, Verdict
from attention_check.steps import Steps

__all__ = [
    "CHECKS",
    "EXHIBITS",
    "KNOWN",
    "Counterexample",
    "Exhibit",
    "Publication",
    "Reference",
    "Report",
    "Rotary",
    "Steps",
    "Verdict",
    "allowed",
    "assert_attention",
    "assert_causal",
    "check_attention",
    "packed",
    "together",
]
