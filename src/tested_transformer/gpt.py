"""A GPT on one sheet: its settings, its block, and the model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tested_transformer.cache import KVCache, LayerCache
from tested_transformer.experts import MixtureOfExperts, count_parameters
from tested_transformer.layers import ACTIVATIONS, NORMS, FeedForward, make_norm
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.positions import (
    alibi_bias,
    alibi_slopes,
    rotary_table,
    sinusoidal_positions,
)

__all__ = ["GPT", "POSITIONS", "DecoderBlock", "GPTConfig", "with_fewer_keys"]


POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")

_Settings = dict[str, Any]
_NOT_OURS = {"self", "head_dim"}


# --8<-- [start:config]
@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Everything that makes one GPT another, apart from its weights.

    Args:
        vocab_size: V, the number of different tokens.
        max_seq_len: The longest sequence it can read.
        d_model: D, the width of the model.
        num_heads: H, heads of attention in each layer.
        num_layers: Blocks, one on top of the other.
        num_kv_heads: Heads of keys and values, shared; ``num_heads`` by default.
        d_ff: Width inside the feed-forward; ``4 * d_model`` by default.
        positions: How order comes in, one of ``POSITIONS``.
        activation: One of ``layers.ACTIVATIONS``.
        norm: One of ``layers.NORMS``.
        bias: Whether projections and layer norms add a bias.
        tie_head: Whether the last matrix is the token embedding.
        dropout: The probability of dropping a weight or a feature while training.
        num_experts: Experts in the feed-forward's place; 0 for none.
        experts_per_token: How many of them each token goes through.
        qk_norm: Bring queries and keys to one length.
        smear: Add to each token a learned share of the token before it.
        zero_init: Start with matrices of zeros where a block adds to its input, and
            in a head of its own: at first every block passes on what it was given,
            and every token is as likely as any other.
        fused: Use PyTorch's fused kernels for attention.
        kept_heads: Of each layer the heads that pruning left, by their numbers before;
            all of them by default. A head stays ``d_model // num_heads`` wide.

    Raises:
        ValueError: If a setting does not fit.
    """

    vocab_size: int
    max_seq_len: int = 64
    d_model: int = 128
    num_heads: int = 4
    num_layers: int = 4
    num_kv_heads: int | None = None
    d_ff: int | None = None
    positions: str = "learned"
    activation: str = "gelu"
    norm: str = "layer"
    bias: bool = True
    tie_head: bool = True
    dropout: float = 0.0
    num_experts: int = 0
    experts_per_token: int = 2
    qk_norm: bool = False
    smear: bool = False
    zero_init: bool = False
    fused: bool = True
    kept_heads: tuple[tuple[int, ...], ...] | None = None

    # --8<-- [end:config]

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_seq_len", "d_model", "num_heads", "num_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        for name, choices in (
            ("positions", POSITIONS),
            ("activation", ACTIVATIONS),
            ("norm", NORMS),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} must be one of "
                    f"{', '.join(choices)}"
                )
        if self.num_experts < 0:
            raise ValueError(f"num_experts={self.num_experts} must not be negative")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} must be even for sinusoids")
        # Its modules check the rest; on this device they take no memory.
        with torch.device("meta"):
            block = DecoderBlock(**self._whole_block())
        if self.positions == "rotary" and block.attention.head_dim % 2:
            raise ValueError(
                f"head_dim={block.attention.head_dim} must be even for rotary positions"
            )

        if self.kept_heads is not None:
            self._check_kept(self.kept_heads)

    def block_settings(self, layer: int = 0) -> _Settings:
        """Give what a block is made with: each layer's the same, but for pruning."""
        if self.kept_heads is None:
            return self._whole_block()
        num_heads = len(self.kept_heads[layer])
        return {
            **self._whole_block(),
            "num_heads": num_heads,
            "num_kv_heads": num_heads // self._group,
            "head_dim": self.d_model // self.num_heads,
        }

    def _whole_block(self) -> _Settings:
        names = signature(DecoderBlock.__init__).parameters.keys()
        return {name: getattr(self, name) for name in sorted({*names} - _NOT_OURS)}

    @property
    def _group(self) -> int:
        """How many heads share a head of keys and values."""
        return self.num_heads // (self.num_kv_heads or self.num_heads)

    def _check_kept(self, kept: tuple[tuple[int, ...], ...]) -> None:
        if len(kept) != self.num_layers:
            raise ValueError(
                f"kept_heads has {len(kept)} layers; num_layers={self.num_layers}"
            )
        for layer, heads in enumerate(kept):
            known = [head for head in range(self.num_heads) if head in heads]
            if not heads or [*heads] != known:
                raise ValueError(
                    f"kept_heads[{layer}]={heads} must be one or more of the heads 0 "
                    f"to {self.num_heads - 1}, in order"
                )
            groups = {head // self._group for head in heads}
            if len(heads) != len(groups) * self._group:
                raise ValueError(
                    f"kept_heads[{layer}]={heads} must be whole groups: "
                    f"{self._group} heads in a row share their keys and values"
                )


_Output = Float[Tensor, "B T D"]
_Weights = Float[Tensor, "B H T S"]


# --8<-- [start:block]
class DecoderBlock(nn.Module):
    """One layer of a GPT: causal self-attention, then a feed-forward, each pre-normed.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, the heads of attention.
        head_dim: The width of a head; ``d_model // num_heads`` by default.
        num_kv_heads: Heads of keys and values; ``num_heads`` by default.
        d_ff: The width inside the feed-forward; ``4 * d_model`` by default.
        activation: One of ``ACTIVATIONS``.
        norm: One of ``NORMS``.
        bias: Whether projections and layer norms add a bias.
        dropout: The probability of dropping an attention weight, and a feature of
            what attention and feed-forward add, while training.
        num_experts: How many experts stand in the feed-forward's place; 0 for none.
        experts_per_token: How many of them each token goes through.
        qk_norm: Bring queries and keys to one length.
        fused: Use PyTorch's fused kernels.

    Raises:
        ValueError: If a setting does not fit.

    Source: Radford et al., 2019, "Language Models are Unsupervised Multitask
    Learners", section 2.3.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        d_ff: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        bias: bool = True,
        dropout: float = 0.0,
        num_experts: int = 0,
        experts_per_token: int = 2,
        qk_norm: bool = False,
        fused: bool = True,
    ) -> None:
        super().__init__()
        self.attention_norm = make_norm(norm, d_model, bias=bias)
        self.attention = MultiHeadAttention(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            num_kv_heads=num_kv_heads,
            dropout=dropout,
            bias=bias,
            fused=fused,
            qk_norm=qk_norm,
        )
        self.feed_forward_norm = make_norm(norm, d_model, bias=bias)
        inner: dict[str, Any] = {
            "d_model": d_model,
            "d_ff": d_ff,
            "activation": activation,
            "bias": bias,
        }
        self.feed_forward = (
            MixtureOfExperts(
                num_experts=num_experts, experts_per_token=experts_per_token, **inner
            )
            if num_experts
            else FeedForward(**inner)
        )
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    # --8<-- [start:block-forward]
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        rotary: Float[Tensor, "2 *table T half"] | None = None,
        cache: LayerCache | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Let each position read the ones before it, then think by itself.

        Args:
            x: The sequence.
            mask: ``True`` where a query may attend, beside the causal mask.
            score_bias: What to add to the scores of every head.
            rotary: The ``rotary_table`` of the positions.
            cache: The keys and values of what was read before.
            return_weights: Return the weights of every head too.

        Returns:
            The output, or the output and the weights.
        """
        attended = self.attention(
            self.attention_norm(x),
            mask=mask,
            causal=True,
            score_bias=score_bias,
            rotary=rotary,
            cache=cache,
            return_weights=return_weights,
        )
        attended, weights = attended if return_weights else (attended, None)
        x = x + self.dropout(attended)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x if weights is None else (x, weights)

    # --8<-- [end:block-forward]


# --8<-- [end:block]


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

    def generate(
        self,
        prompts: Sequence[Sequence[int]] | Int[Tensor, "B T"],
        *,
        max_new_tokens: int,
        sampling: Any = None,
        stop: Sequence[Sequence[int]] = (),
        seed: int | None = None,
        use_cache: bool = True,
    ) -> list[list[int]]:
        """Return the new tokens after each prompt, as ``generation.generate`` does.

        Args:
            prompts: Token ids of each prompt: lists, or a tensor.
            max_new_tokens: How many tokens to add to each, unless it stops before.
            sampling: A ``generation.Sampling``: temperature, top-k and the like.
            stop: Sequences of tokens that end an answer.
            seed: Row r draws with the seed ``seed + r``.
            use_cache: Keep what was computed for earlier tokens.

        Raises:
            ValueError: As ``generation.generate``.
        """
        from tested_transformer.generation import generate

        return generate(
            self,
            prompts,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            stop=stop,
            seed=seed,
            use_cache=use_cache,
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


# --8<-- [start:sharing]
def with_fewer_keys(model: GPT, num_kv_heads: int) -> GPT:
    """Copy a model, and let each group of its heads share the mean of their keys.

    The projections to keys and values of the heads of a group are averaged; all else
    is kept. The copy is a start for further training, not an equal: it gives the same
    only if the heads of each group had the same keys and values.

    Args:
        model: Any GPT.
        num_kv_heads: Heads of keys and values in the copy; divides those of ``model``.

    Raises:
        ValueError: If ``num_kv_heads`` does not divide the model's, or the model was
            pruned.

    Source: Ainslie et al., 2023, "GQA: Training Generalized Multi-Query Transformer
    Models from Multi-Head Checkpoints", section 2.1.
    """
    before = _num_kv_heads(model)
    if num_kv_heads < 1 or before % num_kv_heads:
        raise ValueError(
            f"num_kv_heads={num_kv_heads} must divide the model's num_kv_heads={before}"
        )

    def pool(rows: Tensor) -> Tensor:
        heads = rows.unflatten(0, (num_kv_heads, before // num_kv_heads, -1))
        return heads.mean(dim=1).flatten(0, 1)

    state = model.state_dict()
    for name, tensor in state.items():
        if ".k_proj." in name or ".v_proj." in name:
            state[name] = pool(tensor)
    with torch.device(model.head_weight.device), torch.random.fork_rng(devices=[]):
        copy = GPT(replace(model.config, num_kv_heads=num_kv_heads))
    copy.to(model.head_weight.dtype).load_state_dict(state)
    return copy.train(model.training)


# --8<-- [end:sharing]


def _num_kv_heads(model: GPT) -> int:
    if model.config.kept_heads is not None:
        raise ValueError("model was pruned: its keys have to be shared before that")
    return model.blocks[0].attention.num_kv_heads
