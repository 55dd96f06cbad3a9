"""``python -m bookbinder.installation.vendor``: copy assets out of ``node_modules``.

The book serves them itself, so that no page asks any other host for anything.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# Every browser that KaTeX still supports reads woff2.
_OTHER_FONTS = re.compile(r',url\([^)]*\.(?:woff|ttf)\) format\("\w+"\)')


def vendor(modules: Path, target: Path) -> bool:
    """Make ``target`` hold exactly the assets of the book; tell if that changed it.

    Raises:
        FileNotFoundError: If ``modules`` lacks one of them.
    """
    wanted = _assets(modules)
    present = {file for file in target.rglob("*") if file.is_file()}
    if present == {target / name for name in wanted} and all(
        (target / name).read_bytes() == content for name, content in wanted.items()
    ):
        return False
    if target.exists():
        shutil.rmtree(target)
    for name, content in wanted.items():
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return True


def _assets(modules: Path) -> dict[str, bytes]:
    katex = modules / "katex" / "dist"
    css = (katex / "katex.min.css").read_text(encoding="utf-8")
    fonts = sorted((katex / "fonts").glob("*.woff2"))
    return {
        "katex/katex.min.css": _OTHER_FONTS.sub("", css).encode(),
        **{f"katex/fonts/{font.name}": font.read_bytes() for font in fonts},
        # For a diagram that is not drawn yet, in a preview; no published page has it.
        "mermaid/mermaid.min.js": (
            modules / "mermaid" / "dist" / "mermaid.min.js"
        ).read_bytes(),
    }


def main() -> int:
    """Copy the assets into the docs folder; say so only when something changed."""
    try:
        changed = vendor(ROOT / "node_modules", ROOT / "docs" / "assets" / "vendor")
    except FileNotFoundError as error:
        print(f"{error.filename} is missing: run make setup", file=sys.stderr)
        return 1
    if changed:
        print("copied KaTeX and mermaid into docs/assets/vendor")
    return 0


if __name__ == "__main__":
    sys.exit(main())
