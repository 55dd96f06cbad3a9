"""Code says how high and how wide it will be before a browser has set it."""

import pytest

from bookbinder.publishing.sizes import with_sizes


@pytest.mark.parametrize(
    ("code", "lines", "columns"),
    [
        ('<span class="k">def</span> f():\n    pass\n', 2, 8),
        ("a\n\n  b &lt;= &quot;c&quot;\n", 3, 10),
        ("one", 1, 3),
        ("\n", 1, 0),
        ("no line ends the last\n\n", 2, 21),
    ],
)
def test_a_block_has_its_lines_and_columns(code: str, lines: int, columns: int) -> None:
    block = f"<pre><span></span><code>{code}</code></pre>"
    sizes = f"--lines:{lines};--columns:{columns}"
    assert with_sizes(block) == (
        f'<pre><span></span><code><span class="sized" style="{sizes}">{code}</span>'
        "</code></pre>"
    )


def test_code_in_a_line_stays_as_it_is() -> None:
    assert with_sizes("<p><code>a</code></p>") == "<p><code>a</code></p>"
