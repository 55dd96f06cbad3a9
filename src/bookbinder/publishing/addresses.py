"""Where this copy of the book lives: its site and its repository, if it has them.

Both come from the environment of whoever builds the site, so that a fork's book leads
to the fork. A book that was built at home has neither, and leads nowhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

__all__ = ["NOTEBOOKS", "Addresses"]

_PLAIN = re.compile(r"[\w.:/~%@+-]*", re.ASCII)

# The branch that the workflow of the site writes the notebooks to.
NOTEBOOKS = "notebooks"


@dataclass(frozen=True)
class Addresses:
    """The address of the site, with a slash at its end, and that of the repository."""

    site: str = ""
    repository: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Addresses":
        """Take the addresses from ``SITE_URL`` and ``REPO_URL``.

        Raises:
            ValueError: If one of them is not the address of anything.
        """
        found: list[str] = []
        for name in ("SITE_URL", "REPO_URL"):
            url = environment.get(name, "").strip().rstrip("/")
            parts = urlsplit(url)
            if url and (parts.scheme not in ("http", "https") or not parts.netloc):
                raise ValueError(f"{name}={url}: wanted an address, https://...")
            if not _PLAIN.fullmatch(url):
                # It is written into commands and pages.
                raise ValueError(
                    f"{name}={url}: no address has quotes, blanks or the like"
                )
            found.append(url)
        site, repository = found
        return cls(f"{site}/" if site else "", repository)

    def colab(self, name: str) -> str:
        """Give the address that opens a notebook in Colab, which reads GitHub alone."""
        parts = urlsplit(self.repository)
        if parts.netloc != "github.com":
            return ""
        path = f"{parts.path.strip('/')}/blob/{NOTEBOOKS}/{quote(name)}"
        return f"https://colab.research.google.com/github/{path}"

    def commit(self, commit: str) -> str:
        """Give the address of a commit."""
        return f"{self.repository}/commit/{commit}" if self.repository else ""
