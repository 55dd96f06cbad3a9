"""The original transformer: an encoder reads a sequence, a decoder writes another."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, overload

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tested_transformer.cache import KVCache, LayerCache
from tested_transformer.layers import AddNorm, FeedForward, make_norm
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.positions import sinusoidal_positions

__all__ = [
    "AttentionMaps",
    "CrossDecoderBlock",
    "EncoderBlock",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "translate",
]


# --8<-- [start:config]
@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """Everything that makes one encoder and decoder another, apart from the weights.

    Args:
        vocab_size: V, the number of different tokens, of both languages together.
        max_seq_len: The longest sequence it can read or write.
        d_model: D, the width of the model; even.
        num_heads: H, heads of each attention.
        num_encoder_layers: Blocks that read.
        num_decoder_layers: Blocks that write.
        d_ff: Width inside the feed-forward; ``4 * d_model`` by default.
        activation: One of ``layers.ACTIVATIONS``.
        norm: One of ``layers.NORMS``.
        norm_first: Norm what each part reads, and the end of each stack, and not the
            sums.
        bias: Whether projections and layer norms add a bias.
        dropout: The probability of dropping a weight or a feature while training.
        fused: Use PyTorch's fused kernels for attention.

    Raises:
        ValueError: If a setting does not fit.
    """

    vocab_size: int
    max_seq_len: int = 64
    d_model: int = 128
    num_heads: int = 4
    num_encoder_layers: int = 2
    num_decoder_layers: int = 2
    d_ff: int | None = None
    activation: str = "relu"
    norm: str = "layer"
    norm_first: bool = False
    bias: bool = True
    dropout: float = 0.0
    fused: bool = True

    # --8<-- [end:config]

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "max_seq_len",
            "num_encoder_layers",
            "num_decoder_layers",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if self.d_model < 1 or self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} must be positive and even")
        # Its modules check the rest; on this device they take no memory.
        with torch.device("meta"):
            CrossDecoderBlock(**self.block_settings())

    def block_settings(self) -> dict[str, Any]:
        """Give what each block is made with, of the encoder and of the decoder."""
        names = ("d_model", "num_heads", "d_ff", "activation", "norm", "norm_first")
        names += ("bias", "dropout", "fused")
        return {name: getattr(self, name) for name in names}


_Output = Float[Tensor, "B S D"]
_Weights = Float[Tensor, "B H S S"]


# --8<-- [start:encoder]
class EncoderBlock(nn.Module):
    """One layer of an encoder: self-attention that sees both sides, a feed-forward.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, the heads of attention.
        d_ff: The width inside the feed-forward; ``4 * d_model`` by default.
        activation: One of ``ACTIVATIONS``.
        norm: One of ``NORMS``.
        norm_first: Norm what each part reads, and not the sum.
        bias: Whether projections and layer norms add a bias.
        dropout: The probability of dropping an attention weight, and a feature of
            what attention and feed-forward add, while training.
        fused: Use PyTorch's fused kernels.

    Raises:
        ValueError: If a setting does not fit.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.1.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        d_ff: int | None = None,
        activation: str = "relu",
        norm: str = "layer",
        norm_first: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        fused: bool = True,
    ) -> None:
        super().__init__()
        add_norm = partial(
            AddNorm,
            d_model=d_model,
            norm=norm,
            bias=bias,
            dropout=dropout,
            norm_first=norm_first,
        )
        self.attention = MultiHeadAttention(
            d_model=d_model,
            num_heads=num_heads,
            dropout=dropout,
            bias=bias,
            fused=fused,
        )
        self.add_attention = add_norm()
        self.feed_forward = FeedForward(
            d_model=d_model, d_ff=d_ff, activation=activation, bias=bias
        )
        self.add_feed_forward = add_norm()

    # --8<-- [start:encoder-forward]
    def forward(
        self,
        x: Float[Tensor, "B S D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Let each position read all others, then think by itself.

        Args:
            x: The sequence.
            mask: ``True`` where a query may attend; for padding, ``padding_mask``.
            return_weights: Return the weights of every head too.

        Returns:
            The output, or the output and the weights.
        """
        attended = self.attention(
            self.add_attention.read(x), mask=mask, return_weights=return_weights
        )
        attended, weights = attended if return_weights else (attended, None)
        x = self.add_attention.add(x, attended)
        x = self.add_feed_forward(x, self.feed_forward)
        return x if weights is None else (x, weights)

    # --8<-- [end:encoder-forward]


# --8<-- [end:encoder]


_Decoded = Float[Tensor, "B T D"]
_Own = Float[Tensor, "B H T P"]
_Cross = Float[Tensor, "B H T S"]


# --8<-- [start:cross]
class CrossDecoderBlock(nn.Module):
    """One layer of a decoder: causal self-attention, cross-attention, a feed-forward.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, the heads of each attention.
        d_context: The width of the context; ``d_model`` by default.
        d_ff: The width inside the feed-forward; ``4 * d_model`` by default.
        activation: One of ``ACTIVATIONS``.
        norm: One of ``NORMS``.
        norm_first: Norm what each part reads, and not the sum.
        bias: Whether projections and layer norms add a bias.
        dropout: The probability of dropping an attention weight, and a feature of
            what each part adds, while training.
        fused: Use PyTorch's fused kernels.

    Raises:
        ValueError: If a setting does not fit.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.1.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        d_context: int | None = None,
        d_ff: int | None = None,
        activation: str = "relu",
        norm: str = "layer",
        norm_first: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        fused: bool = True,
    ) -> None:
        super().__init__()
        attention = partial(
            MultiHeadAttention,
            d_model=d_model,
            num_heads=num_heads,
            dropout=dropout,
            bias=bias,
            fused=fused,
        )
        add_norm = partial(
            AddNorm,
            d_model=d_model,
            norm=norm,
            bias=bias,
            dropout=dropout,
            norm_first=norm_first,
        )
        self.attention = attention()
        self.add_attention = add_norm()
        self.cross_attention = attention(d_context=d_context)
        self.add_cross_attention = add_norm()
        self.feed_forward = FeedForward(
            d_model=d_model, d_ff=d_ff, activation=activation, bias=bias
        )
        self.add_feed_forward = add_norm()

    # --8<-- [start:cross-forward]
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        context: Float[Tensor, "B S C"],
        mask: Bool[Tensor, "..."] | None = None,
        context_mask: Bool[Tensor, "..."] | None = None,
        cache: LayerCache | None = None,
        return_weights: bool = False,
    ) -> _Decoded | tuple[_Decoded, _Own, _Cross]:
        """Let each position read its past, then the context, then think by itself.

        Args:
            x: The sequence that is being written.
            context: The sequence that it is written from, such as an encoder's output.
            mask: ``True`` where a query may attend in ``x``, beside the causal mask.
            context_mask: ``True`` where a query may attend in ``context``.
            cache: The keys and values of what was read of ``x`` before.
            return_weights: Return the weights of both attentions too.

        Returns:
            The output; or the output, the weights over P positions of ``x``, those
            in the cache counted, and the weights over the context.
        """
        attended = self.attention(
            self.add_attention.read(x),
            mask=mask,
            causal=True,
            cache=cache,
            return_weights=return_weights,
        )
        attended, own = attended if return_weights else (attended, None)
        x = self.add_attention.add(x, attended)
        found = self.cross_attention(
            self.add_cross_attention.read(x),
            context=context,
            mask=context_mask,
            return_weights=return_weights,
        )
        found, cross = found if return_weights else (found, None)
        x = self.add_cross_attention.add(x, found)
        x = self.add_feed_forward(x, self.feed_forward)
        return x if own is None or cross is None else (x, own, cross)

    # --8<-- [end:cross-forward]


