"""What a page is made of: blocks and their outputs, chains, listings, pictures."""

from dataclasses import dataclass, field

from bookbinder.reading.bindings import Binding


@dataclass(frozen=True)
class Problem:
    """Something on a page that a reader should not be shown."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        """Print as editors and terminals like it: ``page.md:line: reason``."""
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Output:
    """The text that a run block must print; ``line`` is that of its fence."""

    text: str
    line: int


@dataclass
class Block:
    """A run block; ``line`` is that of its fence."""

    code: str
    line: int
    output: Output | None = None
    bindings: list[Binding] = field(default_factory=list[Binding])

    @property
    def end(self) -> int:
        """The line of the closing fence."""
        return self.line + self.code.count("\n") + 1


@dataclass
class Chain:
    """Run blocks that share one namespace, each going on from the one before."""

    blocks: list[Block]

    @property
    def line(self) -> int:
        """Where the chain begins."""
        return self.blocks[0].line


@dataclass(frozen=True)
class Listing:
    """A quotation of one section of a source file."""

    path: str
    section: str
    line: int

    @property
    def language(self) -> str:
        """The language it is shown in, ``py`` or ``js``: the file's ending."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Image:
    """A picture that the page shows."""

    alt: str
    target: str
    line: int
