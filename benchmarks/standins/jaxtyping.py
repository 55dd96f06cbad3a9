"""A stand-in for jaxtyping where it is not installed, which checks no shapes.

``Float[Tensor, "B T"]`` is no more than ``Tensor`` then. Python looks into this folder
last, so that the real one is taken wherever there is one.
"""

from types import SimpleNamespace

__all__ = ["Bool", "Float", "Int", "Integer", "config"]


class _Array:
    def __class_getitem__(cls, kind_and_shape: tuple[type, str]) -> type:
        return kind_and_shape[0]


Bool = Float = Int = Integer = _Array
config = SimpleNamespace(update=lambda name, value: None)
