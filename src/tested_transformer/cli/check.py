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

import attention_check
from attention_check import CHECKS, Report
from tested_transformer.checking import check_attention
from tested_transformer.cli.display import printable
from tested_transformer.cli.flags import Call
from tested_transformer.data.corpora import whole_file

__all__ = ["Check", "RefusedError", "load_attention"]

# The exit status of each state.
_STATUS = {"right": 0, "within limits": 0, "wrong": 1, "cannot tell": 3}
# What stands around an adapter in a file of its own.
_FILE = inspect.cleandoc(
    '''
    """How {name} is called, and what it should compute.

    Complete each ..., and check again: the file is found by its name. What stands in
    a comment may be left out, and is then not checked.
    """

    from attention_check import Reference, Rotary, allowed, packed, together


    def adapter(layer):
        return dict(
    {lines}
        )
    '''
)


class RefusedError(Exception):
    """An attention cannot be judged, since it cannot be called."""


@dataclass(frozen=True)
class Check:
    """Check your own attention layer. Importing its file runs the code in it.

    Examples:
      tested-transformer check model.py:CausalSelfAttention --with n_embd=64 n_head=4
      tested-transformer check model.py:Attention --with dim=64 heads=4 --causal
      tested-transformer check model.py:attend --call "lambda f, q, k, v: f(q, k, v)"

    A class is called with the settings of --with: as keyword arguments, or as
    attributes of a config if it takes one. If it is not known how the attention is
    called or what it should compute, an adapter is written to a file beside it, which
    you complete. The exit status is 0 if the attention is right, perhaps within limits,
    1 if it is wrong, 3 if that cannot be told, and 2 for bad input.

    Args:
        attention: A file or a module, a colon, and the name of a class or function.
        with_: The settings of the layer.
        call: How it is called, as Python: lambda layer, x, *, causal, real: ...
        like: What it should compute, as Python: Reference(q=layer.q, ...).
        pieces: How it reads with its cache, as Python: lambda layer, parts: ...
        causal: It is causal, if its arguments cannot say.
        both: It attends to both sides.
        adapter: A file with an adapter; by default the one beside the attention.
        d_model: The width of the features, if it cannot be inferred.
        lengths: How many tokens sequences have; 7 and 67 by default.
        skip: Checks to leave out.
    """

    attention: str | None = None
    _: KW_ONLY
    with_: Mapping[str, str] = field(default_factory=dict)
    call: str | None = None
    like: str | None = None
    pieces: str | None = None
    causal: bool = False
    both: bool = False
    adapter: str | None = None
    d_model: int | None = None
    lengths: Sequence[int] = ()
    skip: Sequence[str] = ()

    def run(self, call: Call) -> int:
        """Print the report, and return the exit status."""
        if self.attention is None or not all(self.attention.rpartition(":")[::2]):
            raise ValueError("name an attention, such as model.py:CausalSelfAttention")
        for word in self.skip:
            if word not in CHECKS:
                raise ValueError(f"skip={word!r} must be one of {', '.join(CHECKS)}")
        if self.causal and self.both:
            raise ValueError("causal and both exclude each other")
        attention, names = load_attention(self.attention, dict(self.with_))
        beside = _beside(self.attention)
        file = beside if self.adapter is None else Path(self.adapter)
        settings = self._settings(attention, names, file)
        try:
            report = check_attention(attention, skip=self.skip, **settings)
        except (TypeError, ValueError) as error:
            raise RefusedError(str(error)) from error
        print(json.dumps(report.as_dict()) if call.as_json else printable(str(report)))
        if report.adapter and file is not None and not file.exists():
            _write(report, file)
        return _STATUS[report.state]

    def _settings(
        self, attention: Any, names: dict[str, Any], file: Path | None
    ) -> dict[str, Any]:
        """Return the adapter of a file, with what the command line says instead."""
        settings: dict[str, Any] = {}
        if self.adapter is not None or (file is not None and file.is_file()):
            settings = _read(str(file), attention)
        known = {**vars(attention_check), **names, "layer": attention}
        for name in ("call", "like", "pieces"):
            if (text := getattr(self, name)) is not None:
                try:
                    settings[name] = eval(text, dict(known))
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    raise ValueError(f"--{name} {text!r}: {reason}") from error
        if self.causal or self.both:
            settings["causal"] = self.causal
        if self.d_model is not None:
            settings["d_model"] = self.d_model
        if self.lengths:
            settings["lengths"] = self.lengths
        return settings


def _beside(target: str) -> Path | None:
    """Return where the adapter of an attention in a file lies."""
    place, _, name = target.rpartition(":")
    path = Path(place)
    if path.suffix != ".py":
        return None
    return path.with_name(f"{path.stem}_{name}_adapter.py")


def _read(file: str, attention: Any) -> dict[str, Any]:
    """Return what the adapter in a file says of an attention."""
    make = getattr(_import(file), "adapter", None)
    if not callable(make):
        raise ValueError(f"{file} has no function adapter")
    left = {
        node.lineno: f"{node.arg}="
        for node in ast.walk(ast.parse(Path(file).read_text("utf-8")))
        if isinstance(node, ast.keyword)
        if isinstance(node.value, ast.Constant) and node.value.value is ...
    }
    if left:
        raise ValueError(f"{file}, line {min(left)}: complete {left[min(left)]}...")
    try:
        return {**make(attention)}
    except Exception as error:
        raise ValueError(f"{file}: {type(error).__name__}: {error}") from error


def _write(report: Report, file: Path) -> None:
    """Write an adapter to complete, whole or not at all."""
    inner = report.adapter.splitlines()[2:-1]
    text = _FILE.format(name=report.name, lines="\n".join("    " + x for x in inner))
    with whole_file(file) as opened:
        opened.write(text.encode() + b"\n")
    print(f"Wrote {file}: complete it, and check again.", file=sys.stderr)


def load_attention(
    target: str, settings: Mapping[str, str]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Import a file or a module, and return its attention and the names in it.

    Args:
        target: ``path/to/model.py:Name`` or ``package.module:Name``.
        settings: The arguments for a class, as they were typed.

    Raises:
        ValueError: If it cannot be imported or made.
    """
    place, _, name = target.rpartition(":")
    module = _import(place)
    member = getattr(module, name, None)
    if not callable(member):
        raise ValueError(f"{place} has no class or function {name}")
    if not inspect.isclass(member):
        if settings:
            raise ValueError(f"{name} is not a class, so --with does not apply")
        return member, vars(module)
    values = {key: _value(text) for key, text in settings.items()}
    torch.manual_seed(0)
    try:
        return _make_layer(member, values), vars(module)
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
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
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
