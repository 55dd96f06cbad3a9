"""A book of three pages, with its library and the site that an engine made of it."""

from pathlib import Path

import pytest

from bookbinder.publishing.publish import PLACE
from bookbinder.writing import write_whole

CHAPTER = """\
---
description: How sums are made.
search:
  boost: 2
---

# Sums

How do you add two numbers? Ask the [home page](../index.md#why), or read [on](#more).

```python
from adding import add

print(add(1, 2))
```

<!--pytest-codeblocks:expected-output-->
```text
3
```

```py title="src/tested_transformer/adding.py"
--8<-- "src/tested_transformer/adding.py:add"
```

<!--pytest-codeblocks:cont-->
```python
from pathlib import Path

Path("total.svg").write_text(f"<svg>{add(-1, 5)}</svg>")
```

![A bar as high as the total of the last sum is.](../assets/figures/01-sums/total.svg)

## More

```mermaid
flowchart LR
    accTitle: A sum
    accDescr: Two numbers make one.
    %% A = rand(B)
    A["a: (B)"] --> C["c: (B)"]
```

```python
import math

print(math.pi > 3)
```

<!-- within 5% -->
<!--pytest-codeblocks:expected-output-->
```text
True
```

/// details | Solution
    open: False

See `[a](b)` and $[x](y)$, or [elsewhere](https://example.org/x).
///
"""

LIBRARY = '''\
"""Sums."""


# --8<-- [start:add]
def add(a, b):
    """Add two numbers."""
    if a < 0:
        a = -a
        return b - a
    return a + b
# --8<-- [end:add]
'''

HOME = """\
# The Book

A book of sums.

## Why

Because.
"""

CONFIG = """\
site_name: The Book
site_description: A book of sums & little else.
copyright: Free.
site_url: !ENV [SITE_URL, ""]
nav:
  - Home: index.md
  - I. Sums:
      - Sums: chapters/01-sums.md
  - Checked: how-this-book-is-checked.md
markdown_extensions:
  - toc:
      slugify: !!python/object/apply:pymdownx.slugs.slugify
        kwds: {case: lower}
"""

CHANGELOG = """\
# Changelog

Newest first.

## 0.2.0

### Added

- `add`: sums & more. They are
  exact.
- Differences.

## 0.1.0

- Nothing.
"""

SVG = '<?xml version="1.0"?>\n<svg viewBox="0 0 9 9"><path d="M0 0h9"/></svg>\n'

PAGE = """\
<!doctype html><html lang="en"><head><title>{title}</title>\
<link rel="stylesheet" href="{up}assets/book.css"></head><body>
<nav><a href="{up}.">Home</a> <a href="{up}chapters/01-sums/#more">More</a></nav>
<article class="md-content__inner md-typeset">
<span class="offers"></span>
{article}
</article><footer>end</footer></body></html>
"""

ARTICLE = """\
<h1 id="sums">Sums<a class="headerlink" href="#sums">&para;</a></h1>
<p>Ask the <a href="../../#why">home page</a>, or read <a href="#more">on</a>.</p>
<div class="language-python highlight"><pre><code>print(add(1, 2))</code></pre></div>
<div class="language-text highlight"><pre><code>3</code></pre></div>
<div class="language-py highlight"><span class="filename">adding.py</span>\
<pre><code>def add(a, b):
    &quot;&quot;&quot;Add two numbers.&quot;&quot;&quot;
    if a &lt; 0:
        a = -a
        return b - a
    return a + b
</code></pre></div>
<div class="language-python highlight"><pre><code>add(-1, 5)</code></pre></div>
<h2 id="more">More</h2>
<figure><svg aria-labelledby="t"><title id="t">Sum</title><path id="p"/>\
<use href="#p" fill="url(#p)"/></svg></figure>
<div class="language-python highlight"><pre><code>math.pi</code></pre></div>
<details class="solution"><summary>Solution</summary></details>
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The repository."""
    files = {
        "mkdocs.yml": CONFIG,
        "CHANGELOG.md": CHANGELOG,
        "constraints.txt": "torch==2.13.0\n",
        "src/tested_transformer/adding.py": LIBRARY,
        "docs/index.md": HOME,
        "docs/how-this-book-is-checked.md": f"# Checked\n\nWho says so?\n\n{PLACE}\n",
        "docs/chapters/01-sums.md": CHAPTER,
        "docs/assets/figures/01-sums/total.svg": SVG,
    }
    for name, text in files.items():
        write_whole(tmp_path / "repository" / name, text)
    return tmp_path / "repository"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """What an engine made of it."""
    articles = {
        "": '<h1 id="the-book">The Book</h1><h2 id="why">Why</h2>',
        "chapters/01-sums/": ARTICLE,
        "how-this-book-is-checked/": f"<h1>Checked</h1><p>{PLACE}</p>",
    }
    site = tmp_path / "site"
    write_whole(site / "404.html", "gone")
    write_whole(site / "assets/book.css", "p { color: red; }\n")
    for name, article in articles.items():
        up = "../" * name.count("/")
        html = PAGE.format(title=name, up=up, article=article)
        write_whole(site / name / "index.html", html)
    return site
