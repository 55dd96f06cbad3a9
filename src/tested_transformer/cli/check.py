"""``tested-transformer check``: check the attention in your own file."""

import ast
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from tested_transformer.checking import CHECKS, check_attention
from tested_transformer.checking.styles import MEANINGS, STYLES
from tested_transformer.cli.display import printable
from tested_transformer.cli.flags import Call

__all__ = ["Check", "RefusedError", "load_attention"]

# The exit status of each result.
_STATUS = {"right": 0, "wrong": 1, "not known": 3}


class RefusedError(Exception):
    """An attention cannot be judged, since it cannot be called."""


@dataclass(frozen=True)
class Check:
    """Check your own attention layer. Importing its file runs the code in it.

    Examples:
      tested-transformer check model.py:CausalSelfAttention --with n_embd=64 n_head=4
      tested-transformer check package.module:attend --style sdpa
      tested-transformer check model.py:Attention --with dim=64 heads=4 --json

    A class is called with the settings of --with: as keyword arguments, or as
    attributes of a config if it takes one. A function is checked as it is. The exit
    status is 0 if the attention is right, 1 if it is wrong, 3 if it cannot be judged,
    which includes that no way to call it was found, and 2 for bad input.

    Args:
        attention: A file or a module, a colon, and the name of a class or function.
        with_: The settings of the layer.
        style: How it is called: ``STYLES``.
        d_model: The width of the features, if it cannot be inferred.
        num_heads: The number of heads, if it cannot be inferred.
        mask_means: The meaning of its mask: ``MEANINGS``.
        projections: The names of its projections, if they are not found.
        skip: Checks to leave out.
    """

    attention: str | None = None
    _: KW_ONLY
    with_: Mapping[str, str] = field(default_factory=dict)
    style: str | None = None
    d_model: int | None = None
    num_heads: int | None = None
    mask_means: str | None = None
    projections: Sequence[str] = ()
    skip: Sequence[str] = ()

    def run(self, call: Call) -> int:
        """Print the report, and return the exit status."""
        if self.attention is None or not all(self.attention.rpartition(":")[::2]):
            raise ValueError("name an attention, such as model.py:CausalSelfAttention")
        attention = load_attention(self.attention, dict(self.with_))
        for name, known, words in (
            ("style", STYLES, [self.style]),
            ("mask_means", MEANINGS, [self.mask_means]),
            ("skip", CHECKS, self.skip),
        ):
            for word in words:
                if word is not None and word not in known:
                    raise ValueError(
                        f"{name}={word!r} must be one of {', '.join(known)}"
                    )
        try:
            report = check_attention(
                attention,
                style=self.style,
                d_model=self.d_model,
                num_heads=self.num_heads,
                mask_means=self.mask_means,
                projections=self.projections,
                skip=self.skip,
            )
        except (TypeError, ValueError) as error:
            raise RefusedError(str(error)) from error
        print(json.dumps(report.as_dict()) if call.as_json else printable(str(report)))
        return _STATUS[report.state]


def load_attention(target: str, settings: Mapping[str, str]) -> Callable[..., Any]:
    """Import a file or a module, and return its attention, ready to be called.

    Args:
        target: ``path/to/model.py:Name`` or ``package.module:Name``.
        settings: The arguments for a class, as they were typed.

    Raises:
        ValueError: If it cannot be imported or made.
    """
    place, _, name = target.rpartition(":")
    found = getattr(_import(place), name, None)
    if not callable(found):
        raise ValueError(f"{place} has no class or function {name}")
    if not inspect.isclass(found):
        if settings:
            raise ValueError(f"{name} is not a class, so --with does not apply")
        return found
    values = {key: _value(text) for key, text in settings.items()}
    torch.manual_seed(0)
    try:
        return _make_layer(found, values)
    except Exception as error:
        message = f"{name} cannot be made: {type(error).__name__}: {error}"
        commas = any("," in text for text in settings.values())
        apart = ", with spaces between settings, not commas" if commas else ""
        raise ValueError(f"{message}; pass what it needs to --with{apart}") from error


def _import(place: str) -> ModuleType:
    is_file = place.endswith(".py")
    path = Path(place)
    if is_file and not path.is_file():
        raise ValueError(f"{place}: no such file")
    print(f"Importing {place}, which runs the code in it.", file=sys.stderr)
    # As when the file is run, it can import modules from its own folder.
    sys.path.insert(0, str(path.resolve().parent) if is_file else "")
    try:
        if not is_file:
            return importlib.import_module(place)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        before = sys.modules.get(path.stem)
        sys.modules[path.stem] = module  # where dataclasses look for it
        try:
            spec.loader.exec_module(module)
        finally:
            if before is not None:
                sys.modules[path.stem] = before
        return module
    except SystemExit:
        raise ValueError(
            f"{place} ends Python when it is imported: put what runs its program under "
            "if __name__ == '__main__':"
        ) from None
    except Exception as error:
        raise ValueError(f"{place}: {type(error).__name__}: {error}") from error
    finally:
        del sys.path[0]


def _make_layer(kind: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a class with keywords, and put those it does not take into a config."""
    parameters = inspect.signature(kind).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return kind(**values)
    own = {name: value for name, value in values.items() if name in parameters}
    rest = {name: value for name, value in values.items() if name not in parameters}
    if not rest:
        return kind(**own)
    return kind(SimpleNamespace(**rest), **own)


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
