"""Find out how Keras, Flax and JAX read a mask, if they are installed.

They are too large to install for a test.
"""

import importlib.util
import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.mask_questions import (
    EMPTY_ADDED,
    HEADS,
    NO_SCORES,
    Attend,
    Mask,
    Row,
    X,
    row,
)
from tested_transformer import (
    attention_with_weights,
    causal_mask,
    padding_mask,
)

__all__ = ["conversions", "have", "other_rows"]


def keras_layer(*, scores: bool) -> Attend:
    """Ask ``keras.layers.MultiHeadAttention``."""
    keras, np = _keras()
    layer, x = _keras_layer(), X.numpy()

    def attend(mask: Mask) -> Sequence[float]:
        given = np.broadcast_to(torch.tensor(mask).numpy(), (1, 3, 3))
        output = layer(x, x, attention_mask=given, return_attention_scores=scores)
        output = output[0] if scores else output
        return keras.ops.convert_to_numpy(output)[0, 0, :3].tolist()

    return attend


def _keras_layer() -> Callable:
    keras, np = _keras()
    layer = keras.layers.MultiHeadAttention(num_heads=1, key_dim=4)
    layer(X.numpy(), X.numpy())
    layer.set_weights(
        [
            np.eye(4, dtype="float32").reshape(weight.shape)
            if weight.path.endswith(("value/kernel", "output/kernel"))
            else np.zeros(weight.shape, "float32")
            for weight in layer.weights
        ]
    )
    return layer


def keras_function(mask: Mask) -> Sequence[float]:
    """Ask ``keras.ops.dot_product_attention``, whose heads are the third axis."""
    keras, np = _keras()
    q, kv = NO_SCORES.transpose(1, 2).numpy(), HEADS.transpose(1, 2).numpy()
    given = np.broadcast_to(torch.tensor(mask).numpy(), (1, 1, 3, 3))
    output = keras.ops.dot_product_attention(q, kv, kv, mask=given)
    return keras.ops.convert_to_numpy(output)[0, 0, 0, :3].tolist()


def _keras() -> tuple:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras
    import numpy as np

    return keras, np


def flax_layer() -> Attend:
    """Ask ``flax.nnx.MultiHeadAttention``."""
    import jax.numpy as jnp

    layer = _flax_layer()

    def attend(mask: Mask) -> Sequence[float]:
        given = jnp.broadcast_to(jnp.array(mask), (1, 1, 3, 3))
        return layer(jnp.array(X.numpy()), mask=given)[0, 0, :3].tolist()

    return attend


def _flax_layer() -> Callable:
    import jax.numpy as jnp
    from flax import nnx

    layer = nnx.MultiHeadAttention(
        num_heads=1, in_features=4, decode=False, rngs=nnx.Rngs(0)
    )
    layer.query.kernel[...] = jnp.zeros((4, 1, 4))
    layer.value.kernel[...] = jnp.eye(4).reshape(4, 1, 4)
    layer.out.kernel[...] = jnp.eye(4).reshape(1, 4, 4)
    return layer


def jax_function(which: str, argument: str) -> Attend:
    """Ask the function of ``flax.nnx`` or of ``jax.nn``; heads are the third axis."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    call = {"flax": nnx, "jax": jax.nn}[which].dot_product_attention
    q, kv = (jnp.array(heads.transpose(1, 2).numpy()) for heads in (NO_SCORES, HEADS))

    def attend(mask: Mask) -> Sequence[float]:
        given = jnp.broadcast_to(jnp.array(mask), (1, 1, 3, 3))
        return call(q, kv, kv, **{argument: given})[0, 0, 0, :3].tolist()

    return attend


def other_rows() -> dict[str, Row]:
    """Ask the libraries that are too large to install for a test, if installed."""
    rows: dict[str, Row] = {}
    if have("keras"):
        rows["Keras layer"] = row(keras_layer(scores=False))
        rows["Keras layer, scores returned"] = row(keras_layer(scores=True))
        rows["keras.ops function"] = row(keras_function)
    if have("jax", "flax"):
        rows["Flax layer"] = row(flax_layer())
        rows["Flax function, mask"] = row(jax_function("flax", "mask"))
        bias = jax_function("flax", "bias")
        rows["Flax function, bias"] = row(bias, empty=EMPTY_ADDED)
        rows["jax.nn function, mask"] = row(jax_function("jax", "mask"))
    return rows


def conversions() -> dict[str, dict]:
    """Pass a mask of this library to the other libraries that are installed."""
    mask = causal_mask(3) & padding_mask(torch.tensor([2, 3]))
    x = torch.arange(24.0).sin().view(2, 3, 4)
    ours, _ = attention_with_weights(
        torch.zeros(2, 1, 3, 4), x[:, None], x[:, None], mask=mask
    )
    found: dict[str, dict] = {}
    if have("keras"):
        keras, _ = _keras()
        given = mask[:, 0].numpy()
        theirs = _keras_layer()(x.numpy(), x.numpy(), attention_mask=given)
        theirs = torch.tensor(keras.ops.convert_to_numpy(theirs))
        found["Keras layer"] = _compared("mask[:, 0].numpy()", theirs, ours)
    if have("jax", "flax"):
        import jax.numpy as jnp

        theirs = _flax_layer()(jnp.array(x.numpy()), mask=jnp.array(mask.numpy()))
        theirs = torch.tensor(theirs.tolist())
        found["Flax layer"] = _compared("jnp.array(mask.numpy())", theirs, ours)
    return found


def _compared(how: str, theirs: Tensor, ours: Tensor) -> dict:
    return {"mask": how, "same output": torch.allclose(theirs, ours[:, 0], atol=1e-6)}


def have(*packages: str) -> bool:
    """Return whether all of these packages are installed."""
    return all(importlib.util.find_spec(package) for package in packages)
