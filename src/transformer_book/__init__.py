"""Material for the book only: small models, records, plots and graders.

``museum``, ``implementations``, ``microgpt``, ``outcomes`` and ``plots`` are separate
modules. The folder also contains files: trained models, measurements that take too long
for a page, and the GPT in JavaScript that runs in the browser. Import the graders of
the exercises, whose names begin with ``grade_``, from here.
"""

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

__all__ = ["JAVASCRIPT", "MODELS", "RECORDS", "load_record", "model_folder"]

_HERE = Path(__file__).resolve().parent
JAVASCRIPT = _HERE / "javascript"
MODELS = _HERE / "models"
RECORDS = _HERE / "records"


def load_record(name: str) -> dict[str, Any]:
    """Return the measurements that ``python -m benchmarks NAME`` recorded.

    Args:
        name: The name of the benchmark, such as ``scaling``; or ``h100``, figures of a
            GPU from a script of their own.

    Returns:
        ``results``, and a ``stamp`` with the date, the machine and the versions.

    Raises:
        ValueError: If there is no such record.
    """
    file = RECORDS / f"{name}.json"
    _check_name(name, {file.stem for file in RECORDS.glob("*.json")})
    return json.loads(file.read_text("utf-8"))


def model_folder(name: str) -> Path:
    """Return the folder of a small trained model, for ``load_shipped``.

    Args:
        name: ``grammar``, ``grammar-2`` to ``grammar-5``, or ``shakespeare``.

    Raises:
        ValueError: If there is no such model.
    """
    _check_name(name, {file.parent.name for file in MODELS.glob("*/card.json")})
    return MODELS / name


def _check_name(name: str, known: set[str]) -> None:
    if name not in known:
        raise ValueError(f"name={name!r} must be one of {', '.join(sorted(known))}")


def __getattr__(name: str) -> Any:
    """Return a grader from ``exercises``, which is imported only when needed."""
    if name.startswith("grade_"):
        for chapter in pkgutil.iter_modules([str(_HERE / "exercises")]):
            module = importlib.import_module(f"{__name__}.exercises.{chapter.name}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
