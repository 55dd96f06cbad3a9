"""The search finds in what is left of a page all that it found in the whole."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from material.plugins.search.plugin import Parser
from mkdocs.plugins import PluginCollection

from bookbinder.wayfinding import searching

ROOT = Path(__file__).parents[3]

FORMULA = '<span class="katex"><span>x</span> <math>x</math></span>'
PAGE = f"""<h1 id="a">A <code>b</code><a class="headerlink" href="#a">#</a></h1>
<p>One <var class="arithmatex" data-search-exclude="">{FORMULA}</var>, <em>two</em>.</p>
<div class="arithmatex" data-search-exclude="">{FORMULA}</div> after it
<figure class="diagram" data-search-exclude=""><svg><text>c</text></svg></figure>
<h2 id="b">B</h2>
<div class="highlight"><pre><span></span><code><span class="k">def</span>  <span
class="nf">f</span>():
    <span class="k">pass</span>

</code></pre></div>
<p>A <span class="d">span</span>  <span>of words</span> and <var>v</var>.</p>
"""


def found(content: str) -> list[tuple[str, str]]:
    parser = Parser()
    parser.feed(content)
    parser.close()
    return [("".join(each.title), "".join(each.text)) for each in parser.data]


def test_the_same_is_found_in_what_is_left() -> None:
    left = searching.said(PAGE)
    assert found(left) == found(PAGE)
    assert "def  f():\n    pass" in found(left)[1][1]
    for gone in ("katex", "<svg>", "</figure>", 'class="k"'):
        assert gone in PAGE
        assert gone not in left
    for kept in (", <em>two</em>", "\n after it\n", '<span class="d">', "<var>v</var>"):
        assert kept in left


@pytest.mark.parametrize("content", [PAGE, None])
def test_the_page_is_whole_when_the_search_has_read_it(content: str | None) -> None:
    seen: list[str] = []
    page = SimpleNamespace(content=content, file=SimpleNamespace(src_uri="a.md"))

    class Search:
        """Read a page, at the moment that the theme's search does."""

        def on_page_context(self, context: object, *, page: SimpleNamespace) -> None:
            seen.append(page.content)

    plugins = PluginCollection()
    plugins["search"] = Search()
    plugins["searching"] = searching
    plugins.run_event("page_context", {}, page=page)
    assert seen == [searching.said(content or "")]
    assert page.content == (content or "")


def test_the_book_is_built_with_it() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert "\nhooks:\n  - src/bookbinder/wayfinding/searching.py\n" in text
