"""Multi-head attention: several attentions side by side, and a matrix that mixes them.

One module does self-attention and cross-attention, open or fused, with keys and values
for each head or shared among heads, with or without a cache. Its *core* says how
queries, keys and values become outputs: by a softmax, or as in ``attentions``.
"""

from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypedDict,
    Unpack,
    runtime_checkable,
)

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.attention import attention_with_weights, drop_keys
from tested_transformer.cache import DenseCache, LayerCache, WindowCache
from tested_transformer.checks import (
    validate_between,
    validate_divisible,
    validate_dtype,
    validate_features,
    validate_heads,
    validate_qk_norm,
    validate_sizes,
)
from tested_transformer.habits import (
    advise_on_layer_call,
    advise_on_layer_settings,
    advised,
)
from tested_transformer.inspection import numbers_of
from tested_transformer.interfaces import LayerSettings
from tested_transformer.kernels import fused_attention
from tested_transformer.layers import HeadNorm
from tested_transformer.positions import POSITIONS, rotate

__all__ = [
    "SOFTMAX",
    "Core",
    "IndexTrained",
    "IndexedCore",
    "MultiHeadAttention",
    "ScoreOptions",
    "Softmax",
    "attend",
    "attend_with_softmax",
    "merge_heads",
    "split_heads",
]

_Output = Float[Tensor, "B T D"]
_Weights = Float[Tensor, "B H T S"]


# --8<-- [start:split]
def split_heads(
    x: Float[Tensor, "B T D"], num_heads: int
) -> Float[Tensor, "B H T d_k"]:
    """Split each position's features into ``num_heads`` equal slices, one for each.

    Raises:
        ValueError: If ``x`` does not have three axes, or ``num_heads`` does not divide
            its width.
    """
    _validate_axes("x", x, "(B, T, D)")
    validate_divisible("the width of x", x.shape[-1], num_heads)
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(heads: Float[Tensor, "B H T d_k"]) -> Float[Tensor, "B T D"]:
    """Join the heads side by side again: the inverse of ``split_heads``.

    Raises:
        ValueError: If ``heads`` does not have four axes.
    """
    _validate_axes("heads", heads, "(B, H, T, d_k)")
    return heads.transpose(1, 2).flatten(start_dim=2)


# --8<-- [end:split]


class ScoreOptions(TypedDict):
    """Arguments of ``attention_with_weights``: what queries see, and what is dropped.

    Args:
        mask: ``True`` where a query may attend.
        causal: Also forbid attending to later positions.
        window: Also forbid all but the last ``window`` positions up to each.
        score_bias: Add this to the scores.
        dropout_p: The probability of dropping a weight.
    """

    mask: Bool[Tensor, "..."] | None
    causal: bool
    window: int | None
    score_bias: Float[Tensor, "..."] | None
    dropout_p: float


@runtime_checkable
class Core(Protocol):
    """How queries, keys and values become the outputs of the heads."""

    def __call__(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H_kv S d_k"],
        v: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        /,
        *,
        in_the_open: bool,
        **options: Unpack[ScoreOptions],
    ) -> tuple[Float[Tensor, "B _ T _"], Float[Tensor, "B _ T S"] | None]:
        """Return the outputs of the heads and, if ``in_the_open``, their weights.

        ``x`` is the sequence that the queries come from.
        """
        ...


class IndexTrained(nn.Module):
    """Base class of what learns to choose keys by a loss of its own.

    Attributes:
        index_loss: What training adds to the loss, set by each forward pass while
            training.
    """

    def __init__(self) -> None:
        super().__init__()
        self.index_loss = torch.zeros((), device="cpu")

    def __getstate__(self) -> dict[str, object]:
        # The loss of the last pass holds its graph, which cannot be copied.
        return {**self.__dict__, "index_loss": self.index_loss.detach()}


class IndexedCore(IndexTrained):
    """Base class of cores with features of their own behind those of queries and keys.

    The features of keys go into the cache with them.

    Attributes:
        index_width: How many features it adds to a key of each head.
    """

    index_width: int

    def add_index(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S C"],
        rotary: Float[Tensor, "2 *table T half"] | None,
    ) -> tuple[Tensor, Tensor]:
        """Return queries and keys with these features; a subclass says which.

        Queries and keys are normalized and rotated, and ``x`` and ``context`` are the
        sequences that they come from.
        """
        raise NotImplementedError


