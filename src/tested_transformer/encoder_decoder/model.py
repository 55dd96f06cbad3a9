"""The model: a source and a target in, at each position of it a guess at the next."""

from typing import Literal, NamedTuple, overload

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tested_transformer.blocks import CrossDecoderBlock, EncoderBlock, make_norm
from tested_transformer.cache import KVCache
from tested_transformer.encoder_decoder.config import EncoderDecoderConfig
from tested_transformer.positions import sinusoidal_positions

__all__ = ["AttentionMaps", "EncoderDecoder"]

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
