"""What a letter stands for: a value of its own, an entry of another, or a count."""

from collections.abc import Mapping
from dataclasses import dataclass

from bookbinder.formulas.terms import Named, Over, Symbol, Term, parts_of, symbols_in
from bookbinder.formulas.values import FUNCTIONS, Array

__all__ = ["Letters"]


@dataclass
class Letters:
    """The values of letters, and of whole terms that stand in a formula as they are."""

    known: Mapping[Term, Array]

    def has(self, symbol: Symbol) -> bool:
        """Tell whether a letter has a value, and so does not count."""
        return Symbol(symbol.name) in self.known or self.is_name(symbol)

    def is_name(self, symbol: Symbol) -> bool:
        """Tell whether an index belongs to a letter, as in d_k, or counts."""
        counted = {each.name for each in symbols_in(symbol.index)}
        return symbol in self.known and not (
            counted
            and self.known[symbol].ndim >= len(symbol.index)
            and not any(Symbol(name) in self.known for name in counted)
        )

    def table(self, name: str) -> Array | None:
        """Give that of which a small letter is an entry: Q for q."""
        for known in (name, name[:-1] + name[-1].upper()):
            if Symbol(known) in self.known:
                return self.known[Symbol(known)]
        return None

    def counting(self, term: Term) -> dict[str, None]:
        """Give the letters that count in a term, in their order."""
        names: dict[str, None] = {}
        for part in parts_of(term):
            if isinstance(part, Over) and part.counter:
                names[part.counter] = None
            if isinstance(part, Named) and part.function.name not in FUNCTIONS:
                if self.table(part.function.name) is None:
                    continue
                for each in part.of:
                    if isinstance(each, Symbol) and each not in self.known:
                        names[each.name] = None
            names |= dict.fromkeys(self._indices(part))
        return names

    def indices_of(self, whole: Term) -> tuple[Symbol, ...]:
        """Give the letters that count in a term that has a value as a whole."""
        names = dict.fromkeys(
            name for part in parts_of(whole) for name in self._indices(part)
        )
        return tuple(map(Symbol, names))

    def uses(self, part: Term) -> list[tuple[int, Term]]:
        """Give what is an index in a term, each with the size of what it counts."""
        if part in self.known and not isinstance(part, Symbol):
            sizes = self.known[part].shape
            return [*zip(sizes, self.indices_of(part), strict=False)]
        if isinstance(part, Symbol) and not self.is_name(part):
            table = self.known.get(part, self.table(part.name))
            index = part.index
        elif isinstance(part, Named):
            table, index = self.table(part.function.name), part.of
        else:
            return []
        return [] if table is None else [*zip(table.shape, index, strict=False)]

    def _indices(self, part: Term) -> list[str]:
        if not isinstance(part, Symbol) or self.is_name(part):
            return []
        return [each.name for each in symbols_in(part.index) if not self.has(each)]
