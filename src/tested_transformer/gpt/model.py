"""The model: tokens in, and at every position a guess at the token after it."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tested_transformer.blocks import (
    DecoderBlock,
    MixtureOfExperts,
    count_parameters,
    make_norm,
)
from tested_transformer.cache import KVCache
from tested_transformer.gpt.config import GPTConfig
from tested_transformer.positions import (
    alibi_bias,
    alibi_slopes,
    rotary_table,
    sinusoidal_positions,
)

__all__ = ["GPT"]

_Logits = Float[Tensor, "B T V"]


# --8<-- [start:model]
class GPT(nn.Module):
    """A stack of decoder blocks between an embedding of tokens and a guess at the next.

    Args:
        config: What it is made of.

    Sources: Radford et al., 2018, "Improving Language Understanding by Generative
    Pre-Training"; 2019, "Language Models are Unsupervised Multitask Learners".
    """

    # What is registered below, as far as PyTorch's types do not tell.
    blocks: Sequence[DecoderBlock]
    position_table: Tensor
    slopes: Tensor

    # --8<-- [start:init]
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        d_model, max_seq_len = config.d_model, config.max_seq_len
        self.token_embedding = nn.Embedding(config.vocab_size, d_model)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(max_seq_len, d_model)
        elif config.positions == "sinusoidal":
            table = sinusoidal_positions(max_seq_len, d_model)
            self.register_buffer("position_table", table, persistent=False)
        elif config.positions == "rotary":
            head_dim = d_model // config.num_heads
            table = rotary_table(torch.arange(max_seq_len), head_dim)
            self.register_buffer("position_table", table, persistent=False)
        elif config.positions == "alibi":
            # The flattest head takes off 8 over the whole context, the steepest each
            # step 1.
            slopes = alibi_slopes(
                config.num_heads, steepest=1.0, flattest=8 / max_seq_len
            )
            self.register_buffer("slopes", slopes, persistent=False)
        if config.smear:
            self.smear = nn.Parameter(torch.zeros(d_model))
        self.dropout = nn.Dropout(config.dropout) if config.dropout else nn.Identity()
        layers = range(config.num_layers)
        blocks = [DecoderBlock(**config.block_settings(layer)) for layer in layers]
        self.register_module("blocks", nn.ModuleList(blocks))
        self.norm = make_norm(config.norm, d_model, bias=config.bias)
        if not config.tie_head:
            self.head = nn.Linear(d_model, config.vocab_size, bias=False)
        self.reset_parameters()

    # --8<-- [end:init]

    # --8<-- [start:forward]
    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, "B T"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
        return_weights: bool = False,
    ) -> _Logits | tuple[_Logits, list[Float[Tensor, "B H T S"]]]:
        """Guess the token after each position, from that position and those before it.

        Args:
            tokens: Token ids. With a cache, only those that it does not hold yet.
            positions: Where each token stands; counted from 0, after those in the
                cache, by default. For batches that are padded on the left.
            mask: ``True`` where a query may attend, beside the causal mask. It covers
                all keys, those in the cache too.
            cache: What was read before; ``tokens`` are added to it.
            return_weights: Return the attention weights of every head, layer by layer,
                as this very pass has them.

        Returns:
            The logits, or the logits and a list of one tensor of weights a layer.

        Raises:
            ValueError: If ``tokens`` do not fit the model, or the cache.
        """
        start = 0 if cache is None else cache.length
        self._check_tokens(tokens, start)
        x = self._embed(tokens, positions, start, cache)
        order = self._order(positions, start, start + tokens.shape[1])
        maps: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            x = block(
                x,
                mask=mask,
                **order[index],
                cache=None if cache is None else cache.layers[index],
                return_weights=return_weights,
            )
            if return_weights:
                x, weights = x
                maps.append(weights)
        logits = F.linear(self.norm(x), self.head_weight)
        return (logits, maps) if return_weights else logits

    # --8<-- [end:forward]

    # --8<-- [start:embed]
    def _embed(
        self,
        tokens: Tensor,
        positions: Tensor | None,
        start: int,
        cache: KVCache | None,
    ) -> Tensor:
        """Look tokens up, and add their positions and a share of the one before."""
        x = self.token_embedding(tokens)
        if self.config.smear:
            x = x + self.smear * self._one_before(x, positions, cache)
            if cache is not None:
                cache.last_tokens = tokens[:, -1:]
        # A slice where positions are in a row, a list of them where they are not.
        at = slice(start, start + tokens.shape[1]) if positions is None else positions
        if self.config.positions == "learned":
            x = x + self.position_embedding.weight[at]
        elif self.config.positions == "sinusoidal":
            x = x + self.position_table[at].to(x.dtype)
        return self.dropout(x)

    def _one_before(
        self, x: Tensor, positions: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        """Give the embedding of the token before each; zeros before the first."""
        if cache is None or cache.last_tokens is None:
            first = torch.zeros_like(x[:, :1])
        else:
            first = self.token_embedding(cache.last_tokens)
        before = torch.cat([first, x[:, :-1]], dim=1)
        return before if positions is None else before * (positions > 0)[..., None]

    def _order(
        self, positions: Tensor | None, start: int, end: int
    ) -> list[dict[str, Tensor]]:
        """Give what tells the heads of each block about order, if anything does."""
        layers = range(self.config.num_layers)
        if self.config.positions == "alibi":
            # Padding on the left moves queries and keys alike.
            bias = alibi_bias(self.slopes, end - start, end)
            kept = self.config.kept_heads
            return [{"score_bias": bias[:, kept[i]] if kept else bias} for i in layers]
        if self.config.positions == "rotary":
            if positions is None:
                return [{"rotary": self.position_table[:, start:end]} for _ in layers]
            table = self.position_table[:, positions]
            return [{"rotary": table[:, :, None]} for _ in layers]  # alike in all heads
        return [{} for _ in layers]

    # --8<-- [end:embed]

    @property
    def head_weight(self) -> Tensor:
        """The matrix from features to logits, (V, D): the embedding's if tied."""
        return (self.token_embedding if self.config.tie_head else self.head).weight

    # --8<-- [start:reset]
    def reset_parameters(self) -> None:
        """Draw all weights anew: small, smaller where a block adds to its input.

        Source: Radford et al., 2019, section 2.3: the standard deviation 0.02 is that
        of the published code, ``1 / sqrt(2 * num_layers)`` the paper's.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        adding = 0.0 if self.config.zero_init else (2 * len(self.blocks)) ** -0.5
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "down.weight")):
                weight.data.mul_(adding)
        if self.config.zero_init and not self.config.tie_head:
            nn.init.zeros_(self.head.weight)

    # --8<-- [end:reset]

    def new_cache(
        self, batch_size: int = 1, *, max_length: int | None = None
    ) -> KVCache:
        """Make an empty cache for this model.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: Room for how many tokens; ``max_seq_len`` by default.

        Raises:
            ValueError: If ``max_length`` is beyond ``max_seq_len``, or a size is not
                positive.
        """
        longest = self.config.max_seq_len
        max_length = longest if max_length is None else max_length
        if max_length > longest:
            raise ValueError(
                f"max_length={max_length} must not be beyond max_seq_len={longest}"
            )
        attention = self.blocks[0].attention
        return KVCache(
            num_layers=self.config.num_layers,
            batch_size=batch_size,
            num_kv_heads=[block.attention.num_kv_heads for block in self.blocks],
            max_length=max_length,
            head_dim=attention.head_dim,
            dtype=attention.k_proj.weight.dtype,
            device=attention.k_proj.weight.device,
        )

    def balance_loss(self) -> Float[Tensor, ""]:
        """Give the mean balance loss of all mixtures of experts; 0 if there are none.

        It is that of the last forward pass, and 1 where every expert is used alike.
        """
        experts = [m for m in self.modules() if isinstance(m, MixtureOfExperts)]
        if not experts:
            return self.head_weight.new_zeros(())
        return torch.stack([mixture.balance_loss for mixture in experts]).mean()

    def num_parameters(self, *, active: bool = False) -> int:
        """Count the parameters, or those alone that one token goes through."""
        return count_parameters(self, active=active)

    def _check_tokens(self, tokens: Tensor, start: int) -> None:
        if tokens.ndim != 2 or 0 in tokens.shape:
            raise ValueError(f"tokens must be (B, T); they are {tuple(tokens.shape)}")
        end = start + tokens.shape[1]
        if end > self.config.max_seq_len:
            held = f" after {start} in the cache" if start else ""
            raise ValueError(
                f"{tokens.shape[1]} tokens{held} are more than "
                f"max_seq_len={self.config.max_seq_len}"
            )
        # Elsewhere than on the CPU, to look at the ids would mean to wait for them.
        if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
            lowest, highest = (int(extreme) for extreme in tokens.aminmax())
            if lowest < 0 or highest >= self.config.vocab_size:
                raise ValueError(
                    f"tokens hold ids from {lowest} to {highest}; they must be at "
                    f"least 0 and less than vocab_size={self.config.vocab_size}"
                )


# --8<-- [end:model]
