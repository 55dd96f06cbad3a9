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


def test_of_a_drawing_its_frame_is_left_of_a_mistake_all_and_code_as_written() -> None:
    html = render(PAGE, ROOT)
    formulas = html.select(".arithmatex")
    assert [formula.name for formula in formulas] == ["var", "var", "div"]
    right, wrong, block = formulas
    assert (right.get_text(), block.get_text()) == ("", "")
    (error,) = html.select(".book-error")
    assert error in wrong.find_all(True)
    assert r"\nonsense" in error.get_text()
    assert len(html.select("[data-undrawn]")) == 1
    (code,) = (shown for shown in shown_code(html) if shown.language == "python")
    assert code.text == 'print("<span>", 1 < 2)  # a comment\n'
    assert not html.select("pre span")
