"""What a model asks of attention: of a layer, and of the settings that make one.

``MultiHeadAttention`` and each layer in ``attentions`` are such layers. A layer of your
own can take the place of ``block.attention`` if it keeps the contract of
``AttentionLayer``; with settings that make it, ``GPTConfig(attention=...)`` takes it.
Where only the way from queries, keys and values to outputs is new, a subclass of
``Softmax`` with a ``make_core`` of its own is enough; where they write and read a state
in a new way, a subclass of ``attentions.StateLayer``. What a layer keeps of the tokens
that it has read has its contract in ``cache``.
"""

from dataclasses import Field, dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    runtime_checkable,
)

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.cache import Cache

__all__ = ["Attention", "AttentionLayer", "LayerSettings"]

Kept = TypeVar("Kept", bound=Cache)
Output = Float[Tensor, "B T D"]
Weights = Float[Tensor, "B H T S"]


@runtime_checkable
class AttentionLayer(Protocol[Kept]):
    """A layer of self-attention, as a ``DecoderBlock`` calls it.

    Every layer keeps this contract:

    - With ``causal=True``, no output depends on a later position.
    - Reading a sequence in pieces, each with the same cache from ``new_cache``, returns
      what reading it at once returns, wherever it is cut.
    - A cache that was rewound goes on as if it had read no further.
    - A ``mask``, a ``window`` and a ``score_bias`` of minus infinity forbid alike. A
      query that may see nothing has weights of zero.
    - If there are fewer heads of keys and values than of queries, neighbors share one.
    - The output is the same whether ``return_weights`` is asked for or not, except for
      dropout; gradients are, too.
    - ``o_proj`` is the last thing that it computes, and all that it adds to a block.
    - Loaded into another layer with the same settings, its ``state_dict()`` makes that
      layer compute the same.
    - Its parameters have the device and the type of the settings. Where the rows of one
      are vectors, each by itself, its module names it in ``row_vectors``, so that Muon
      does not take it for a map.

    If its settings say ``reads_padding``, a sequence padded on the left, with a
    ``mask`` that hides the padding, gets the outputs that it gets alone. A layer that
    keeps a state instead of scores refuses any other ``mask``, and what acts on scores:
    ``window``, ``score_bias``, ``rotary`` and ``return_weights``.

    Attributes:
        num_heads: H, how many heads.
        head_dim: d_k, the width of a head.
        o_proj: The projection from the heads to the output.
    """

    num_heads: int
    head_dim: int
    # From Python 3.12 on, isinstance() does not find the parts of a module.
    if TYPE_CHECKING:
        o_proj: nn.Linear

    def __call__(
        self,
        x: Float[Tensor, "B T D"],
        /,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = ...,
        window: int | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        rotary: Float[Tensor, "2 *table T half"] | None = None,
        cache: Kept | None = None,
        return_weights: bool = False,
    ) -> Output | tuple[Output, Weights]:
        """Return what every position gathers; see ``MultiHeadAttention.forward``.

        Raises:
            ValueError: If an argument does not fit, or cannot act in this form of
                attention; the message begins with its name.
        """
        ...

    def new_cache(self, batch_size: int, max_length: int) -> Kept:
        """Return an empty cache for this layer.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens it has room for.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class LayerSettings:
    """What a model tells the attention of one of its layers.

    Args:
        d_model: D, the width of the model.
        num_heads: H, how many heads.
        head_dim: d_k, the width of a head.
        num_kv_heads: Heads of keys and values.
        dropout: The probability of dropping an attention weight while training.
        bias: Whether projections add a bias.
        qkv_bias: Whether those to queries, keys and values do; like ``bias`` by
            default.
        fused: Use PyTorch's fused kernels.
        qk_norm: How to normalize queries and keys; see ``MultiHeadAttention``.
        norm_eps: What that norm adds to the mean square.
        layer: The number of the layer in the model, from 0.
        device: Where to make the parameters.
        dtype: The type of the parameters.
    """

    d_model: int
    num_heads: int
    head_dim: int
    num_kv_heads: int
    dropout: float = 0.0
    bias: bool = True
    qkv_bias: bool | None = None
    fused: bool = True
    qk_norm: bool | Literal["heads", "projection"] = False
    norm_eps: float = 1e-5
    layer: int = 0
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None


@runtime_checkable
class Attention(Protocol):
    """Settings of a way to attend: they make the layer, and state facts about it.

    It is a frozen dataclass, whose fields JSON can represent. ``attentions.ATTENTIONS``
    gives it the name that checkpoints and the command line know it by.

    Attributes:
        positions: The positional encodings that fit, the recommended one first.
        unsupported: Settings of a model that must keep their defaults. Heads can be
            left out of plain softmax alone, whatever stands here.
        has_scores: Whether it scores queries against keys. If not, it keeps a state,
            and rotary positions and ALiBi do not reach it.
        keeps_heads: Whether the cache holds keys and values of each head.
        weighs_by_head: Whether each head has a table of weights, like softmax.
        reads_padding: Whether padding on the left can be masked, so that sequences of
            different lengths can be read side by side.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]
    positions: ClassVar[tuple[str, ...]]
    unsupported: ClassVar[tuple[str, ...]]
    has_scores: ClassVar[bool]
    keeps_heads: ClassVar[bool]
    weighs_by_head: ClassVar[bool]
    reads_padding: ClassVar[bool]

    def make(self, settings: LayerSettings) -> AttentionLayer[Any]:
        """Return a new layer, an ``nn.Module``.

        Raises:
            ValueError: If the settings do not fit.
        """
        ...
