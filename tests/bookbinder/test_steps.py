"""A page passes through the tools in one direction, and each knows those before it."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "bookbinder"
STEPS = [
    *("places", "writing", "page", "running.recording", "listings", "running.blocks"),
    *("running.state", "running.figures", "evidence", "outputs"),
    *("tracing", "shapes", "names", "numbers", "rendering", "audit"),
    *("chapter", "check", "running.signatures", "pytest_plugin"),
]
# The plugin writes the record of a page for the site.
LEFT_OUT = {("pytest_plugin", "publishing.records")}


def test_each_step_knows_only_those_before_it() -> None:
    wrong: list[tuple[str, str]] = []
    for number, step in enumerate(STEPS):
        file = SOURCE / f"{step.replace('.', '/')}.py"
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                package, _, name = node.module.partition(".")
                if package == "bookbinder" and name not in STEPS[:number]:
                    wrong.append((step, name))
    assert {*wrong} == LEFT_OUT
