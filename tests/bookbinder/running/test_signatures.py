"""What names a shape is checked, and nothing else is slowed down."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bookbinder.running.signatures import forget_calls, modules_with_shapes
from tested_transformer.attention import attention_scores
from transformer_book.microgpt import Scalar

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


def test_a_module_is_checked_exactly_if_it_imports_shapes() -> None:
    checked = modules_with_shapes()
    assert "tested_transformer.attention" in checked
    assert "transformer_book.microgpt" not in checked
    assert not hasattr(Scalar.__add__, "__wrapped__")


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
