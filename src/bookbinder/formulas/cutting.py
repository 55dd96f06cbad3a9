r"""Cut TeX into its signs: ``W^Q_h`` into ``W``, ``^``, ``Q``, ``_`` and ``h``."""

import re

__all__ = [
    "ENVIRONMENT",
    "LETTER",
    "WORD",
    "Tokens",
    "UnreadableError",
    "cut",
    "split_at",
]

_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|textstyle|displaystyle)(?![A-Za-z])|\\[,;:!]"
    r"|(?<=\\\\)\[[\d.]+em\]|~"
)
_TOKEN = re.compile(
    r"\s*(?P<token>\d+(?:\{,\}\d{3})*(?:\.\d+)?|\\(?:text|operatorname)\{[^{}]*\}"
    r"|\\(?:begin|end)\{\w+\}|\\[A-Za-z]+|\\\\|\\[{}]|[^\s\\])"
)
WORD = re.compile(r"\\(?:text|operatorname)\{(?P<word>[^{}]*)\}")
_OPENING, _CLOSING = ("(", "{", "[", r"\lfloor"), (")", "}", "]", r"\rfloor")
ENVIRONMENT = {r"\begin": 1, r"\end": -1}
LETTER = re.compile(r"[A-Za-z]|\\[A-Za-z]+")


class UnreadableError(ValueError):
    """A formula that says more than what can be computed."""


def cut(tex: str) -> list[str]:
    """Give the signs of a formula, without what only lays it out.

    A parenthesis that may be that of a function is doubled.

    Raises:
        UnreadableError: If something in it is no sign at all.
    """
    # The row of an aligned formula may go on at its sign.
    tex = re.sub(r"&\s*(?==|\\le|\\ge|\\approx|<|>)", "", _LAYOUT.sub(" ", tex))
    tokens: list[str] = []
    end = 0
    for found in _TOKEN.finditer(tex):
        # One that stands directly behind a letter.
        glued = found["token"] == "(" and found.start() == found.start("token")
        tokens.append("((" if glued and _applies(tokens) else found["token"])
        end = found.end()
    if tex[end:].strip():
        raise UnreadableError(tex)
    return tokens


def _applies(tokens: list[str]) -> bool:
    last = tokens[-1] if tokens else ""
    return bool(LETTER.fullmatch(last) or WORD.fullmatch(last) or last in ("'", "}"))


def split_at(tokens: list[str], ends: tuple[str, ...]) -> list[list[str]]:
    """Split at signs that stand in no parentheses and in no environment."""
    pieces: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        name = token.partition("{")[0]
        depth += ENVIRONMENT.get(name, 0)
        depth += (token in _OPENING or token == "((") - (token in _CLOSING)
        if depth == 0 and token in ends:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces


class Tokens:
    """Signs that are read from left to right; ``left`` are those to come."""

    def __init__(self, tokens: list[str]) -> None:
        self.left = [*tokens]

    def peek(self) -> str:
        """Give the next sign, "" at the end."""
        return self.left[0] if self.left else ""

    def next(self, *wanted: str) -> str:
        """Take the next sign.

        Raises:
            UnreadableError: If it is none of those that are wanted.
        """
        if not self.left or (wanted and self.left[0] not in wanted):
            raise UnreadableError(" ".join(self.left) or "an end")
        return self.left.pop(0)

    def until(self, closing: str) -> list[str]:
        """Take all up to the sign that closes what has just been opened."""
        inside: list[str] = []
        depth = 1
        while True:
            token = self.next()
            depth += (token in _OPENING or token == "((") - (token in _CLOSING)
            if depth == 0:
                if token != closing:
                    raise UnreadableError(token)
                return inside
            inside.append(token)

    def passed(self, token: str) -> bool:
        """Take the next sign if it is this one, and say whether it was."""
        found = self.peek() == token
        if found:
            self.next()
        return found

    def upper(self) -> list[str]:
        """Take a capital above a letter: it belongs to the name, as in W^Q."""
        if re.fullmatch(r"[A-Z]", self.peek()):
            return [self.next()]
        for end in (3, 4):
            inside = self.left[1 : end - 1]
            closed = self.left[:1] == ["{"] and self.left[end - 1 : end] == ["}"]
            if closed and inside[0].isupper() and inside[1:] in ([], [r"\top"]):
                self.left = self.left[end:]
                return inside
        return []
