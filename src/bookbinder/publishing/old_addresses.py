"""Redirect former addresses of chapters to the present ones.

Each old address becomes a page that redirects its reader, without help from a server.
"""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

from bookbinder.writing import write_whole

__all__ = ["OLD", "add_old_addresses", "on_post_build"]

# Until version 2, addresses had the numbers of chapters in them.
OLD = {
    "01-a-lookup-that-blurs": "a-lookup-that-blurs",
    "02-square-root": "square-root",
    "03-attention-by-hand": "attention-by-hand",
    "04-many-heads": "many-heads",
    "05-shapes-that-lie": "shapes-that-lie",
    "06-no-peeking": "no-peeking",
    "07-padding": "padding",
    "08-cross-attention": "cross-attention",
    "09-encoder-and-decoder": "encoder-and-decoder",
    "10-order": "order",
    "11-blocks": "blocks",
    "12-nn-multiheadattention": "nn-multiheadattention",
    "13-fast-paths": "fast-paths",
    "14-microgpt": "microgpt",
    "15-mini-gpt": "mini-gpt",
    "16-training": "training",
    "17-the-cache": "the-cache",
    "18-fewer-keys": "fewer-keys",
    "19-sampling": "sampling",
    "20-watch-it-think": "watch-it-think",
    "21-what-heads-do": "what-heads-do",
    "22-pruning": "pruning",
    "23-five-implementations": "five-implementations",
    "24-the-bug-museum": "the-bug-museum",
    "25-the-kill-matrix": "is-your-attention-right",
}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This chapter has moved</title>
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="0; url=../{new}/">
</head>
<body>
<p>This chapter has moved: <a href="../{new}/">read it at its new address</a>.</p>
</body>
</html>
"""


def add_old_addresses(site: Path) -> None:
    """Write a page at each old address of a built site."""
    for old, new in OLD.items():
        file = site / "chapters" / old / "index.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, _PAGE.format(new=new))


def on_post_build(config: MkDocsConfig) -> None:
    """Write the redirects after MkDocs has built the site."""
    add_old_addresses(Path(config.site_dir))