# --8<-- [start:softmax]
def attend(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H_kv S d_k"],
    v: Float[Tensor, "B H_kv S d_v"],
    *,
    in_the_open: bool,
    scale: float | None = None,
    **options: Unpack[ScoreOptions],
) -> tuple[Float[Tensor, "B H T d_v"], Float[Tensor, "B H T S"] | None]:
    """Attend step by step, with weights, or by PyTorch's fused kernels, without."""
    if in_the_open:
        return attention_with_weights(q, k, v, scale=scale, **options)
    return fused_attention(q, k, v, scale=scale, **options), None


# --8<-- [end:softmax]


@dataclass(frozen=True, kw_only=True)
class Softmax:
    """Attend with softmax, as usual; the base of settings that change how heads attend.

    A subclass returns another core, and states what differs; see
    ``interfaces.Attention`` for the facts.
    """

    positions: ClassVar[tuple[str, ...]] = POSITIONS
    unsupported: ClassVar[tuple[str, ...]] = ()
    has_scores: ClassVar[bool] = True
    keeps_heads: ClassVar[bool] = True
    weighs_by_head: ClassVar[bool] = True
    reads_padding: ClassVar[bool] = True

    def make(self, settings: LayerSettings) -> "MultiHeadAttention":
        """Return a new layer with this core."""
        return MultiHeadAttention(
            d_model=settings.d_model,
            num_heads=settings.num_heads,
            head_dim=settings.head_dim,
            num_kv_heads=settings.num_kv_heads,
            dropout=settings.dropout,
            bias=settings.bias,
            qkv_bias=settings.qkv_bias,
            fused=settings.fused,
            qk_norm=settings.qk_norm,
            norm_eps=settings.norm_eps,
            core=self,
            layer=settings.layer,
            device=settings.device,
            dtype=settings.dtype,
        )

    def make_core(self, settings: LayerSettings) -> Core:
        """Return what attends in a layer with these settings.

        If it has parameters, it is an ``nn.Module``, and becomes part of the layer;
        if not, it may be a method of these settings.
        """
        return attend_with_softmax


def attend_with_softmax(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H_kv S d_k"],
    v: Float[Tensor, "B H_kv S d_k"],
    x: Float[Tensor, "B T D"],
    *,
    in_the_open: bool,
    **options: Unpack[ScoreOptions],
) -> tuple[Float[Tensor, "B H T d_k"], Float[Tensor, "B H T S"] | None]:
    """Attend as usual: the core of ``Softmax``."""
    return attend(q, k, v, in_the_open=in_the_open, **options)


SOFTMAX = Softmax()


