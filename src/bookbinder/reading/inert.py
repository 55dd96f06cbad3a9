"""Languages that a page may show and no test runs, and what is still asked of them."""

import json
import re
import tomllib

import yaml

INERT_LANGUAGES = frozenset(
    {"console", "json", "live", "markdown", "mermaid", "toml", "yaml"}
)

_PYTHON = re.compile(
    r"^\s*(>>> |import \w|from [\w.]+ import |def \w+\(|class \w+[(:]|print\()",
    re.MULTILINE,
)
_COMMAND = re.compile(r"\$ \S|\s*$")


def inert_problem(language: str, text: str) -> str | None:
    """Say what is wrong with an inert block, or nothing.

    Python in disguise is refused: it would be read as code that has run. Data must
    at least parse.
    """
    if _PYTHON.search(text):
        return f"this is Python, shown as {language} and never run: use ```python"
    if language == "console" and not all(map(_COMMAND.match, text.splitlines())):
        return "a console block holds commands, each after $: an output must have run"
    try:
        if language == "json":
            json.loads(text)
        elif language == "toml":
            tomllib.loads(text)
        elif language == "yaml":
            yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        return f"this is not {language}: {' '.join(str(error).split())}"
    return None
