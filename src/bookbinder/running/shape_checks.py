"""Check every shape in the signatures of the library, whenever tests run it.

jaxtyping wraps each function of the modules that it is given. It is given those that
name shapes: the scalars of microgpt, which one page calls a million times, run as they
do for a reader.
"""

import sys
from pathlib import Path

import pytest

__all__ = ["check_shapes", "modules_with_shapes"]

_SOURCE = Path(__file__).resolve().parents[2]
_CHECKER = "beartype.beartype"


def check_shapes() -> None:
    """Have the shapes checked of what is imported of the library from now on."""
    # Python looks for the compiled form of what is imported within a module that
    # jaxtyping has changed under another name; beartype is large, and comes before.
    import beartype
    from jaxtyping import install_import_hook, jaxtyped

    del beartype
    with pytest.MonkeyPatch.context() as context:
        # At its first use it imports JAX, if there is one, to shorten JAX's tracebacks.
        context.setitem(sys.modules, "jax", None)
        jaxtyped(typechecker=None)(check_shapes)
    install_import_hook(modules_with_shapes(), _CHECKER)


def modules_with_shapes() -> list[str]:
    """Return the names of the modules of the library that import from jaxtyping."""
    files = (_SOURCE / "tested_transformer").rglob("*.py")
    return sorted(
        ".".join(file.relative_to(_SOURCE).with_suffix("").parts)
        for file in files
        if "from jaxtyping import" in file.read_text(encoding="utf-8")
    )
