r"""Read a formula: ``e_{ts} = q_t \cdot k_s / \sqrt{d_k}``.

Only what has a value is understood. What stands side by side is multiplied before what
a sign divides; a function without parentheses takes what follows it up to the next
sign or function, as in ``\cos t\omega \cos s``.
"""

import re

from bookbinder.formulas.cutting import (
    ENVIRONMENT,
    LETTER,
    WORD,
    Tokens,
    UnreadableError,
    split_at,
)
from bookbinder.formulas.terms import (
    Cases,
    Lookup,
    Matrix,
    Named,
    Number,
    Over,
    Power,
    Product,
    Raw,
    Statement,
    Sum,
    Symbol,
    Term,
)

__all__ = ["side", "whole"]

_FUNCTIONS = {r"\exp", r"\ln", r"\log", r"\sin", r"\cos", r"\tanh", r"\max", r"\min"}
_UNEQUAL = {r"\ne": "≠", r"\approx": "≈", r"\leftarrow": "←"}
_RELATIONS = {"=": "=", "<": "<", ">": ">", r"\le": "≤", r"\ge": "≥", **_UNEQUAL}
_SIGNS = {"/": "/", ":": "/", r"\cdot": "·", r"\odot": "⊙", r"\bmod": "mod"}
_PLUS = {"+": 1, "-": -1, "−": -1}
_OVER = {r"\sum", r"\prod", r"\max", r"\min"}
_ACCENTS = {r"\bar", r"\hat", r"\tilde"}
_NAMELESS = {r"\qquad", r"\quad", r"\\", r"\rVert", r"\rfloor", r"\in"}


def whole(tokens: list[str]) -> Statement:
    """Read sides and the signs between them.

    Raises:
        UnreadableError: If something is left.
    """
    reader = Reader(tokens)
    statement = reader.statement()
    if reader.left:
        raise UnreadableError(" ".join(tokens))
    return statement


