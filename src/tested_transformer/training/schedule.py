"""How the learning rate goes over a run: up at first, down in the end."""

import math

__all__ = ["SCHEDULES", "rate_factor"]

SCHEDULES = ("cosine", "linear", "trapezoid", "constant")


# --8<-- [start:schedule]
def rate_factor(
    step: int,
    *,
    steps: int,
    schedule: str = "cosine",
    warmup: int = 0,
    decay: float = 0.5,
    final: float = 0.0,
) -> float:
    """Give what the learning rate of a step is multiplied by.

    Every schedule rises over ``warmup`` steps to 1, and all but ``constant`` end
    one step before they would reach ``final``, which is lost on no step.

    Args:
        step: The step, counted from 0.
        steps: How many steps the run has.
        schedule: ``cosine`` and ``linear`` fall from the end of the warm-up,
            ``trapezoid`` stays at 1 and falls in a straight line at the end,
            ``constant`` stays.
        warmup: How many steps the rise takes.
        decay: The part of the run in which ``trapezoid`` falls.
        final: The factor that the fall ends at.

    Raises:
        ValueError: If ``schedule`` is unknown.

    Sources: Loshchilov and Hutter, 2017, "SGDR", equation 5, for the cosine; Hägele
    et al., 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
    Durations", for the trapezoid.
    """
    if schedule not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise ValueError(f"schedule={schedule!r} must be one of {known}")
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if schedule == "constant":
        return 1.0
    fall = steps - warmup
    if schedule == "trapezoid":
        fall = min(fall, round(decay * steps))
    # 1 until the fall begins, close to 0 at the last step.
    left = min(1.0, (steps - step) / max(1, fall))
    if schedule == "cosine":
        left = 0.5 - 0.5 * math.cos(math.pi * left)
    return final + (1.0 - final) * left


# --8<-- [end:schedule]
