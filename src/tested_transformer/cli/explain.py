"""``tested-transformer explain``: what a known bug of attention is."""

import difflib
import inspect
import json
from dataclasses import dataclass

from attention_check import KNOWN
from tested_transformer.cli.display import printable
from tested_transformer.cli.flags import Call

__all__ = ["Explain"]


@dataclass(frozen=True)
class Explain:
    """Explain a bug that a check has named: its code, and where it was published.

    Examples:
      tested-transformer explain
      tested-transformer explain one-too-far
      tested-transformer explain no-scale --json

    Args:
        bug: Its name; without one, all names are listed.
    """

    bug: str | None = None

    def run(self, call: Call) -> int:
        """Print what is known about the bug, and return the exit status."""
        if self.bug is None:
            width = max(map(len, KNOWN))
            for name, exhibit in KNOWN.items():
                facts = {"name": name, "mistake": exhibit.mistake}
                line = json.dumps(facts) if call.as_json else f"{name:{width}}  "
                print(line if call.as_json else printable(line + exhibit.mistake))
            return 0
        if (exhibit := KNOWN.get(self.bug)) is None:
            close = difflib.get_close_matches(self.bug, KNOWN)
            message = f"there is no bug {self.bug}; 'explain' alone lists all"
            raise ValueError(message + f" (like {', '.join(close)})" * bool(close))
        code = inspect.getsource(exhibit.function)
        facts = {
            "name": exhibit.name,
            "mistake": exhibit.mistake,
            "step": exhibit.step,
            "code": code[code.index("def ") :].rstrip(),
            "page": exhibit.url,
            "published": [source.url for source in exhibit.published],
            "related": [source.url for source in exhibit.related],
        }
        if call.as_json:
            print(json.dumps(facts))
            return 0
        lines = [exhibit.mistake, "", *facts["code"].splitlines(), ""]
        lines += [f"Explained in {exhibit.url}"]
        for word in ("published", "related"):
            lines += [f"{word.capitalize()}: {url}" for url in facts[word]]
        print(printable("\n".join(lines)))
        return 0
