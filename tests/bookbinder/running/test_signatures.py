"""What names a shape is checked, and nothing else is slowed down."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bookbinder.running.signatures import check_shapes, forget_calls
from tested_transformer.attention import attention_scores

ROOT = Path(__file__).resolve().parents[3]


def test_the_first_calls_of_each_function_are_checked_in_every_test() -> None:
    q, wrong = torch.ones(2, 3, 4), torch.ones(2, 5, 6)
    for _ in range(2):
        attention_scores(q, q)
    with pytest.raises(Exception, match="d_k") as refused:
        attention_scores(q, wrong)
    assert type(refused.value).__module__.startswith("jaxtyping")
    with pytest.raises(RuntimeError, match="Expected size"):  # by PyTorch
        attention_scores(q, wrong)
    forget_calls()
    with pytest.raises(Exception, match="d_k"):
        attention_scores(q, wrong)


SOURCE = """
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass
class Pair:
    x: Float[Tensor, "t"]
    y: Float[Tensor, "t"]

    @property
    def both(self) -> tuple[Float[Tensor, "2 t"], list[Float[Tensor, "t"]] | None]:
        return self.x, None


@contextmanager
def inside(x: Float[Tensor, "t"]) -> Iterator[Float[Tensor, "t"]]:
    yield x


def later(x: "Float[Tensor, 't']") -> None: ...


@dataclass
class Plain:
    x: int

    def double(self) -> int:
        return 2 * self.x
"""


def test_a_function_or_dataclass_is_checked_if_it_names_a_shape() -> None:
    tree = ast.parse(SOURCE)
    names = check_shapes(tree, SOURCE, "pair.py")
    exec(compile(tree, "pair.py", "exec"), names)
    two = torch.ones(2)
    for wrong in (
        lambda: names["Pair"](two, torch.ones(3)),
        lambda: names["Pair"](two, two).both,
        lambda: names["inside"](torch.ones(2, 2)).__enter__(),
        lambda: names["later"](torch.ones(2, 2)),
    ):
        with pytest.raises(Exception, match="t") as refused:
            wrong()
        assert type(refused.value).__module__.startswith("jaxtyping")
    assert names["Plain"]("no").double() == "nono"
    assert not hasattr(names["Plain"].double, "__wrapped__")
    assert check_shapes(ast.parse("x = 1"), "x = 1", "x.py") == {}


@pytest.mark.nightly
def test_checking_imports_no_jax_and_running_a_page_no_compiler(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n\n```python\nimport sys\n\n"
        "from tested_transformer.attention import attention_scores\n\n"
        "assert hasattr(attention_scores, '__wrapped__')\n"
        "assert not {'jax', 'torch._inductor'} & {*sys.modules}\n```\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-k", "line", str(page)]
    done = subprocess.run([*command, "-c", str(ROOT / "pyproject.toml")], cwd=ROOT)
    assert not done.returncode
