"""The original transformer: an encoder reads one sequence, a decoder writes another."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tested_transformer.cache import KVCache, LayerCache, length_of
from tested_transformer.checks import (
    validate_between,
    validate_choice,
    validate_heads,
    validate_sizes,
    validate_tokens,
)
from tested_transformer.layers import (
    ACTIVATIONS,
    GATED,
    NORMS,
    AddNorm,
    FeedForward,
    evaluating,
    make_norm,
    rows_of,
)
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


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """The settings of an encoder and decoder: everything except the weights.

    Args:
        vocab_size: V, the number of different tokens, in both languages together.
        max_seq_len: The longest sequence that the model can read or write.
        d_model: D, the width of the model; even.
        num_heads: H, heads in each attention.
        num_encoder_layers: Blocks in the encoder.
        num_decoder_layers: Blocks in the decoder.
        d_ff: Width inside the feed-forward; ``4 * d_model`` by default.
        activation: One of ``layers.ACTIVATIONS`` or ``layers.GATED``.
        norm: One of ``layers.NORMS``.
        norm_first: Normalize the input of each part and the end of each stack
            (pre-norm) instead of the sums (post-norm).
        bias: Whether projections and layer norms add a bias.
        dropout: The probability of dropping a weight or a feature while training.
        fused: Use PyTorch's fused kernels for attention.

    Raises:
        TypeError: If a size is not an ``int``.
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

    def __post_init__(self) -> None:
        validate_sizes(
            vocab_size=self.vocab_size,
            max_seq_len=self.max_seq_len,
            num_encoder_layers=self.num_encoder_layers,
            num_decoder_layers=self.num_decoder_layers,
            d_ff=1 if self.d_ff is None else self.d_ff,
        )
        validate_heads(self.d_model, self.num_heads)
        validate_choice("activation", self.activation, [*ACTIVATIONS, *GATED])
        validate_choice("norm", self.norm, NORMS)
        if self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} must be even for sinusoids")
        validate_between("dropout", self.dropout, 0, 1)


def _parts(
    d_model: int,
    num_heads: int,
    norm: str,
    norm_first: bool,
    bias: bool,
    dropout: float,
    fused: bool,
) -> tuple[partial[MultiHeadAttention], partial[AddNorm]]:
    """Return a factory for the attentions of a block, and one for its "Add & Norm"."""
    both = {"d_model": d_model, "bias": bias, "dropout": dropout}
    return (
        partial(MultiHeadAttention, **both, num_heads=num_heads, fused=fused),
        partial(AddNorm, **both, norm=norm, norm_first=norm_first),
    )


_Output = Float[Tensor, "B S D"]
_Weights = Float[Tensor, "B H S S"]


