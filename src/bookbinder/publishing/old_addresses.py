"""Lead from former addresses of pages to the present ones, without a server's help.

Until version 2, addresses of chapters had their numbers in them.
"""

from pathlib import Path

from bookbinder.writing import write_whole

_NUMBERED = """
a-lookup-that-blurs square-root attention-by-hand many-heads shapes-that-lie no-peeking
padding cross-attention encoder-and-decoder order blocks nn-multiheadattention
fast-paths microgpt mini-gpt training the-cache fewer-keys sampling watch-it-think
what-heads-do pruning five-implementations the-bug-museum
"""

# The present name of each page, by its former address.
OLD = {
    f"chapters/{n:02}-{name}": name for n, name in enumerate(_NUMBERED.split(), start=1)
}
OLD["chapters/25-the-kill-matrix"] = "is-your-attention-right"
OLD["reference/checking"] = "attention_check"
OLD["in-depth/induction"] = "../chapters/induction"

_MOVED = """
ChosenBlocks attention_in_blocks choose_blocks chosen_mask flex_blocks ChosenKeys
Indexer attention_to_chosen choose_keys index_loss index_scores rounded_to_fp8
LinearAttention LinearRecurrence averaged_linear_attention chunked_linear_attention
DeltaAttention parallel_linear_attention positive_features recurrent_linear_attention
DeltaRule chunked_delta_rule parallel_delta_rule recurrent_delta_rule StateCache
StateLayer
"""

# Sections by their former anchors, for each page that renamed some: see hooks.
OLD_SECTIONS = {
    "reference/attentions.md": {
        f"tested_transformer.attentions.{name}": "on-pages-of-their-own"
        for name in _MOVED.split()
    },
    "which-attention.md": {
        "self-attention-every-position-sees-every-other": "full-self-attention",
        "causal-as-many-queries-as-keys": "causal-self-attention",
        "decoding-with-a-cache": "kv-cache-decoding",
        "cross-attention-with-padding-in-the-context": "cross-attention-and-padding",
        "causal-and-padded-or-any-other-rule": "causal-mask-and-padding-mask",
        "scores-of-your-own": "alibi-or-another-bias",
        "fewer-heads-of-keys-and-values": "gqa-and-mqa-fewer-heads-of-keys-and-values",
        "one-latent-for-all-heads": "mla-one-latent-for-all-heads",
        "the-weights-to-look-at": "attention-weights",
        "training-with-dropout": "dropout",
        "a-layer-not-a-function": "a-layer-multiheadattention",
    },
}

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url=../{new}/">
<p>This page has moved: <a href="../{new}/">read it at its new address</a>.</p>
</html>
"""


def add_old_addresses(site: Path) -> None:
    """Write a page at each old address of a built site, which leads on."""
    for old, new in OLD.items():
        write_whole(site / old / "index.html", _PAGE.format(new=new))
