"""What a run tells while it goes on."""

from dataclasses import dataclass

__all__ = ["Progress", "Validation"]


# --8<-- [start:progress]
@dataclass(frozen=True)
class Validation:
    """What an evaluation found.

    Args:
        step: After how many steps.
        loss: The mean loss over all of the validation text.
        prefix: The honest loss: at some positions, each from its prefix alone.
        full: The loss at the same positions, from one pass over all of the window.
        gap: The largest difference of the two at any one position. Like them it is
            measured without autocast, whatever the run trains in; ``loss`` is not.
    """

    step: int
    loss: float
    prefix: float
    full: float
    gap: float


@dataclass(frozen=True)
class Progress:
    """What a step has come to.

    Args:
        step: How many steps are done.
        steps: How many there will be.
        loss: The loss of the step's batch, in nats a token.
        lr: AdamW's learning rate.
        gradient: The length of the gradient, before it was clipped.
        tokens_per_second: How fast it is, lately.
        seconds: How long all steps took, without evaluating and saving.
        seconds_left: How long the rest will take at this speed.
        validation: What the evaluation after this step found, if there was one.
    """

    step: int
    steps: int
    loss: float
    lr: float
    gradient: float
    tokens_per_second: float
    seconds: float
    seconds_left: float
    validation: Validation | None = None


# --8<-- [end:progress]
