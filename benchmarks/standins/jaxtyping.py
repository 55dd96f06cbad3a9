"""A stand-in for jaxtyping where it is not installed, which checks no shapes.

``Float[Tensor, "B T"]`` is no more than ``Tensor`` then, whatever the kind of array.
Python looks into this folder last, so that the real one is taken wherever there is one.
"""

from types import SimpleNamespace

__all__ = ["config"]


class _Array:
    def __class_getitem__(cls, kind_and_shape: tuple[type, str]) -> type:
        return kind_and_shape[0]


config = SimpleNamespace(update=lambda name, value: None)


def __getattr__(name: str) -> type[_Array]:
    if name.startswith("_"):
        raise AttributeError(name)
    return _Array
