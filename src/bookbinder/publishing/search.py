"""Make the search of a built site forgiving and quick: a shorter index, a wiser worker.

Code makes two fifths of the index that the theme writes, and says little twice. Of the
code of a section the index keeps the words that its text lacks, each once, in a field
that no result shows.
"""

import json
import re
from html import unescape
from pathlib import Path

from bookbinder.writing import write_whole

_CODE = re.compile(r"<pre>.*?</pre>\s*", re.DOTALL)
_WORD = re.compile(r"[a-z_]\w{2,}")
_WORKER = Path(__file__).with_name("search.js")


def improve_search(site: Path) -> None:
    """Shorten the search index of a site, if any, and teach the worker its reading."""
    file = site / "search/search_index.json"
    if not file.is_file():
        return
    index = json.loads(file.read_text("utf-8"))
    for section in index["docs"]:
        shorten(section)
    write_whole(file, json.dumps(index, ensure_ascii=False, separators=(",", ":")))
    ours = _WORKER.read_text("utf-8")
    for worker in site.glob("assets/javascripts/workers/*.js"):
        theirs = worker.read_text("utf-8")
        if not theirs.startswith(ours):
            write_whole(worker, ours + theirs)


def shorten(section: dict[str, str]) -> None:
    """Replace the code in a section's text by its words, as a field of their own."""
    text = _CODE.sub("", section["text"])
    code = " ".join(_CODE.findall(section["text"]))
    words = dict.fromkeys(_WORD.findall(unescape(re.sub("<[^>]*>", "", code)).lower()))
    known = {*_WORD.findall(text.lower())}
    section["text"] = text
    section["code"] = " ".join(word for word in words if word not in known)
