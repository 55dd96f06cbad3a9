"""What stands in backticks is the name of something, or is refused with its line."""

from pathlib import Path

import pytest

from bookbinder.names.backticks import name_problems
from bookbinder.reading.pages import read_page

ROOT = Path(__file__).parents[3]
PAGE = """# Names

{prose}

```python
my_tensor = [1.0]
print(len(my_tensor), "keys and values")
```

<!--pytest-codeblocks:expected-output-->
```text
1 keys and values
```

```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:causal"
```
"""


def problems(prose: str, path: str = "docs/chapters/page.md") -> list[str]:
    page = read_page(PAGE.format(prose=prose), path)
    return [str(problem) for problem in name_problems(page, ROOT)]


@pytest.mark.parametrize(
    "span",
    [
        # of the page: its runs, its outputs, its listings
        "my_tensor",
        "my_tensor[0]",
        "1 keys and values",
        "key_positions <= query_positions",
        # of the library
        "MultiHeadAttention",
        "MultiHeadAttention(d_model=8, num_heads=2).q_proj.weight",
        "GPTConfig",
        "tested_transformer.plots.head_maps",
        "scaled_dot_product_attention(q, k, v, causal=True)",
        "num_kv_heads=",
        "return_weights=True",
        "context_mask",
        # of torch and Python
        "nn.MultiheadAttention",
        "need_weights=False",
        "attn_mask",
        "F.scaled_dot_product_attention",
        "torch.nn.functional.scaled_dot_product_attention",
        "torch.nn.attention.flex_attention",
        "Tensor.view",
        "score_mod",
        ".eval()",
        "x.mT",
        "dict.get(key, default)",
        "ValueError",
        "jnp.array(mask.numpy())",
        "jax.nn.dot_product_attention",
        "math.exp",
        "PIP_EXTRA_INDEX_URL",
        "model.decode(target, context, context_mask=...)",
        # shapes, files, commands, signs
        "(B, H, T, d_k)",
        "(B * H, T, S)",
        "src/tested_transformer/masks.py",
        "encoder.py",
        "make page PAGE=…",
        "python -m benchmarks scaling",
        "tested-transformer generate",
        "~",
    ],
)
def test_a_name_of_something_is_accepted(span: str) -> None:
    assert problems(f"Here is `{span}`.") == []


@pytest.mark.parametrize(
    ("span", "reason"),
    [
        ("my_tensors", "nothing is called my_tensors"),
        ("MultiheadAttentions", "nothing is called MultiheadAttentions"),
        ("nn.MultiHeadAttention", "nothing has an attribute MultiHeadAttention"),
        (
            "jax.nn.scaled_dot_product_attention",
            "nothing has an attribute scaled_dot_product_attention",
        ),
        ("math.expo", "nothing has an attribute expo"),
        ("PIP_INDEX_URL", "no workflow of the repository sets it"),
        ("torch.nn.functionl", "nothing has an attribute functionl"),
        ("tested_transformer.plots.maps", "nothing has an attribute maps"),
        ("need_weigths=False", "nothing is called need_weigths"),
        ("num_kv_head=", "nothing takes num_kv_head"),
        ("MultiHeadAttention(heads=2)", "MultiHeadAttention takes no heads"),
        ("my_tensor.q_prj", "nothing has an attribute q_prj"),
        ("1 keys or values", "neither Python nor anything that a block of this page"),
        ("(B, H, T, d_q)", "d_q is no size of the legend"),
        ("src/tested_transformer/mask.py", "there is no such file"),
        ("decode.py", "there is no such file"),
        ("make pages", "the Makefile has no pages"),
        ("python -m benchmark scaling", "there is no module benchmark"),
        ("python -m benchmarks scale", "benchmarks knows no scale"),
        ("tested-transformer compose", "the command has no compose"),
    ],
)
def test_a_name_of_nothing_is_refused(span: str, reason: str) -> None:
    (problem,) = problems(f"Here is `{span}`.")
    assert problem.startswith(f"docs/chapters/page.md:3: `{span}`: {reason}")


def test_a_name_of_another_project_stands_beside_a_link_to_it() -> None:
    assert problems("See `hparams_of` there.")
    link = "[openai/gpt-2](https://github.com/openai/gpt-2)"
    assert problems(f"See `hparams_of` of {link}.") == []
    assert problems(f"See `transformers` and {link}.") == []


@pytest.mark.parametrize("slip", ["trnsformers", "rue", "Treu", "Nonee", "multihed"])
def test_nearly_a_name_that_all_know_is_none_of_another_project(slip: str) -> None:
    link = "[openai/gpt-2](https://github.com/openai/gpt-2)"
    assert problems(f"See `{slip}` of {link}.")


def test_what_a_formula_names_a_span_may_name() -> None:
    assert problems("The matrix, `my_tensor @ M`.")
    assert problems("The matrix $M$, `my_tensor @ M`.") == []


def test_pages_of_the_repository_may_name_its_tools() -> None:
    prose = "`diagram_problems`, `Makefile`, `.venv`, `/// tab | Title`"
    assert problems(prose, "CONTRIBUTING.md") == []
    assert len(problems(prose)) == 3


def test_spans_within_a_fence_are_not_prose() -> None:
    assert problems("```console\n$ echo `no_such_name`\n```") == []


def test_a_single_letter_stands_in_code_under_its_heading() -> None:
    code = "```python\nq = 1.0\nassert q\n```\n\n"
    text = "## One\n\nA query `q`.\n\n" + code + "## Two\n\n"

    def said(prose: str) -> list[str]:
        page = read_page(text + prose, "docs/chapters/page.md")
        return [str(problem) for problem in name_problems(page, ROOT)]

    assert said("Words.") == []
    assert said("A query `q` of $Q$, or `t` in `mask[t, s]`, a shape of `T`.") == []
    reason = "no code under this heading has this letter, and no formula beside it"
    assert said("A query `q`.") == [f"docs/chapters/page.md:12: `q`: {reason}"]
    assert said("A query `k` of $Q$.") == [f"docs/chapters/page.md:12: `k`: {reason}"]


def test_a_mark_of_a_page_is_spelled_as_elsewhere() -> None:
    assert problems("`/// tab | Names` and `/// admonition`.") == []
    (problem,) = problems("`/// tab | Nmaes`.")
    assert problem.endswith("`/// tab | Nmaes`: nothing else says Nmaes: Names?")


def test_what_the_reference_shows_is_there() -> None:
    assert problems("::: tested_transformer.heads") == []
    (problem,) = problems("::: tested_transformer.mask")
    assert "::: tested_transformer.mask: nothing has an attribute mask" in problem