class Reader(Tokens):
    """Read what has a value."""

    def statement(self) -> Statement:
        """Read sides and signs."""
        sides, signs = [self.sum()], list[str]()
        while self.peek() in _RELATIONS:
            signs.append(_RELATIONS[self.next()])
            sides.append(self.sum())
        return Statement(tuple(sides), tuple(signs))

    def sum(self) -> Term:
        """Read terms and the signs between them."""
        terms: list[tuple[int, Term]] = []
        sign = self.next() if self.peek() in _PLUS else "+"
        while sign:
            terms.append((_PLUS[sign], self.product()))
            sign = self.next() if self.peek() in _PLUS else ""
        return terms[0][1] if terms[0][0] == 1 and len(terms) == 1 else Sum((*terms,))

    def product(self) -> Term:
        """Read factors, and what divides them."""
        first = self.beside()
        others: list[tuple[str, Term]] = []
        while self.peek() in _SIGNS:
            others.append((_SIGNS[self.next()], self.beside()))
        return Product(first, tuple(others)) if others else first

    def beside(self, *, of_a_function: bool = False) -> Term:
        """Read what stands side by side."""
        first = self.power()
        others: list[tuple[str, Term]] = []
        while self._begins(of_a_function):
            others.append(("", self.power()))
        return Product(first, tuple(others)) if others else first

    def _begins(self, of_a_function: bool) -> bool:
        token = self.peek()
        if of_a_function and (token in _FUNCTIONS | _OVER or token in ("(", r"\begin")):
            return False
        if token in {*_SIGNS, *_RELATIONS, *_NAMELESS}:
            return False
        return bool(
            token in ("(", "((", "{", r"\lfloor", r"\lVert")
            or token.startswith(r"\begin{")
            or WORD.fullmatch(token)
            or LETTER.fullmatch(token)
            or token[:1].isdigit()
        )

    def power(self) -> Term:
        """Read a thing and what is above or behind it."""
        term = self.atom()
        while self.peek() in ("^", "_", "!", "["):
            sign = self.next()
            if sign == "!":
                term = Named(Symbol("!"), (term,))
            elif sign in ("[", "_"):
                at = side(self.until("]")) if sign == "[" else self.group()
                term = Lookup(term, at)
            elif self.peek() == r"\top":
                self.next()
                term = Power(term, None)
            else:
                term = Power(term, self.group())
        return term

    def group(self) -> Term:
        r"""Read what braces hold; without braces, one digit or one thing."""
        token = self.next()
        if token == "{":
            return whole(self.until("}")).sides[0]
        if token[0].isdigit():
            if len(token) > 1:
                self.left.insert(0, token[1:])
            return Number(float(token[0]))
        self.left.insert(0, token)
        return self.atom()

    def atom(self) -> Term:
        """Read one thing."""
        token = self.next()
        if token[0].isdigit():
            return Number(float(token.replace("{,}", "")))
        if token in ("(", "(("):
            return self._parenthesis(self.until(")"))
        if token == "{":
            return whole(self.until("}")).sides[0]
        if token == r"\lfloor":
            inside = whole(self.until(r"\rfloor")).sides[0]
            return Named(Symbol("floor"), (inside,))
        if token == r"\lVert":
            at = self.left.index(r"\rVert") if r"\rVert" in self.left else 0
            inside, self.left = self.left[:at], self.left[at + 1 :]
            return Named(Symbol("length"), (whole(inside).sides[0],))
        if token in (r"\frac", r"\tfrac"):
            return Named(Symbol("fraction"), (self.group(), self.group()))
        if token == r"\sqrt":
            return Named(Symbol("root"), (self.group(),))
        if token.startswith(r"\begin{"):
            return self._environment(token[7:-1])
        if token in _OVER and (self.peek() == "_" or token == r"\sum"):
            return self._over(token)
        if token in _FUNCTIONS:
            return self._function(token)
        return self._symbol(token)

    def _parenthesis(self, inside: list[str]) -> Term:
        pieces = split_at(inside, (",",))
        terms = tuple(whole(piece).sides[0] for piece in pieces)
        return terms[0] if len(terms) == 1 else Matrix((terms,))

    def _environment(self, name: str) -> Term:
        inside: list[str] = []
        depth = 1
        while depth:
            inside.append(self.next())
            depth += ENVIRONMENT.get(inside[-1].partition("{")[0], 0)
        rows = [split_at(row, ("&",)) for row in split_at(inside[:-1], (r"\\",))]
        if name in ("bmatrix", "pmatrix"):
            return Matrix(tuple(tuple(map(side, row)) for row in rows if row != [[]]))
        if name != "cases":
            raise UnreadableError(name)
        return Cases(tuple((side(row[0]), _condition(*row[1:])) for row in rows))

    def _over(self, sign: str) -> Term:
        counter, low, high, condition = "", None, None, None
        if self.peek() == "_":
            self.next()
            below = self.until("}") if self.passed("{") else [self.next()]
            if ":" in below:
                counter, below = below[0], below[below.index(":") + 1 :]
            if below[1:2] == ["="]:
                low = side(below[2:])
            elif len(below) > 1:
                condition = whole(below)
            counter = counter or below[0]
            if not LETTER.fullmatch(counter):
                raise UnreadableError(counter)
        if self.passed("^"):
            high = self.group()
        body = self.beside()
        while self.peek() in (r"\cdot", r"\odot", "/"):
            body = Product(body, ((_SIGNS[self.next()], self.beside()),))
        return Over(sign, counter, low, high, condition, body)

    def _function(self, name: str) -> Term:
        index: tuple[Term, ...] = ()
        power: Term | None = None
        while self.peek() in ("_", "^"):
            if self.next() == "_":
                index = (self.group(),)
            else:
                power = self.group()
        if self.peek() in ("(", "(("):
            self.next()
            of = self._arguments(self.until(")"))
        else:
            of = (self.beside(of_a_function=True),)
        term = Named(Symbol(name, index), of)
        return Power(term, power) if power else term

    def _arguments(self, inside: list[str]) -> tuple[Term, ...]:
        found: list[Term] = []
        for piece in split_at(inside, (",",)):
            try:
                found.append(side(piece))
            except UnreadableError:
                found.append(Raw(" ".join(piece)))
        return tuple(found)

    def _symbol(self, token: str) -> Term:
        word = WORD.fullmatch(token)
        if not word and not LETTER.fullmatch(token):
            raise UnreadableError(token)
        if token in {*_SIGNS, *_RELATIONS, *_NAMELESS}:
            raise UnreadableError(token)
        name = word["word"].strip() if word else token
        if token in _ACCENTS:
            inner = self._symbol(self.next())
            if not isinstance(inner, Symbol):
                raise UnreadableError(token)
            return Symbol(f"{token} {inner.name}", inner.index)
        index: tuple[Term, ...] = ()
        transposed = False
        while self.peek() in ("_", "^", "'"):
            sign = self.next()
            if sign == "'":
                name += "'"
            elif sign == "_" and not index:
                below = self.until("}") if self.passed("{") else [self.next()]
                text = WORD.fullmatch(below[0]) if len(below) == 1 else None
                if text:
                    name += f"_{text['word']}"
                else:
                    index = _indices(below)
            elif sign == "^" and (upper := self.upper()):
                name += f"^{upper[0]}"
                transposed = upper[1:] == [r"\top"]
            else:
                self.left.insert(0, sign)
                break
        symbol = Symbol(name, index)
        # What has the upright name of a function is one.
        if self.peek() == "((" or (self.peek() == "(" and token.startswith(r"\op")):
            self.next()
            return Named(symbol, self._arguments(self.until(")")))
        return Power(symbol, None) if transposed else symbol


def side(tokens: list[str]) -> Term:
    """Read what has one value.

    Raises:
        UnreadableError: If there is more to it.
    """
    statement = whole(tokens)
    if statement.signs:
        raise UnreadableError(" ".join(tokens))
    return statement.sides[0]


def _condition(tokens: list[str] | None = None) -> Statement | Raw | None:
    tokens = tokens or [r"\text{otherwise}"]
    words = [each for each in map(WORD.fullmatch, tokens) if each]
    if words and words[0]["word"].strip() == "otherwise":
        return None
    rest = tokens[1:] if words and words[0]["word"].strip() == "if" else tokens
    try:
        return whole(rest)
    except UnreadableError:
        return Raw(" ".join(tokens))


def _indices(tokens: list[str]) -> tuple[Term, ...]:
    """Read indices: ``ts`` are two, ``t,2i`` too, ``t+1`` and ``2i`` are one."""
    if len(tokens) > 1 and all(re.fullmatch("[a-z]", token) for token in tokens):
        return tuple(Symbol(token) for token in tokens)
    if r"\ldots" in tokens:
        at = tokens.index(r"\ldots")
        return (Named(Symbol("to"), (side(tokens[:at]), side(tokens[at + 1 :]))),)
    return tuple(side(piece) for piece in split_at(tokens, (",",)))
