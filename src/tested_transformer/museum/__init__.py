"""The bug museum: published bugs of attention, and the checks that catch them."""

from tested_transformer.museum.checking import assert_causal, check_attention
from tested_transformer.museum.checks import CHECKS
from tested_transformer.museum.exhibit import Exhibit, Publication
from tested_transformer.museum.gallery import EXHIBITS
from tested_transformer.museum.layer import ExchangeableAttention, Steps, with_steps
from tested_transformer.museum.matrix import alone, kill_matrix, redundant
from tested_transformer.museum.report import Report, Verdict

__all__ = [
    "CHECKS",
    "EXHIBITS",
    "ExchangeableAttention",
    "Exhibit",
    "Publication",
    "Report",
    "Steps",
    "Verdict",
    "alone",
    "assert_causal",
    "check_attention",
    "kill_matrix",
    "redundant",
    "with_steps",
]