class MultiHeadAttention(nn.Module):
    """Attend with several heads at once, each in its own slice of the features.

    Args:
        d_model: D, the width of the queries' sequence and of the output.
        num_heads: H, how many heads.
        head_dim: d_k, the width of a head; ``d_model // num_heads`` by default.
        num_kv_heads: Heads of keys and values, each shared by
            ``num_heads // num_kv_heads`` consecutive heads; ``num_heads`` by default.
        d_context: The width of ``context`` in cross-attention; ``d_model`` by default.
        dropout: The probability of dropping an attention weight while training.
        bias: Whether the four projections add a bias.
        qkv_bias: Whether those to queries, keys and values do; like ``bias`` by
            default.
        fused: Use PyTorch's fused kernels. If you ask for the weights, they come from
            the open attention, whose output is the same except for dropout. The fused
            kernels have first derivatives only.
        qk_norm: ``True`` centers each query and each key and scales it to the length
            ``sqrt(head_dim)``, so that no score exceeds ``sqrt(head_dim)`` either.
            ``"heads"`` applies an RMS norm with gains to each head, ``"projection"``
            one to all heads together.
        norm_eps: What these norms add to the mean square.
        core: How queries, keys and values become outputs: ``Softmax()``, or one of
            ``attentions``, such as ``AdjustedSoftmax(soft_cap=50.0)``.
        layer: The number of the layer in its model, from 0. A core may depend on it,
            as that of ``attentions.Differential`` does.
        device: Where to make the parameters.
        dtype: The type of the parameters.

    Raises:
        TypeError: If it is called like PyTorch's layer; the error says what to write.
        ValueError: If ``num_heads`` does not divide ``d_model`` and no ``head_dim`` is
            given, ``num_kv_heads`` does not divide ``num_heads``, a size is not
            positive, ``dropout`` is not in [0, 1], or ``qk_norm`` is unknown.

    Sources: Vaswani et al., 2017, "Attention Is All You Need", section 3.2.2; for
    shared keys and values Ainslie et al., 2023, "GQA"; for ``qk_norm`` Dehghani et al.,
    2023, "Scaling Vision Transformers to 22 Billion Parameters"; with gains Qwen Team,
    2025, "Qwen3 Technical Report" (``"heads"``), and OLMo et al., 2025, "2 OLMo 2
    Furious" (``"projection"``).
    """

    @advised(advise_on_layer_settings)
    # --8<-- [start:init]
    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        d_context: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        qkv_bias: bool | None = None,
        fused: bool = True,
        qk_norm: bool | Literal["heads", "projection"] = False,
        norm_eps: float = 1e-5,
        core: Softmax = SOFTMAX,
        layer: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        validate_heads(d_model, num_heads, head_dim, num_kv_heads)
        validate_between("dropout", dropout, 0, 1)
        validate_qk_norm(qk_norm)
        head_dim = d_model // num_heads if head_dim is None else head_dim
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        d_context = d_model if d_context is None else d_context
        validate_sizes(d_context=d_context)
        self.d_model, self.d_context = d_model, d_context
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.dropout = dropout
        self.fused = fused
        self.qk_norm = qk_norm
        d_q, d_kv = num_heads * head_dim, num_kv_heads * head_dim
        qkv_bias = bias if qkv_bias is None else qkv_bias
        self.q_proj = nn.Linear(d_model, d_q, qkv_bias, device, dtype)
        self.k_proj = nn.Linear(d_context, d_kv, qkv_bias, device, dtype)
        self.v_proj = nn.Linear(d_context, d_kv, qkv_bias, device, dtype)
        options = {"eps": norm_eps, "device": device, "dtype": dtype}
        self.q_norm, self.k_norm = (
            _make_qk_norm(qk_norm, heads, head_dim, **options)
            for heads in (num_heads, num_kv_heads)
        )
        self.o_proj = nn.Linear(d_q, d_model, bias, device, dtype)
        self.core = core.make_core(
            LayerSettings(
                d_model=d_model,
                num_heads=num_heads,
                head_dim=head_dim,
                num_kv_heads=num_kv_heads,
                dropout=dropout,
                bias=bias,
                qkv_bias=qkv_bias,
                fused=fused,
                qk_norm=qk_norm,
                norm_eps=norm_eps,
                layer=layer,
                device=device,
                dtype=dtype,
            )
        )

    # --8<-- [end:init]

    @advised(advise_on_layer_call)
    # --8<-- [start:forward]
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        context: Float[Tensor, "B S C"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        window: int | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        rotary: Float[Tensor, "2 *table T half"] | None = None,
        cache: LayerCache | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Return what every position of ``x`` gathers from ``context``.

        Args:
            x: The sequence that the queries come from.
            context: The sequence that keys and values come from; ``x`` by default,
                which makes it self-attention.
            mask: ``True`` where a query may attend; ``(T, S)``, or ``(B, H, T, S)``
                where any axis may be 1, like a ``padding_mask``. For a mask of tokens,
                ``(B, S)``, write ``token_mask(mask)``: with B = T it would be read
                as ``(T, S)``.
            causal: Also forbid attending to later positions, like ``causal_mask``: the
                last query may attend to every key.
            window: Also forbid all but the last ``window`` positions up to each, like
                ``sliding_window_mask``, which is causal.
            score_bias: Add this to the scores, such as an ``alibi_bias``.
            rotary: Rotate queries and keys by this ``rotary_table`` of their positions,
                (2, T, d_k / 2); or (2, B, 1, T, d_k / 2), a table for each sequence.
            cache: Attend to the keys and values in it as well, and add those of ``x``
                to it. S counts them all.
            return_weights: Also return the weights of every head, before dropout.

        Returns:
            The output, or the output and the weights.

        Raises:
            TypeError: If ``mask`` is not boolean.
            ValueError: If shapes do not fit, or ``context`` is given together with
                ``rotary`` or ``cache``, which belong to self-attention, or the cache
                is for a smaller window.
        """
        _validate_self_attention(context, rotary, cache, window)
        context = x if context is None else context
        self._validate_sequences(x, context, rotary)
        q = split_heads(self.q_proj(x), self.num_heads)
        k = split_heads(self.k_proj(context), self.num_kv_heads)
        v = split_heads(self.v_proj(context), self.num_kv_heads)
        q, k, v = self._prepare(q, k, v, x, context, rotary, cache)
        # With a window, the cache returns the last keys; mask and bias are for all.
        dropped = cache.length - k.shape[2] if isinstance(cache, WindowCache) else 0
        heads, weights = self.core(
            q,
            k,
            v,
            x,
            in_the_open=return_weights or not self.fused,
            mask=drop_keys(mask, dropped),
            causal=causal,
            window=window,
            score_bias=drop_keys(score_bias, dropped),
            dropout_p=self.dropout if self.training else 0.0,
        )
        output = self.o_proj(merge_heads(heads))
        if weights is None or not return_weights:
            return output
        return output, F.pad(weights, (dropped, 0)) if dropped else weights

    # --8<-- [end:forward]

    # --8<-- [start:prepare]
    def _prepare(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        context: Tensor,
        rotary: Tensor | None,
        cache: LayerCache | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Normalize and rotate queries and keys, then add those in the cache."""
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self._normed(q, self.q_norm), self._normed(k, self.k_norm)
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        q, k = self._with_index(q, k, x, context, rotary)
        if cache is not None:
            k, v = cache.append(k, v)
        return q, k, v

    def _normed(self, heads: Tensor, norm: nn.Module) -> Tensor:
        # Transposed back, the features of a head lie together in memory.
        rows = heads.transpose(1, 2)
        together = self.qk_norm == "projection"
        rows = norm(rows.flatten(2)).view_as(rows) if together else norm(rows)
        return rows.transpose(1, 2)

    # --8<-- [end:prepare]

    def _with_index(
        self,
        q: Tensor,
        k: Tensor,
        x: Tensor,
        context: Tensor,
        rotary: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        if isinstance(self.core, IndexedCore):
            return self.core.add_index(q, k, x, context, rotary)
        return q, k

    def new_cache(self, batch_size: int, max_length: int) -> DenseCache:
        """Return an empty cache for the keys and values of this layer.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens it has room for.
        """
        shape = batch_size, self.num_kv_heads, max_length
        core, like = self.core, numbers_of(self)
        index = core.index_width if isinstance(core, IndexedCore) else 0
        return DenseCache(
            like.new_zeros(*shape, self.head_dim + index),
            like.new_zeros(*shape, self.head_dim),
        )

    def _validate_sequences(
        self, x: Tensor, context: Tensor, rotary: Tensor | None
    ) -> None:
        validate_features("x", x, self.d_model)
        validate_features("context", context, self.d_context)
        validate_dtype("x", x, self.q_proj)
        if context is not x:
            validate_dtype("context", context, self.k_proj)
        if x.shape[0] != context.shape[0]:
            raise ValueError(
                "x and context must have the same batch size; "
                f"they have {x.shape[0]} and {context.shape[0]}"
            )
        if rotary is not None and not self._turns(rotary, x):
            table = f"{x.shape[1]}, {self.head_dim // 2})"
            raise ValueError(
                f"rotary must be the rotary_table of the positions of x, (2, {table}, "
                f"or of those of each sequence, (2, {x.shape[0]}, 1, {table}; "
                f"it is {tuple(rotary.shape)}"
            )

    def _turns(self, rotary: Tensor, x: Tensor) -> bool:
        """Return whether a table is for as many positions, and for heads this wide."""
        if rotary.ndim not in (3, 5):
            return False
        two, *leading, length, half = rotary.shape
        if (two, length, 2 * half) != (2, x.shape[1], self.head_dim):
            return False
        return not leading or (
            leading[0] in (1, len(x)) and leading[1] in (1, self.num_heads)
        )

    def extra_repr(self) -> str:
        """Show the settings that the projections do not show."""
        return (
            f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, "
            f"head_dim={self.head_dim}, dropout={self.dropout}, fused={self.fused}, "
            f"qk_norm={self.qk_norm}"
        )


def _make_qk_norm(
    kind: bool | str, num_heads: int, head_dim: int, **options: Any
) -> nn.LayerNorm | HeadNorm | None:
    if kind is False:
        return None
    if kind is True:
        return nn.LayerNorm(head_dim, elementwise_affine=False, **options)
    return HeadNorm(
        num_heads * head_dim if kind == "projection" else head_dim, **options
    )


def _validate_axes(name: str, tensor: Tensor, axes: str) -> None:
    if tensor.ndim != len(axes.split(",")):
        raise ValueError(f"{name} must be {axes}; it is {tuple(tensor.shape)}")


def _validate_self_attention(
    context: Tensor | None,
    rotary: Tensor | None,
    cache: LayerCache | None,
    window: int | None,
) -> None:
    if isinstance(cache, WindowCache) and (window is None or window > cache.window):
        raise ValueError(
            f"the cache keeps what a window of {cache.window} sees; window={window}"
        )
    if context is not None:
        for name, argument in (("rotary", rotary), ("cache", cache)):
            if argument is not None:
                raise ValueError(f"{name} belongs to self-attention: give no context")
