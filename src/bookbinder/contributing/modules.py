"""Begin a module of the library: with its tests, its arrows, and a chapter's quote."""

import ast
import keyword
import re
from pathlib import Path

from bookbinder.contributing.inserting import ChapterError, with_line

__all__ = ["add_module"]

_LIBRARY = "src/tested_transformer"
_TESTS = "tests/tested_transformer"
_RULES = "tests/test_repository.py"
_REFERENCE = "docs/reference"
# Where in a chapter the section goes that quotes the module.
_BEFORE = "\n## Exercises\n"

_MODULE = '''\
"""{title}.

One idea: say here which, and what a caller has to know of it.
"""

import torch
from jaxtyping import Int
from torch import Tensor

__all__ = ["positions_back"]


# --8<-- [start:back]
def positions_back(num_queries: int, num_keys: int) -> Int[Tensor, "T S"]:
    """Count how many positions each key lies behind each query.

    The last query stands at the last key.

    Args:
        num_queries: T, the number of query positions.
        num_keys: S, the number of key positions.

    Raises:
        ValueError: If there are more queries than keys.
    """
    if num_queries > num_keys:
        raise ValueError(f"num_queries={{num_queries}} exceeds num_keys={{num_keys}}")
    queries = torch.arange(num_keys - num_queries, num_keys)
    return queries[:, None] - torch.arange(num_keys)


# --8<-- [end:back]
'''

_TEST = '''\
"""How many positions each key lies behind each query."""

import pytest

from tested_transformer.{module} import positions_back


def test_the_last_query_stands_at_the_last_key() -> None:
    assert positions_back(2, 3).tolist() == [[1, 0, -1], [2, 1, 0]]


def test_more_queries_than_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="num_queries=3 exceeds num_keys=2"):
        positions_back(3, 2)
'''

_PAGE = """\
# {module}

`tested_transformer.{module}`

::: tested_transformer.{module}
"""

_SECTION = """
## In the library

What readers may want to copy is a module of the library, with its own tests. The page
quotes it, and runs each of its lines:

```py title="src/tested_transformer/{module}.py"
--8<-- "src/tested_transformer/{module}.py:back"
```

```python
from tested_transformer.{module} import positions_back

print(positions_back(2, 3))
try:
    positions_back(3, 2)
except ValueError as error:
    print(error)
```

<!--pytest-codeblocks:expected-output-->
```text
tensor([[ 1,  0, -1],
        [ 2,  1,  0]])
num_queries=3 exceeds num_keys=2
```
"""


def add_module(root: Path, module: str, page: str, new: dict[str, str]) -> None:
    """Add a module, all that belongs to it, and its quotation to a chapter.

    Args:
        root: The repository.
        module: The name of the module.
        page: The path of the chapter.
        new: For each file that is to be written its text; what is needed is added.

    Raises:
        ChapterError: If no module can be called so.
    """
    rules = (root / _RULES).read_text("utf-8")
    _refuse(root, module, _value_of("drawers", rules))
    title = new[page].partition("\n")[0].removeprefix("# ").rstrip(".?")
    before, exercises, rest = new[page].partition(_BEFORE)
    if not exercises:
        raise ChapterError(f"{page}: wanted the heading {_BEFORE.strip()!r}")
    new[page] = before + _SECTION.format(module=module) + exercises + rest
    new[f"{_LIBRARY}/{module}.py"] = _MODULE.format(title=title)
    new[f"{_TESTS}/test_{module}.py"] = _TEST.format(module=module)
    new[_RULES] = _with_arrows(rules, module)
    new[f"{_REFERENCE}/{module}.md"] = _PAGE.format(module=module)
    for path, like, line in (
        (
            "mkdocs.yml",
            r"- \w+: reference/\w+\.md",
            f"- {module}: reference/{module}.md",
        ),
        (
            f"{_REFERENCE}/index.md",
            r"\| \[\w+\]\(\w+\.md\) \|.*\|",
            f"| [{module}]({module}.md) | {title}. |",
        ),
    ):
        text = new.get(path) or (root / path).read_text("utf-8")
        new[path] = with_line(text, like, line, path=path)


def _refuse(root: Path, module: str, drawers: set[str]) -> None:
    """Refuse what is no name of a module, or is the name of another."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", module) or keyword.iskeyword(module):
        raise ChapterError(
            f"MODULE={module!r}: wanted the name of a Python module, in small letters"
        )
    if module in drawers:
        raise ChapterError(
            f"MODULE={module!r}: a module is called by its one idea, none of "
            f"{', '.join(sorted(drawers))}"
        )
    names = (module, f"{module}.py")
    taken = [f"{_LIBRARY}/{name}" for name in names]
    taken += [f"{_TESTS}/{module}", f"{_TESTS}/test_{module}.py"]
    for path in taken:
        if (root / path).exists():
            raise ChapterError(f"MODULE={module!r}: {path} is there, take another name")


def _with_arrows(rules: str, module: str) -> str:
    """Add a module to the table that says what each module may import."""
    head, begin, rest = rules.partition("\nARROWS = {\n")
    table, end, tail = rest.partition("\n}\n")
    if not begin or not end:
        raise ChapterError(f"{_RULES}: wanted a table ARROWS = {{...}}")
    return f'{head}{begin}{table}\n    "{module}": set[str](),{end}{tail}'


def _value_of(name: str, source: str) -> set[str]:
    """Give what a name is set to somewhere in a source, if it is a literal."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return ast.literal_eval(value)
            case _:
                pass
    return set()
