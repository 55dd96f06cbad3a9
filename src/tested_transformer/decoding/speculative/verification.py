"""Verification: keep drafted tokens so that the output has the model's distribution."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from tested_transformer.checks import validate_between
from tested_transformer.decoding.sampling import RandomSource

__all__ = ["expected_tokens", "left_over", "verify", "verify_tree"]


# --8<-- [start:verify]
def verify(
    drafted: Sequence[int],
    draft: Float[Tensor, "k V"],
    target: Float[Tensor, "k_and_1 V"],
    rng: RandomSource,
) -> list[int]:
    """Return the accepted drafted tokens, and one more drawn from the target.

    Whatever the draft, the returned tokens follow the target's own distribution.

    Args:
        drafted: The k drafted tokens.
        draft: The probabilities that each of them was drawn from.
        target: The target's probabilities at each of their positions, and at the next.
        rng: Makes the random decisions.

    Raises:
        ValueError: If the numbers of tokens do not fit.

    Source: Leviathan et al., 2023, section 2.3 and algorithm 1.
    """
    _validate_rows(drafted, draft, target)
    kept: list[int] = []
    for token, q, p in zip(drafted, draft, target, strict=False):
        if not rng.accepts(float(p[token]) / float(q[token])):
            return [*kept, rng.draw(left_over(p, q))]
        kept.append(token)
    return [*kept, rng.draw(target[-1])]


def left_over(p: Float[Tensor, "V"], q: Float[Tensor, "V"]) -> Float[Tensor, "V"]:
    """Return the distribution that replaces a rejected token: where p exceeds q."""
    rest = (p - q).clamp(min=0)
    total = rest.sum()
    return rest / total if total > 0 else p  # p and q differ only by rounding


# --8<-- [end:verify]


# --8<-- [start:verify-tree]
def verify_tree(
    drafted: Sequence[int],
    parents: Sequence[int],
    draft: Float[Tensor, "N V"],
    target: Float[Tensor, "N_and_1 V"],
    rng: RandomSource,
) -> list[int]:
    """Return the accepted tokens along one path of a tree, and one more.

    Children are tried in turn. After each that is rejected, what is left of the target
    takes the target's place. So the returned tokens follow the target's distribution.

    Args:
        drafted: The N drafted tokens.
        parents: The parent of each: an earlier one, or -1 for the end of the text.
        draft: The probabilities that each was drawn from, given those before it.
        target: The target's probabilities after the text, and after each drafted token.
        rng: Makes the random decisions.

    Raises:
        ValueError: If the numbers of tokens do not fit.

    Source: Miao et al., 2023, "SpecInfer", on multi-step speculative sampling.
    """
    _validate_rows(drafted, draft, target)
    kept, node, p = list[int](), -1, target[0]
    for child, parent in enumerate(parents):
        if parent != node:
            continue
        token, q = drafted[child], draft[child]
        if rng.accepts(float(p[token]) / float(q[token])):
            kept, node, p = [*kept, token], child, target[child + 1]
        else:
            p = left_over(p, q)
    return [*kept, rng.draw(p)]


# --8<-- [end:verify-tree]


def _validate_rows(drafted: Sequence[int], draft: Tensor, target: Tensor) -> None:
    if not len(drafted) == len(draft) == len(target) - 1:
        raise ValueError(
            f"{len(drafted)} drafted tokens need as many rows of draft and one more "
            f"row of target; they have {len(draft)} and {len(target)}"
        )
    for position, token in enumerate(drafted):
        if not draft[position, token] > 0:
            raise ValueError(
                f"drafted[{position}]={token} has no probability in draft: pass the "
                "rows that the tokens were drawn from"
            )


# --8<-- [start:expected]
def expected_tokens(acceptance: float, num_drafted: int) -> float:
    """Return the expected number of tokens per pass, from 1 to k + 1.

    Args:
        acceptance: The probability that a drafted token is accepted, the same for all.
        num_drafted: k, how many tokens are drafted for a pass.

    Source: Leviathan et al., 2023, equation 1.
    """
    validate_between("acceptance", acceptance, 0, 1)
    validate_between("num_drafted", num_drafted, 0, float("inf"))
    if acceptance == 1:
        return num_drafted + 1.0
    return (1 - acceptance ** (num_drafted + 1)) / (1 - acceptance)


# --8<-- [end:expected]
