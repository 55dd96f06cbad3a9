"""Find out how each library reads a mask, and an empty row.

Three keys have the values (1, 0, 0), (0, 1, 0) and (0, 0, 1), and every score is 0. So
the output of attention equals the weights: 1/3 each without a mask. Keras, Flax and JAX
are too large to install for a test, and are asked if they are installed.
"""

import importlib.util
import os
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.run import Results, Run
from tested_transformer import attention_with_weights, causal_mask, padding_mask

__all__ = [
    *("EMPTY_ATTEND", "QUESTIONS", "answer", "have", "installed_rows", "measure"),
    "row",
]

Mask = list[bool] | list[float]
Attend = Callable[[Mask], Sequence[float]]
Row = dict[str, str]

T, F_, INF = True, False, float("inf")
# The questions for every library; the last one in the library's own convention.
QUESTIONS: dict[str, Mask] = {
    "True True False": [T, T, F_],
    "0 0 -inf": [0.0, 0.0, -INF],
    "1 1 0": [1.0, 1.0, 0.0],
}
EMPTY_ATTEND, EMPTY_IGNORE, EMPTY_ADDED = [F_, F_, F_], [T, T, T], [-INF, -INF, -INF]

# One sequence of three tokens, four features: two heads of two, which fast paths want.
X = torch.eye(3, 4)[None]
HEADS, NO_SCORES = X[:, None], torch.zeros(1, 1, 3, 4)


def row(attend: Attend, *, empty: Mask = EMPTY_ATTEND) -> Row:
    """Return a library's answers to all questions."""
    return {
        question: answer(attend, mask)
        for question, mask in (QUESTIONS | {"empty row": empty}).items()
    }


def answer(attend: Attend, mask: Mask) -> str:
    """Return the three weights, or the error."""
    try:
        weights = attend(mask)
    # Any error counts as the answer.
    except Exception as error:
        return type(error).__name__
    return " ".join(f"{float(weight):.2f}" for weight in weights)


def ours(mask: Mask) -> Sequence[float]:
    """Ask the open attention."""
    value = torch.tensor([mask])
    return _first(attention_with_weights(NO_SCORES, HEADS, HEADS, mask=value)[0])


def sdpa(mask: Mask) -> Sequence[float]:
    """Ask ``F.scaled_dot_product_attention``."""
    attend = F.scaled_dot_product_attention
    return _first(attend(NO_SCORES, HEADS, HEADS, attn_mask=torch.tensor([mask])))


def _first(output: Tensor) -> list[float]:
    """Return what the first query reads, as the weights of the three keys."""
    return output[0, 0, 0, :3].tolist()


def sdpa_math(mask: Mask) -> Sequence[float]:
    """Ask PyTorch's plain kernel."""
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(mask)


def flex_block_mask(mask: Mask) -> Sequence[float]:
    """Ask FlexAttention, with the mask as its ``mask_mod``."""
    value = torch.tensor(mask)
    block_mask = create_block_mask(
        lambda b, h, t, s: value[s], None, None, 3, 3, device="cpu"
    )
    return _flex(block_mask=block_mask)


def flex_score_mod(mask: Mask) -> Sequence[float]:
    """Ask FlexAttention, with a ``score_mod`` that adds the mask."""
    value = torch.tensor(mask)
    return _flex(score_mod=lambda score, b, h, t, s: score + value[s])


def _flex(**how: object) -> Sequence[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is slow without being compiled
        return _first(flex_attention(NO_SCORES, HEADS, HEADS, **how))


def module(argument: str, *, weights: bool, training: bool) -> Attend:
    """Ask ``nn.MultiheadAttention`` through one of its mask arguments."""
    layer = nn.MultiheadAttention(4, 2, batch_first=True).train(training)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([torch.zeros(8, 4), torch.eye(4)]))
        layer.out_proj.weight.copy_(torch.eye(4))

    def attend(mask: Mask) -> Sequence[float]:
        value = torch.tensor([mask])
        value = value.expand(3, 3) if argument == "attn_mask" else value
        with torch.set_grad_enabled(training):
            output, _ = layer(X, X, X, need_weights=weights, **{argument: value})
        return output[0, 0, :3].tolist()

    return attend


