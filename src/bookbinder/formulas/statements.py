"""What a formula states: its equations, one after another."""

from bookbinder.formulas.cutting import WORD, UnreadableError, cut, split_at
from bookbinder.formulas.parsing import side, whole
from bookbinder.formulas.terms import Raw, Statement, Term

__all__ = ["read_statements", "read_term"]

_ENDS = (",", ".", r"\qquad", r"\quad", r"\\", "&")
_ALIGNED = {r"\begin{aligned}", r"\end{aligned}"}


def read_statements(tex: str) -> list[Statement | Raw]:
    """Read all that a formula states; what cannot be read is given as it is.

    Statements end at a comma, at a wide space, or with a row.
    """
    tokens = [token for token in cut(tex) if token not in _ALIGNED]
    found: list[Statement | Raw] = []
    for piece in split_at(tokens, _ENDS):
        while piece and WORD.fullmatch(piece[0]) and piece[0][-2] in " ,:":
            piece.pop(0)  # "post-norm: ", "score,"
        if all(map(WORD.fullmatch, piece)):
            continue
        try:
            found.append(whole(piece))
        except UnreadableError:
            found.append(Raw(" ".join(piece)))
    return found


def read_term(tex: str) -> Term:
    """Read what has one value.

    Raises:
        UnreadableError: If there is more to it, or nothing that can be computed.
    """
    return side(cut(tex))
