"""What is read back of a page is what its author wrote, and what went wrong."""

from pathlib import Path

from bookbinder.rendering import render, shown_code

ROOT = Path(__file__).resolve().parents[2]
PAGE = r"""# A page

A root, $\sqrt{2}$, and beside it $\nonsense$, which is no formula.

$$
x < y
$$

```python
print("<span>", 1 < 2)  # a comment
```

```mermaid
flowchart LR
    accTitle: One step
    accDescr: From A to B.
    A["new to this test"] --> B["never drawn"]
```
"""


def test_of_a_drawing_its_frame_is_left_and_of_a_mistake_all() -> None:
    html = render(PAGE, ROOT)
    formulas = html.select(".arithmatex")
    assert [each.name for each in formulas] == ["var", "var", "div"]
    right, wrong, block = formulas
    assert (right.get_text(), block.get_text()) == ("", "")
    (error,) = html.select(".book-error")
    assert error in wrong.find_all(True)
    assert r"\nonsense" in error.get_text()
    assert len(html.select("[data-undrawn]")) == 1


def test_code_is_read_as_it_was_written() -> None:
    (code,) = (s for s in shown_code(render(PAGE, ROOT)) if s.language == "python")
    assert code.text == 'print("<span>", 1 < 2)  # a comment\n'
    assert not render(PAGE, ROOT).select("pre span")
