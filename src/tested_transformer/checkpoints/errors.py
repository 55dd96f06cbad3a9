"""The one error of a checkpoint that cannot be used."""

__all__ = ["CheckpointError"]


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or a folder that another run is saving to.

    The message names the file, and what is wrong with it.
    """
