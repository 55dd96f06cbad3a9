"""Long code says where a line may end in it; short code ends no line."""

import markdown
import pytest


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("torch.nn.functional.scaled_dot_product_attention",
         "torch.|nn.|functional.|scaled_|dot_|product_|attention"),
        ("a < b and an_even_longer_name_than_a_line(x)",
         "a &lt; b and an_even_|longer_|name_|than_|a_|line(x)"),
        (".github/workflows/comment.yml", ".github/|workflows/|comment.yml"),
        ("F.a_name_longer_than_a_phone", "F.a_|name_|longer_|than_|a_|phone"),
        ("weights.sum(-1), then torch.ones", "weights.sum(-1), then torch.ones"),
    ],
)  # fmt: skip
def test_a_name_longer_than_a_line_may_end_one(code: str, shown: str) -> None:
    html = markdown.markdown(f"`{code}`", extensions=["bookbinder.wayfinding.lines"])
    pieces = shown.replace("|", "<wbr />")
    assert html == f'<p><code class="long">{pieces}</code></p>'


def test_short_code_ends_no_line() -> None:
    html = markdown.markdown(
        "`a.b_c(d, e)`", extensions=["bookbinder.wayfinding.lines"]
    )
    assert html == "<p><code>a.b_c(d, e)</code></p>"


@pytest.mark.parametrize(
    ("prose", "shown"),
    [
        ("of shape (B, T) and *(2, 3, -1)*", "of shape (B,|T) and <em>(2,|3,|-1)</em>"),
        ("within [0, 1].", "within [0,|1]."),
        ("(so, for example, this)", "(so, for example, this)"),
        ("`(a, b)`", "<code>(a, b)</code>"),
    ],
)
def test_a_tuple_in_prose_ends_no_line(prose: str, shown: str) -> None:
    html = markdown.markdown(prose, extensions=["bookbinder.wayfinding.lines"])
    assert html == f"<p>{shown.replace('|', chr(0xA0))}</p>"