class EncoderBlock(nn.Module):
    """One layer of an encoder: bidirectional self-attention, then a feed-forward.

    The arguments are those of ``EncoderDecoderConfig``. While training, ``dropout``
    drops attention weights and features of each part's output.

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
        attention, add_norm = _parts(
            d_model, num_heads, norm, norm_first, bias, dropout, fused
        )
        self.attention = attention()
        self.add_attention = add_norm()
        self.feed_forward = FeedForward(
            d_model=d_model, d_ff=d_ff, activation=activation, bias=bias
        )
        self.add_feed_forward = add_norm()

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Let each position read all positions, then transform each alone.

        Args:
            x: The sequence.
            mask: ``True`` where a query may attend, such as a ``padding_mask``.
            return_weights: Also return the weights of every head.

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


_Decoded = Float[Tensor, "B T D"]
_Own = Float[Tensor, "B H T P"]
_Cross = Float[Tensor, "B H T S"]


class CrossDecoderBlock(nn.Module):
    """One layer of a decoder: causal self-attention, cross-attention, a feed-forward.

    Args:
        d_context: The width of the context; ``d_model`` by default.

    The other arguments are those of ``EncoderDecoderConfig``.

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
        attention, add_norm = _parts(
            d_model, num_heads, norm, norm_first, bias, dropout, fused
        )
        self.attention = attention()
        self.add_attention = add_norm()
        self.cross_attention = attention(d_context=d_context)
        self.add_cross_attention = add_norm()
        self.feed_forward = FeedForward(
            d_model=d_model, d_ff=d_ff, activation=activation, bias=bias
        )
        self.add_feed_forward = add_norm()

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
        """Let each position read earlier ones, then the context; transform each alone.

        Args:
            x: The target sequence.
            context: The sequence to attend to, such as an encoder's output.
            mask: ``True`` where a query may attend in ``x``, in addition to the causal
                mask.
            context_mask: ``True`` where a query may attend in ``context``.
            cache: The keys and values of earlier tokens of the target.
            return_weights: Also return the weights of both attentions.

        Returns:
            The output; or the output, the weights over the P positions of the target
            (including those in the cache), and the weights over the context.
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
        read = self.cross_attention(
            self.add_cross_attention.read(x),
            context=context,
            mask=context_mask,
            return_weights=return_weights,
        )
        read, cross = read if return_weights else (read, None)
        x = self.add_cross_attention.add(x, read)
        x = self.add_feed_forward(x, self.feed_forward)
        return x if own is None or cross is None else (x, own, cross)


_Maps = list[Float[Tensor, "B H _ _"]]
_Logits = Float[Tensor, "B T V"]


class AttentionMaps(NamedTuple):
    """The weights of all heads in one pass: three lists, one tensor per layer."""

    encoder: _Maps  # (B, H, S, S): the source reads itself
    decoder: _Maps  # (B, H, T, T): the target reads itself, causally
    cross: _Maps  # (B, H, T, S): the target reads the source


class EncoderDecoder(nn.Module):
    """An encoder that reads the source, and a decoder that writes the target.

    Source and target share one embedding, which is also the last matrix.

    Args:
        config: The settings of the model.
        device: Where to make it; PyTorch's default device by default.
        dtype: The type of its weights. They are drawn in PyTorch's default type.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.
    """

    position_table: Tensor

    def __init__(
        self,
        config: EncoderDecoderConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        with torch.device(torch.get_default_device() if device is None else device):
            self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
            self.dropout = nn.Dropout(config.dropout)
            self.encoder = self._make_stack(EncoderBlock, config.num_encoder_layers)
            self.decoder = self._make_stack(
                CrossDecoderBlock, config.num_decoder_layers
            )
            self.encoder_norm = self._make_last_norm()
            self.decoder_norm = self._make_last_norm()
            self.reset_parameters()
        if dtype is not None:
            self.to(dtype=dtype)

    def _make_stack(
        self, block: type[EncoderBlock | CrossDecoderBlock], num_layers: int
    ) -> nn.ModuleList:
        """Return new blocks, one on top of the other."""
        config = self.config
        return nn.ModuleList(
            block(
                d_model=config.d_model,
                num_heads=config.num_heads,
                d_ff=config.d_ff,
                activation=config.activation,
                norm=config.norm,
                norm_first=config.norm_first,
                bias=config.bias,
                dropout=config.dropout,
                fused=config.fused,
            )
            for _ in range(num_layers)
        )

    def _make_last_norm(self) -> nn.Module:
        """Return the norm after a stack; post-norm blocks need none."""
        config = self.config
        norm = make_norm(config.norm, config.d_model, bias=config.bias)
        return norm if config.norm_first else nn.Identity()

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_mask: Bool[Tensor, "..."] | None = None,
        target_mask: Bool[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> _Logits | tuple[_Logits, AttentionMaps]:
        """Predict the token after each position of the target, given the whole source.

        Args:
            source: Token ids to read.
            target: Token ids written so far, from the first on.
            source_mask: ``True`` where source and target may attend to a token of the
                source, such as a ``padding_mask``.
            target_mask: ``True`` where the target may attend to a token of the target,
                in addition to the causal mask.
            return_weights: Also return the weights of every head.

        Returns:
            The logits, or the logits and the weights.

        Raises:
            ValueError: If ``source`` or ``target`` does not fit the model.
        """
        maps = AttentionMaps([], [], []) if return_weights else None
        context = self.encode(source, mask=source_mask, maps=maps)
        logits = self.decode(
            target, context, mask=target_mask, context_mask=source_mask, maps=maps
        )
        return logits if maps is None else (logits, maps)

    # --8<-- [start:encode]
    def encode(
        self,
        source: Int[Tensor, "B S"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        maps: AttentionMaps | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Read the source, and return one row of features for each of its tokens.

        Args:
            source: Token ids.
            mask: ``True`` where a token may be attended to.
            maps: If given, append the weights of every head to it, layer by layer.
        """
        x = self._embed("source tokens", source, 0)
        for block in self.encoder:
            x = block(x, mask=mask, return_weights=maps is not None)
            if maps is not None:
                x, weights = x
                maps.encoder.append(weights)
        return self.encoder_norm(x)

    # --8<-- [end:encode]

    # --8<-- [start:decode]
    def decode(
        self,
        target: Int[Tensor, "B T"],
        context: Float[Tensor, "B S D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        context_mask: Bool[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
        maps: AttentionMaps | None = None,
    ) -> _Logits:
        """Return the logits of the token after each position of the target.

        Args:
            target: Token ids. With a cache, only those that it does not hold yet.
            context: The output of ``encode``.
            mask: ``True`` where a token of the target may be attended to, in addition
                to the causal mask; it covers the tokens in the cache too.
            context_mask: The mask passed to ``encode``.
            cache: What was read of the target before; ``target`` is added to it. If a
                call raises, ``reset`` it.
            maps: If given, append the weights of every head to it, layer by layer.

        Raises:
            ValueError: If ``target`` does not fit the model, or the cache.
        """
        x = self._embed("target tokens", target, length_of(cache, len(self.decoder)))
        for layer, block in enumerate(self.decoder):
            x = block(
                x,
                context=context,
                mask=mask,
                context_mask=context_mask,
                cache=None if cache is None else cache.layers[layer],
                return_weights=maps is not None,
            )
            if maps is not None:
                x, own, cross = x
                maps.decoder.append(own)
                maps.cross.append(cross)
        rows = rows_of(self.token_embedding, self.config.vocab_size)
        return F.linear(self.decoder_norm(x), rows)

    # --8<-- [end:decode]

    def _embed(self, name: str, tokens: Tensor, start: int) -> Tensor:
        """Look tokens up, scale them, and add their positions."""
        config = self.config
        validate_tokens(name, tokens, config.vocab_size, config.max_seq_len, start)
        x = self.token_embedding(tokens) * config.d_model**0.5
        positions = self.position_table[start : start + tokens.shape[1]]
        return self.dropout(x + positions.to(x.dtype))

    def reset_parameters(self) -> None:
        """Draw all weights again, and reset norms, biases and the table of positions.

        Embeddings are drawn small enough for logits; scaled by ``sqrt(d_model)`` they
        are about as long as the sinusoids that are added to them.
        """
        config, embedding = self.config, self.token_embedding.weight
        for module in self.modules():
            if isinstance(module, nn.LayerNorm | nn.RMSNorm):
                module.reset_parameters()
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(embedding, std=config.d_model**-0.5)
        with torch.device("cpu"):  # because not every device has double precision
            table = sinusoidal_positions(config.max_seq_len, config.d_model)
        self.register_buffer("position_table", table.to(embedding), persistent=False)

    def new_cache(
        self, batch_size: int = 1, *, max_length: int | None = None
    ) -> KVCache:
        """Return an empty cache for the decoder.

        Args:
            batch_size: How many sequences are written side by side.
            max_length: How many tokens it has room for; ``max_seq_len`` by default.

        Raises:
            ValueError: If ``max_length`` is not between 1 and ``max_seq_len``, or
                ``batch_size`` is not positive.
        """
        longest = self.config.max_seq_len
        max_length = longest if max_length is None else max_length
        validate_between("max_length", max_length, 1, longest, "max_seq_len")
        validate_sizes(batch_size=batch_size)
        layers: list[LayerCache] = []
        for block in self.decoder:
            assert isinstance(block, CrossDecoderBlock)
            layers.append(block.attention.new_cache(batch_size, max_length))
        return KVCache(layers)


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
    """Read the source once, then write the most likely token at each step.

    Args:
        model: Any model; dropout is off while it writes.
        source: Token ids to read.
        source_mask: ``True`` where a token of the source may be attended to.
        bos: The id that every target begins with; it is not returned.
        eos: The id that ends a target; shorter targets are padded with it.
        max_length: Write at most this many tokens; ``max_seq_len`` by default.

    Returns:
        The targets, all as long as the longest in the batch.

    Raises:
        ValueError: If ``max_length`` is not between 1 and ``max_seq_len``.
    """
    longest = model.config.max_seq_len if max_length is None else max_length
    cache = model.new_cache(len(source), max_length=longest)
    written = [source.new_full((len(source), 1), bos)]
    ended = torch.zeros_like(written[0], dtype=torch.bool)
    with evaluating(model):
        context = model.encode(source, mask=source_mask)
        while len(written) <= longest and not ended.all():
            logits = model.decode(
                written[-1], context, context_mask=source_mask, cache=cache
            )
            written.append(logits.argmax(dim=-1).masked_fill(ended, eos))
            ended = ended | (written[-1] == eos)
    return torch.cat(written[1:], dim=1)


# --8<-- [end:translate]
