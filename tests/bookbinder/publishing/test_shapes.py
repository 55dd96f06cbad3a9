"""A shape in a type of the reference stays in one line."""

import pytest

from bookbinder.publishing.shapes import with_whole_shapes


def test_what_a_type_quotes_is_wrapped() -> None:
    tensor = '<span title="torch.Tensor">Tensor</span>'
    page = f"<td>\n<code>Float[{tensor}, {{}}] | Int[{tensor}, {{}}]</code>\n</td>"
    first, second = "&#34;B T S&#34;", "&#34;B S&#34;"
    whole = '<span class="whole">{}</span>'
    assert with_whole_shapes(page.format(first, second)) == page.format(
        whole.format(first), whole.format(second)
    )


@pytest.mark.parametrize(
    "page",
    [
        "<p><code>print(&#34;a b&#34;)</code></p>",
        "<td>\n<code>int</code> or &#34;a word&#34; of prose\n</td>",
        '<td><code><span title="torch.Tensor">Tensor</span></code></td>',
        '<td><code><a title="&lt;i class=&#34;a&#34;&gt;">Error</a></code></td>',
    ],
)
def test_all_else_stays_as_it_is(page: str) -> None:
    assert with_whole_shapes(page) == page