def bert(implementation: str, *, axes: int = 2) -> Attend:
    """Ask BERT of ``transformers``, by an ``attention_mask`` of two or four axes."""
    from transformers import BertConfig
    from transformers.masking_utils import create_bidirectional_mask
    from transformers.models.bert.modeling_bert import BertSelfAttention

    config = BertConfig(
        hidden_size=4, num_attention_heads=2, attn_implementation=implementation
    )
    layer = BertSelfAttention(config).eval()
    _read_values(layer.query, layer.key, layer.value)

    def attend(mask: Mask) -> Sequence[float]:
        value = torch.tensor([mask])
        value = value.expand(1, 1, 3, 3) if axes == 4 else value
        extended = create_bidirectional_mask(
            config=config, inputs_embeds=X, attention_mask=value
        )
        return layer(X, attention_mask=extended)[0][0, 0, :3].tolist()

    return attend


@torch.no_grad()
def _read_values(query: nn.Linear, key: nn.Linear, value: nn.Linear) -> None:
    for projection in (query, key, value):
        projection.weight.zero_()
        projection.bias.zero_()
    value.weight.copy_(torch.eye(4))


def installed_rows() -> dict[str, Row]:
    """Ask the libraries that the tests need: this one, PyTorch and ``transformers``."""
    rows = {
        "this library": row(ours),
        "SDPA": row(sdpa),
        "SDPA, plain kernel": row(sdpa_math),
        "FlexAttention, block_mask": row(flex_block_mask),
        "FlexAttention, score + mask": row(flex_score_mod, empty=EMPTY_ADDED),
    }
    for training in (True, False):
        for weights in (True, False):
            how = {"weights": weights, "training": training}
            by_pair = row(module("attn_mask", **how), empty=EMPTY_IGNORE)
            by_key = row(module("key_padding_mask", **how), empty=EMPTY_IGNORE)
            name = "nn.MultiheadAttention, {}, {}".format(
                "training" if training else "inference",
                "weights" if weights else "no weights",
            )
            rows[name] = by_pair
            if by_key != by_pair:
                rows[f"{name}, key_padding_mask"] = by_key
    for implementation in ("eager", "sdpa"):
        for axes in (2, 4):
            name = f"Transformers' BERT, {implementation}, {axes} axes"
            added = (implementation, axes) == ("eager", 4)
            empty = EMPTY_ADDED if added else EMPTY_ATTEND
            rows[name] = row(bert(implementation, axes=axes), empty=empty)
    return rows


def keras_layer(*, scores: bool) -> Attend:
    """Ask ``keras.layers.MultiHeadAttention``."""
    keras, np = _keras()
    layer, x = _keras_layer(), X.numpy()

    def attend(mask: Mask) -> Sequence[float]:
        value = np.broadcast_to(torch.tensor(mask).numpy(), (1, 3, 3))
        output = layer(x, x, attention_mask=value, return_attention_scores=scores)
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
    value = np.broadcast_to(torch.tensor(mask).numpy(), (1, 1, 3, 3))
    output = keras.ops.dot_product_attention(q, kv, kv, mask=value)
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
        value = jnp.broadcast_to(jnp.array(mask), (1, 1, 3, 3))
        return layer(jnp.array(X.numpy()), mask=value)[0, 0, :3].tolist()

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
        value = jnp.broadcast_to(jnp.array(mask), (1, 1, 3, 3))
        return call(q, kv, kv, **{argument: value})[0, 0, 0, :3].tolist()

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
    scores, heads = torch.zeros(2, 1, 3, 4), x[:, None]
    right, _ = attention_with_weights(scores, heads, heads, mask=mask)
    results: dict[str, dict] = {}

    def note(library: str, how: str, theirs: Tensor) -> None:
        same = torch.allclose(theirs, right[:, 0], atol=1e-6)
        results[library] = {"mask": how, "same output": same}

    if have("keras"):
        keras, _ = _keras()
        output = _keras_layer()(x.numpy(), x.numpy(), attention_mask=mask[:, 0].numpy())
        output = torch.tensor(keras.ops.convert_to_numpy(output))
        note("Keras layer", "mask[:, 0].numpy()", output)
    if have("jax", "flax"):
        import jax.numpy as jnp

        output = _flax_layer()(jnp.array(x.numpy()), mask=jnp.array(mask.numpy()))
        note("Flax layer", "jnp.array(mask.numpy())", torch.tensor(output.tolist()))
    return results


def have(*packages: str) -> bool:
    """Return whether all of these packages are installed."""
    return all(importlib.util.find_spec(package) for package in packages)


def measure(run: Run) -> Results:
    """Ask every installed library, and record the versions."""
    packages = ("torch", "transformers", "keras", "flax", "jax")
    return {
        "versions": {
            package: version(package) if have(package) else "not measured"
            for package in packages
        },
        "keras_backend": os.environ.get("KERAS_BACKEND", "torch"),
        "rows": installed_rows() | other_rows(),
        "conversions": conversions(),
    }