# --8<-- [end:cross]


_Maps = list[Float[Tensor, "B H _ _"]]
_Context = Float[Tensor, "B S D"]
_Logits = Float[Tensor, "B T V"]


# --8<-- [start:maps]
class AttentionMaps(NamedTuple):
    """The weights of all heads of one pass: a list of tensors each, layer by layer."""

    encoder: _Maps  # (B, H, S, S): the source reads itself
    decoder: _Maps  # (B, H, T, T): the target reads its past
    cross: _Maps  # (B, H, T, S): the target reads the source


# --8<-- [end:maps]


# --8<-- [start:model]
class EncoderDecoder(nn.Module):
    """A stack that reads the source, and one that writes the target from it.

    Source and target share one embedding, which is the last matrix too.

    Args:
        config: What it is made of.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.
    """

    position_table: Tensor

    # --8<-- [start:init]
    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        d_model, settings = config.d_model, config.block_settings()
        self.token_embedding = nn.Embedding(config.vocab_size, d_model)
        table = sinusoidal_positions(config.max_seq_len, d_model)
        self.register_buffer("position_table", table, persistent=False)
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        self.encoder = nn.ModuleList(
            EncoderBlock(**settings) for _ in range(config.num_encoder_layers)
        )
        self.decoder = nn.ModuleList(
            CrossDecoderBlock(**settings) for _ in range(config.num_decoder_layers)
        )
        # Post-norm ends each block with a norm; pre-norm needs one at the very end.
        self.encoder_norm, self.decoder_norm = (
            make_norm(config.norm, d_model, bias=config.bias)
            if config.norm_first
            else nn.Identity()
            for _ in range(2)
        )
        self.reset_parameters()

    # --8<-- [end:init]

    # --8<-- [start:forward]
    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_mask: Bool[Tensor, "..."] | None = None,
        target_mask: Bool[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> _Logits | tuple[_Logits, AttentionMaps]:
        """Guess the token after each position of the target, given all of the source.

        Args:
            source: Token ids to read.
            target: Token ids that are written already, from the first.
            source_mask: ``True`` where a token of the source may be attended to, by
                source and target alike; for padding, ``padding_mask``.
            target_mask: ``True`` where a token of the target may be attended to,
                beside the causal mask.
            return_weights: Return the weights of every head too.

        Returns:
            The logits, or the logits and the weights.

        Raises:
            ValueError: If ``source`` or ``target`` does not fit the model.
        """
        if not return_weights:
            context = self.encode(source, mask=source_mask)
            return self.decode(
                target, context, mask=target_mask, context_mask=source_mask
            )
        context, read = self.encode(source, mask=source_mask, return_weights=True)
        logits, own, cross = self.decode(
            target,
            context,
            mask=target_mask,
            context_mask=source_mask,
            return_weights=True,
        )
        return logits, AttentionMaps(read, own, cross)

    # --8<-- [end:forward]

    @overload
    def encode(
        self,
        source: Tensor,
        *,
        mask: Tensor | None = None,
        return_weights: Literal[False] = False,
    ) -> _Context: ...

    @overload
    def encode(
        self,
        source: Tensor,
        *,
        mask: Tensor | None = None,
        return_weights: Literal[True],
    ) -> tuple[_Context, _Maps]: ...

    # --8<-- [start:encode]
    def encode(
        self,
        source: Int[Tensor, "B S"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> _Context | tuple[_Context, _Maps]:
        """Read the source: one row of features for each of its tokens.

        Args:
            source: Token ids.
            mask: ``True`` where a token may be attended to.
            return_weights: Return the weights of every head too, layer by layer.
        """
        maps: _Maps = []
        x = self._embed("source", source, 0)
        for block in self.encoder:
            x = block(x, mask=mask, return_weights=return_weights)
            if return_weights:
                x, weights = x
                maps.append(weights)
        context = self.encoder_norm(x)
        return (context, maps) if return_weights else context

    # --8<-- [end:encode]

    @overload
    def decode(
        self,
        target: Tensor,
        context: Tensor,
        *,
        mask: Tensor | None = None,
        context_mask: Tensor | None = None,
        cache: KVCache | None = None,
        return_weights: Literal[False] = False,
    ) -> _Logits: ...

    @overload
    def decode(
        self,
        target: Tensor,
        context: Tensor,
        *,
        mask: Tensor | None = None,
        context_mask: Tensor | None = None,
        cache: KVCache | None = None,
        return_weights: Literal[True],
    ) -> tuple[_Logits, _Maps, _Maps]: ...

    # --8<-- [start:decode]
    def decode(
        self,
        target: Int[Tensor, "B T"],
        context: Float[Tensor, "B S D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        context_mask: Bool[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
        return_weights: bool = False,
    ) -> _Logits | tuple[_Logits, _Maps, _Maps]:
        """Guess the token after each position of the target.

        Args:
            target: Token ids. With a cache, only those that it does not hold yet.
            context: What ``encode`` gave.
            mask: ``True`` where a token of the target may be attended to, beside the
                causal mask; it covers those in the cache too.
            context_mask: The mask that ``encode`` had.
            cache: What was read of the target before; ``target`` is added to it.
            return_weights: Return the weights over the target and over the context
                too, each layer by layer.
        """
        own: _Maps = []
        cross: _Maps = []
        x = self._embed("target", target, 0 if cache is None else cache.length)
        for index, block in enumerate(self.decoder):
            x = block(
                x,
                context=context,
                mask=mask,
                context_mask=context_mask,
                cache=None if cache is None else cache.layers[index],
                return_weights=return_weights,
            )
            if return_weights:
                x, *weights = x
                own.append(weights[0])
                cross.append(weights[1])
        logits = F.linear(self.decoder_norm(x), self.token_embedding.weight)
        return (logits, own, cross) if return_weights else logits

    # --8<-- [end:decode]

    # --8<-- [start:embed]
    def _embed(self, name: str, tokens: Tensor, start: int) -> Tensor:
        """Look tokens up, scale them, and add their positions."""
        self._check_tokens(name, tokens, start)
        x = self.token_embedding(tokens) * self.config.d_model**0.5
        positions = self.position_table[start : start + tokens.shape[1]]
        return self.dropout(x + positions.to(x.dtype))

    def reset_parameters(self) -> None:
        """Draw all weights anew.

        An embedding is as long as a sinusoid only after it is scaled, and small enough
        for logits before.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.token_embedding.weight, std=self.config.d_model**-0.5)

    # --8<-- [end:embed]

    def new_cache(
        self, batch_size: int = 1, *, max_length: int | None = None
    ) -> KVCache:
        """Make an empty cache for what the decoder writes.

        Args:
            batch_size: How many sequences are written side by side.
            max_length: Room for how many tokens; ``max_seq_len`` by default.

        Raises:
            ValueError: If a size is not positive.
        """
        weight, num_heads = self.token_embedding.weight, self.config.num_heads
        return KVCache(
            num_layers=self.config.num_decoder_layers,
            batch_size=batch_size,
            num_kv_heads=num_heads,
            max_length=self.config.max_seq_len if max_length is None else max_length,
            head_dim=self.config.d_model // num_heads,
            dtype=weight.dtype,
            device=weight.device,
        )

    def _check_tokens(self, name: str, tokens: Tensor, start: int) -> None:
        if tokens.ndim != 2 or 0 in tokens.shape:
            raise ValueError(
                f"{name} must be (batch, length), not empty; it is "
                f"{tuple(tokens.shape)}"
            )
        end = start + tokens.shape[1]
        if end > self.config.max_seq_len:
            raise ValueError(
                f"{name} is {end} tokens long, which is more than "
                f"max_seq_len={self.config.max_seq_len}"
            )
        # Elsewhere than on the CPU, to look at the ids would mean to wait for them.
        if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
            lowest, highest = (int(extreme) for extreme in tokens.aminmax())
            if lowest < 0 or highest >= self.config.vocab_size:
                raise ValueError(
                    f"{name} holds ids from {lowest} to {highest}; they must be at "
                    f"least 0 and less than vocab_size={self.config.vocab_size}"
                )


# --8<-- [end:model]


# --8<-- [start:translate]
@torch.no_grad()
def translate(
    model: EncoderDecoder,
    source: Int[Tensor, "B S"],
    *,
    source_mask: Bool[Tensor, "..."] | None = None,
    bos: int,
    eos: int,
    max_length: int | None = None,
) -> Int[Tensor, "B T"]:
    """Read the source once, and write the likeliest token again and again.

    Args:
        model: A model, best in evaluation mode.
        source: Token ids to read.
        source_mask: ``True`` where a token of the source may be attended to.
        bos: The id that every target begins with; it is not returned.
        eos: The id that ends a target; what comes after it is ``eos`` too.
        max_length: Write at most that many tokens; ``max_seq_len`` by default.

    Returns:
        What was written, as long as the longest of the batch.

    Raises:
        ValueError: If ``max_length`` is not between 1 and ``max_seq_len``.
    """
    longest = model.config.max_seq_len if max_length is None else max_length
    if not 1 <= longest <= model.config.max_seq_len:
        raise ValueError(
            f"max_length={max_length} must lie between 1 and "
            f"max_seq_len={model.config.max_seq_len}"
        )
    context = model.encode(source, mask=source_mask)
    cache = model.new_cache(len(source), max_length=longest)
    written = [source.new_full((len(source), 1), bos)]
    ended = torch.zeros_like(written[0], dtype=torch.bool)
    while len(written) <= longest and not ended.all():
        logits = model.decode(
            written[-1], context, context_mask=source_mask, cache=cache
        )
        written.append(logits.argmax(dim=-1).masked_fill(ended, eos))
        ended = ended | (written[-1] == eos)
    return torch.cat(written[1:], dim=1)


# --8<-- [end:translate]
