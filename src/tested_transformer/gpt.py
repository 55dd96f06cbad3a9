"""A GPT in one file: its settings, its block, and the model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tested_transformer.cache import Cache, KVCache, length_of, numbers_of
from tested_transformer.experts import MixtureOfExperts, count_parameters
from tested_transformer.layers import (
    ACTIVATIONS,
    NORMS,
    FeedForward,
    make_norm,
    rows_of,
)
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.positions import (
    alibi_bias,
    alibi_slopes,
    rotary_table,
    sinusoidal_positions,
)
from tested_transformer.validation import (
    MODEL_SETTINGS,
    advise_on_settings,
    refuse_foreign_model_call,
    validate_between,
    validate_choice,
    validate_heads,
    validate_sizes,
    validate_switches,
    validate_tokens,
)

__all__ = [
    "ATTENTIONS",
    "GPT",
    "POSITIONS",
    "DecoderBlock",
    "GPTConfig",
    "with_fewer_keys",
]


POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")
# "softmax" is MultiHeadAttention; ``attentions.forms`` has the others.
ATTENTIONS = (
    "softmax",
    "latent",
    "linear",
    "gated_linear",
    "delta",
    "gated_delta",
    "differential",
    "gated",
    "soft_capped",
    "sink",
    "blocks",
)


@advise_on_settings(MODEL_SETTINGS)
@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The settings of a GPT: everything about it except its weights.

    Args:
        vocab_size: V, the number of different tokens.
        max_seq_len: The longest sequence that the model can read.
        d_model: D, the width of the model.
        num_heads: H, heads of attention in each layer.
        num_layers: Number of blocks.
        attention: How layers attend, one of ``ATTENTIONS``. ``attentions.forms`` says
            which other settings fit each.
        softmax_every: Let every n-th layer attend with softmax instead; ``None`` for
            no layer. Not for latent attention.
        latent_dim: Width of the vector that latent attention keeps for each token;
            ``2 * head_dim`` by default.
        soft_cap: The limit of soft-capped scores; 50 by default.
        block_size: Keys in a block, for attention ``"blocks"``; 16 by default.
        num_chosen: Blocks that a query reads, including its own; 3 by default.
        num_kv_heads: Heads of keys and values, shared; ``num_heads`` by default.
        d_ff: Width inside the feed-forward; ``4 * d_model`` by default.
        positions: The positional encoding, one of ``POSITIONS``.
        rotary_base: The base of rotary positions: about how much slower the slowest
            pair of features turns than the fastest.
        rotary_rates: How far each pair turns from one token to the next, such as
            ``rotary_scaling.yarn_rates``; computed from ``rotary_base`` by default.
        rotary_attention_factor: Multiply rotated queries and keys by this.
        windows: How many tokens a position may attend to, including itself: one
            number for all layers, or one per layer; ``None`` for no limit.
        activation: One of ``layers.ACTIVATIONS``.
        norm: One of ``layers.NORMS``.
        bias: Whether projections and layer norms add a bias.
        tie_head: Whether the last matrix is the token embedding.
        dropout: The probability of dropping a weight or a feature while training.
            Only softmax and latent attention drop weights.
        num_experts: Experts in place of the feed-forward; 0 for none.
        experts_per_token: How many of them each token is routed to.
        qk_norm: Normalize queries and keys to the same length.
        smear: Add to each token a learned share of the token before it.
        zero_init: Start with zeros in the last matrix of each branch of a block and
            in an untied head. At first every block then returns its input, and every
            token is equally likely.
        fused: Use PyTorch's fused kernels for attention.
        kept_heads: For each layer, the original numbers of the heads that pruning
            left; all by default. A head remains ``d_model // num_heads`` wide.

    Raises:
        TypeError: If a size is not an ``int``.
        ValueError: If a setting does not fit.
    """

    vocab_size: int
    max_seq_len: int = 64
    d_model: int = 128
    num_heads: int = 4
    num_layers: int = 4
    attention: str = "softmax"
    softmax_every: int | None = None
    latent_dim: int | None = None
    soft_cap: float | None = None
    block_size: int | None = None
    num_chosen: int | None = None
    num_kv_heads: int | None = None
    d_ff: int | None = None
    positions: str = "learned"
    rotary_base: float = 10_000.0
    rotary_rates: tuple[float, ...] | None = None
    rotary_attention_factor: float = 1.0
    windows: Sequence[int | None] | int | None = None
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

    def __post_init__(self) -> None:
        validate_sizes(
            vocab_size=self.vocab_size,
            max_seq_len=self.max_seq_len,
            num_layers=self.num_layers,
            d_ff=1 if self.d_ff is None else self.d_ff,
        )
        validate_heads(self.d_model, self.num_heads, num_kv_heads=self.num_kv_heads)
        validate_switches(**{name: getattr(self, name) for name in _SWITCHES})
        validate_choice("positions", self.positions, POSITIONS)
        validate_choice("activation", self.activation, ACTIVATIONS)
        validate_choice("norm", self.norm, NORMS)
        validate_between("dropout", self.dropout, 0, 1)
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} must be even for sinusoids")
        if self.positions == "rotary" and self.head_dim % 2:
            raise ValueError(
                f"head_dim={self.head_dim} must be even for rotary positions"
            )
        self._validate_rotary()
        if not isinstance(self.num_experts, int):
            raise TypeError(f"num_experts={self.num_experts!r} must be an int")
        if self.num_experts < 0:
            raise ValueError(f"num_experts={self.num_experts} must not be negative")
        if self.num_experts:
            each, experts = self.experts_per_token, self.num_experts
            validate_between("experts_per_token", each, 1, experts, "num_experts")
        self._validate_windows()
        self._validate_kept_heads()
        self._validate_attention()

    def _validate_attention(self) -> None:
        validate_choice("attention", self.attention, ATTENTIONS)
        if self.softmax_every is not None:
            validate_sizes(softmax_every=self.softmax_every)
        form = self.form()
        if form is not None:
            form.validate(self)
            return
        for name in ("softmax_every", *_SETTINGS_OF_FORMS):
            if getattr(self, name) is not None:
                length = name == "block_size"  # as nanoGPT calls it
                raise ValueError(
                    f"{name}={getattr(self, name)} does not fit attention='softmax': "
                    "leave it out"
                    + ", or for the longest sequence write max_seq_len"
                    * length
                )

    def _validate_rotary(self) -> None:
        for name in ("rotary_base", "rotary_attention_factor"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be positive and finite"
                )
        if self.rotary_rates is None:
            return
        # JSON stores a tuple as a list, and no tensors.
        rates = tuple(map(float, self.rotary_rates))
        object.__setattr__(self, "rotary_rates", rates)
        if self.positions != "rotary":
            raise ValueError(
                f"positions={self.positions!r} must be 'rotary' for rotary_rates"
            )
        if len(rates) != self.head_dim // 2:
            raise ValueError(
                f"{len(rates)} rotary_rates must be {self.head_dim // 2}: one for each "
                f"pair of a head of {self.head_dim}"
            )
        if not all(map(math.isfinite, rates)):
            raise ValueError(f"rotary_rates={rates} must be finite")

    def _validate_windows(self) -> None:
        if isinstance(self.windows, Sequence):  # JSON stores a tuple as a list
            object.__setattr__(self, "windows", tuple(self.windows))
            if len(self.windows) != self.num_layers:
                raise ValueError(
                    f"windows has {len(self.windows)} layers; "
                    f"num_layers={self.num_layers}"
                )
        for layer in range(self.num_layers):
            window = self.window_of(layer)
            if window is not None and (not isinstance(window, int) or window < 1):
                raise ValueError(
                    f"windows={self.windows!r} must be a positive int, or one for each "
                    "layer, with None for no window"
                )

    def _validate_kept_heads(self) -> None:
        if self.kept_heads is None:
            return
        if len(self.kept_heads) != self.num_layers:
            raise ValueError(
                f"kept_heads has {len(self.kept_heads)} layers; "
                f"num_layers={self.num_layers}"
            )
        kept = tuple(map(tuple, self.kept_heads))  # JSON stores a tuple as a list
        object.__setattr__(self, "kept_heads", kept)
        for layer, heads in enumerate(kept):
            known = [head for head in range(self.num_heads) if head in heads]
            if not heads or [*heads] != known:
                raise ValueError(
                    f"kept_heads[{layer}]={heads} must be one or more of the heads 0 "
                    f"to {self.num_heads - 1}, in order"
                )
            groups = {head // self.heads_per_group for head in heads}
            if len(heads) != len(groups) * self.heads_per_group:
                raise ValueError(
                    f"kept_heads[{layer}]={heads} must be whole groups: "
                    f"{self.heads_per_group} consecutive heads share keys and values"
                )

    @property
    def head_dim(self) -> int:
        """The width of a head, d_k."""
        return self.d_model // self.num_heads

    @property
    def heads_per_group(self) -> int:
        """How many consecutive heads share a head of keys and values."""
        return self.num_heads // (self.num_kv_heads or self.num_heads)

    def form(self) -> Any:
        """Return the ``attentions.forms.Form`` of attention; ``None`` for softmax."""
        if self.attention == "softmax":
            return None
        from tested_transformer.attentions.forms import FORMS

        return FORMS[self.attention]

    def form_of(self, layer: int) -> Any:
        """Return the form of attention of one layer; ``None`` for softmax."""
        every = self.softmax_every
        return None if every and (layer + 1) % every == 0 else self.form()

    def heads_of(self, layer: int) -> tuple[int, int]:
        """Return how many heads a layer has, and how many heads of keys and values."""
        kept = None if self.kept_heads is None else self.kept_heads[layer]
        num_heads = self.num_heads if kept is None else len(kept)
        return num_heads, num_heads // self.heads_per_group

    def window_of(self, layer: int) -> int | None:
        """Return how many tokens a position of this layer sees; ``None`` for all."""
        if isinstance(self.windows, Sequence):
            return self.windows[layer]
        return self.windows


_SWITCHES = ("bias", "tie_head", "qk_norm", "smear", "zero_init", "fused")
_SETTINGS_OF_FORMS = ("latent_dim", "soft_cap", "block_size", "num_chosen")
_Output = Float[Tensor, "B T D"]
_Weights = Float[Tensor, "B H T S"]


# --8<-- [start:block]
class DecoderBlock(nn.Module):
    """One layer of a GPT: causal self-attention, then a feed-forward, both pre-norm.

    Args:
        head_dim: The width of a head; ``d_model // num_heads`` by default.
        window: How many tokens a position may attend to, including itself; no limit
            by default.
        dropout: While training, the probability of dropping an attention weight or a
            feature that attention or feed-forward adds.
        attention: A layer to attend with, instead of a ``MultiHeadAttention`` with
            these settings.

    The other arguments are those of ``GPTConfig``.

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
        window: int | None = None,
        d_ff: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        bias: bool = True,
        dropout: float = 0.0,
        num_experts: int = 0,
        experts_per_token: int = 2,
        qk_norm: bool = False,
        fused: bool = True,
        attention: Any = None,
    ) -> None:
        super().__init__()
        self.window = window
        self.attention_norm = make_norm(norm, d_model, bias=bias)
        if attention is None:
            attention = MultiHeadAttention(
                d_model=d_model,
                num_heads=num_heads,
                head_dim=head_dim,
                num_kv_heads=num_kv_heads,
                dropout=dropout,
                bias=bias,
                fused=fused,
                qk_norm=qk_norm,
            )
        self.attention: MultiHeadAttention = attention
        self.feed_forward_norm = make_norm(norm, d_model, bias=bias)
        if num_experts:
            self.feed_forward = MixtureOfExperts(
                d_model=d_model,
                num_experts=num_experts,
                experts_per_token=experts_per_token,
                d_ff=d_ff,
                activation=activation,
                bias=bias,
            )
        else:
            self.feed_forward = FeedForward(
                d_model=d_model, d_ff=d_ff, activation=activation, bias=bias
            )
        self.dropout = nn.Dropout(dropout)

    # --8<-- [start:block-forward]
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        rotary: Float[Tensor, "2 *table T half"] | None = None,
        cache: Cache | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Let each position read itself and earlier ones, then transform each alone.

        Args:
            x: The sequence.
            mask: ``True`` where a query may attend, in addition to the causal mask.
            score_bias: Add this to the scores of every head.
            rotary: The ``rotary_table`` of the positions.
            cache: The keys and values of earlier tokens.
            return_weights: Also return the weights of every head.

        Returns:
            The output, or the output and the weights.
        """
        attended = self.attention(
            self.attention_norm(x),
            mask=mask,
            causal=True,
            window=self.window,
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


_Logits = Float[Tensor, "B T V"] | Float[Tensor, "B 1 V"]


# --8<-- [start:model]
class GPT(nn.Module):
    """A language model: an embedding, a stack of decoder blocks, and a head.

    Args:
        config: The settings of the model.
        device: Where to make it; PyTorch's default device by default. On ``"meta"`` it
            takes no memory: allocate it with ``to_empty``, then ``reset_parameters``.
        dtype: The type of its weights. They are drawn in PyTorch's default type.

    Sources: Radford et al., 2018, "Improving Language Understanding by Generative
    Pre-Training"; 2019, "Language Models are Unsupervised Multitask Learners".
    """

    # For type checkers, which know registered modules and buffers by no precise type.
    blocks: Sequence[DecoderBlock]
    position_table: Tensor
    slopes: Tensor

    # --8<-- [start:init]
    def __init__(
        self,
        config: GPTConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        with torch.device(torch.get_default_device() if device is None else device):
            self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
            if config.positions == "learned":
                self.position_embedding = nn.Embedding(
                    config.max_seq_len, config.d_model
                )
            if config.smear:
                self.smear = nn.Parameter(torch.empty(config.d_model))
            self.dropout = nn.Dropout(config.dropout)
            forms = [config.form_of(layer) for layer in range(config.num_layers)]
            # Rotary positions and ALiBi are only for layers that have scores.
            self._has_scores = [form is None or form.has_scores for form in forms]
            blocks = [self._make_block(layer) for layer in range(config.num_layers)]
            self.register_module("blocks", nn.ModuleList(blocks))
            self.norm = make_norm(config.norm, config.d_model, bias=config.bias)
            if not config.tie_head:
                self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
            self.reset_parameters()
        if dtype is not None:
            self.to(dtype=dtype)

    def _make_block(self, layer: int) -> DecoderBlock:
        """Return a new block with the settings for this layer."""
        config = self.config
        num_heads, num_kv_heads = config.heads_of(layer)
        form = config.form_of(layer)
        return DecoderBlock(
            d_model=config.d_model,
            num_heads=num_heads,
            head_dim=config.head_dim,
            num_kv_heads=num_kv_heads,
            window=config.window_of(layer),
            d_ff=config.d_ff,
            activation=config.activation,
            norm=config.norm,
            bias=config.bias,
            dropout=config.dropout,
            num_experts=config.num_experts,
            experts_per_token=config.experts_per_token,
            qk_norm=config.qk_norm,
            fused=config.fused,
            attention=None if form is None else form.make(config, layer),
        )

    def reset_buffers(self) -> None:
        """Compute the tables of positions again, on the device of the weights."""
        config, tables = self.config, dict[str, Tensor]()
        with torch.device("cpu"):  # because not every device has double precision
            if config.positions == "sinusoidal":
                table = sinusoidal_positions(config.max_seq_len, config.d_model)
                tables = {"position_table": table}
            elif config.positions == "rotary":
                table = rotary_table(
                    torch.arange(config.max_seq_len),
                    config.head_dim,
                    base=config.rotary_base,
                    rates=config.rotary_rates,
                    attention_factor=config.rotary_attention_factor,
                )
                tables = {"position_table": table}
            elif config.positions == "alibi":
                # The steepest head subtracts 1 for each step, the flattest 8 over the
                # whole context.
                flattest = 8 / config.max_seq_len
                slopes = alibi_slopes(config.num_heads, steepest=1.0, flattest=flattest)
                tables = {"slopes": slopes}
        like = numbers_of(self)
        for name, table in tables.items():
            self.register_buffer(name, table.to(like), persistent=False)

    # --8<-- [end:init]

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | Path,
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> "GPT":
        """Load a model by its name on the hub, or from a folder, without unpickling.

        Args:
            name_or_folder: ``gpt2``, ``openai-community/gpt2-medium`` or another model
                with GPT-2's layout on the hub; or a folder with a checkpoint of this
                library or of ``save_pretrained`` in ``transformers``.
            revision: The version on the hub: a branch, a tag or a commit.
            device: Where to load it; the CPU by default.
            dtype: The type of its weights. By default a checkpoint of this library
                keeps the type that it was saved in; any other model is loaded in
                float32.

        Returns:
            The model, in evaluation mode.

        Raises:
            CheckpointError: If there is no such model, it is damaged, or ``GPT`` does
                not support its architecture. A ``ValueError``.
            ConnectionError: If it cannot be downloaded.
            ImportError: If a download is needed and ``huggingface_hub`` is missing.
        """
        from tested_transformer.checkpoints import load_pretrained

        return load_pretrained(
            name_or_folder, revision=revision, device=device, dtype=dtype
        )

    def __call__(self, *tokens: Tensor, **options: Any) -> Any:
        """Call ``forward``; for a call in another library's manner, say ours."""
        refuse_foreign_model_call(tokens, options)
        return super().__call__(*tokens, **options)

    # --8<-- [start:forward]
    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        positions: Int[Tensor, "B T"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
        last_only: bool = False,
        return_weights: bool = False,
    ) -> _Logits | tuple[_Logits, list[Float[Tensor, "B H T S"]]]:
        """Predict the token after each position from that position and earlier ones.

        Args:
            tokens: Token ids. With a cache, only those that it does not hold yet.
            positions: The position of each token, for batches padded on the left. By
                default they count from 0, or on from the tokens in the cache.
            mask: ``True`` where a query may attend, in addition to the causal mask. It
                covers all keys, including those in the cache.
            cache: What was read before; ``tokens`` are added to it. If a call raises,
                ``reset`` it.
            last_only: Return only the logits of the last position, (B, 1, V). That
                saves most of the head's work while a prompt is read.
            return_weights: Also return the attention weights of every head, layer by
                layer, from this same pass.

        Returns:
            The logits, or the logits and a list with one tensor of weights per layer.

        Raises:
            TypeError: If ``tokens`` are not int64 or int32.
            ValueError: If ``tokens`` do not fit the model, or the cache.
        """
        config, start = self.config, length_of(cache, len(self.blocks))
        sizes = config.vocab_size, config.max_seq_len
        validate_tokens("tokens", tokens, *sizes, start, positions)
        end = start + tokens.shape[1]
        x = self._embed(tokens, positions, cache)
        turns = self._rotary(positions, start, end)
        biases = self._score_biases(end - start, end)
        maps: list[Tensor] = []
        for layer, block in enumerate(self.blocks):
            x = block(
                x,
                mask=mask,
                score_bias=biases[layer],
                rotary=turns if self._has_scores[layer] else None,
                cache=None if cache is None else cache.layers[layer],
                return_weights=return_weights,
            )
            if return_weights:
                x, weights = x
                maps.append(weights)
        self._remember(tokens, cache)
        x = self.norm(x[:, -1:] if last_only else x)
        logits = self.to_logits(x)
        return (logits, maps) if return_weights else logits

    # --8<-- [end:forward]

    # --8<-- [start:embed]
    def _embed(
        self, tokens: Tensor, positions: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        """Look tokens up, then add the smeared token before each and the positions."""
        x = self.token_embedding(tokens)
        if self.config.smear:
            x = x + self.smear * self._one_before(x, positions, cache)
        if positions is None:
            start = 0 if cache is None else cache.length
            positions = torch.arange(start, start + tokens.shape[1], device=x.device)
        if self.config.positions == "learned":
            x = x + self.position_embedding(positions)
        elif self.config.positions == "sinusoidal":
            x = x + self.position_table[positions].to(x.dtype)
        return self.dropout(x)

    def _one_before(
        self, x: Tensor, positions: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        """Return the embedding of the token before each; zeros before the first."""
        last = None if cache is None else cache.last_tokens
        if last is None:
            first = torch.zeros_like(x[:, :1])
        else:
            first = self.token_embedding(last[: len(x)])  # no more slots are read
        # Cut last: torch.export could not leave open whether T - 1 tokens are one.
        before = torch.cat([first, x], dim=1)[:, :-1]
        return before if positions is None else before * (positions > 0)[..., None]

    def _remember(self, tokens: Tensor, cache: KVCache | None) -> None:
        """Keep the tokens of a pass that is done, of which the next needs the last."""
        if cache is not None and self.config.smear:
            cache.remember(tokens)

    def _rotary(self, positions: Tensor | None, start: int, end: int) -> Tensor | None:
        """Return the cosines and sines that rotate the queries and keys."""
        if self.config.positions != "rotary":
            return None
        if positions is None:
            return self.position_table[:, start:end]
        return self.position_table[:, positions][:, :, None]  # the same for all heads

    def _score_biases(self, num_queries: int, num_keys: int) -> list[Tensor | None]:
        """Return the bias to add to the scores of each layer, or None."""
        layers = range(self.config.num_layers)
        if self.config.positions != "alibi":
            return [None for _ in layers]
        # Padding on the left shifts queries and keys alike, so distances don't change.
        bias = alibi_bias(self.slopes, num_queries, num_keys)
        kept = self.config.kept_heads
        biases = [bias if kept is None else bias[:, kept[layer]] for layer in layers]
        return [
            bias if has else None
            for bias, has in zip(biases, self._has_scores, strict=True)
        ]

    # --8<-- [end:embed]

    # --8<-- [start:head]
    def to_logits(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """Return the logits of features that the last norm has normalized."""
        return F.linear(x, self.head_weight) if self.config.tie_head else self.head(x)

    @property
    def head_weight(self) -> Tensor:
        """The matrix from features to logits, (V, D): the embedding if tied."""
        if self.config.tie_head:
            return rows_of(self.token_embedding, self.config.vocab_size)
        weight = getattr(self.head, "weight", None)
        if not isinstance(weight, Tensor):
            raise TypeError(
                f"head is a {type(self.head).__name__}, which has no matrix: call "
                "model.to_logits"
            )
        return weight

    # --8<-- [end:head]

    # --8<-- [start:reset]
    def reset_parameters(self) -> None:
        """Draw all weights again: small, and smaller where a block adds to its input.

        Norms, biases and tables of positions return to their initial values too.

        Source: Radford et al., 2019, section 2.3: the standard deviation 0.02 is that
        of the published code, ``1 / sqrt(2 * num_layers)`` the paper's.
        """
        smaller = 0.0 if self.config.zero_init else (2 * len(self.blocks)) ** -0.5
        blocks = [m for m in self.modules() if isinstance(m, DecoderBlock)]
        adding = {block.attention.o_proj for block in blocks}
        adding |= {m.down for m in self.modules() if isinstance(m, FeedForward)}
        for module in [*self.modules()][1:]:  # without the model itself
            if isinstance(module, nn.Linear | nn.Embedding):
                scale = smaller if module in adding else 1.0
                nn.init.normal_(module.weight, std=0.02 * scale)
            elif callable(reset := getattr(module, "reset_parameters", None)):
                reset()  # norms, sinks and the like
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if self.config.zero_init and not self.config.tie_head:
            nn.init.zeros_(self.head.weight)
        if self.config.smear:
            nn.init.zeros_(self.smear)
        self.reset_buffers()

    # --8<-- [end:reset]

    @classmethod
    def from_weights(cls, config: GPTConfig, weights: Mapping[str, Tensor]) -> "GPT":
        """Return a model with copies of these weights, without drawing any first.

        Args:
            config: The settings of the model.
            weights: Its ``state_dict()``. The model gets their type and device.

        Raises:
            RuntimeError: If a weight is missing, unknown, or of another shape.
        """
        model = cls(config, device="meta")
        copies = {
            name: weight.detach().clone(memory_format=torch.contiguous_format)
            for name, weight in weights.items()
        }
        model.load_state_dict(copies, assign=True)
        model.reset_buffers()
        return model

    def new_cache(
        self, batch_size: int = 1, *, max_length: int | None = None
    ) -> KVCache:
        """Return an empty cache for this model.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens it has room for; ``max_seq_len`` by default.

        Raises:
            ValueError: If ``max_length`` is not between 1 and ``max_seq_len``, or
                ``batch_size`` is not positive.
        """
        longest = self.config.max_seq_len
        max_length = longest if max_length is None else max_length
        validate_between("max_length", max_length, 1, longest, "max_seq_len")
        validate_sizes(batch_size=batch_size)
        layers = [
            block.attention.new_cache(batch_size, max_length) for block in self.blocks
        ]
        return KVCache(layers)

    def generate(
        self,
        prompts: Sequence[Sequence[int]] | Int[Tensor, "B T"],
        *,
        max_new_tokens: int,
        sampling: Any = None,
        stop: Sequence[Sequence[int]] = (),
        seed: int | None = None,
        use_cache: bool = True,
        **moved: Any,
    ) -> list[list[int]]:
        """Return the new tokens after each prompt; see ``decoding.generate``.

        Arguments and errors are the same; ``sampling`` is a ``decoding.Sampling``.
        """
        from tested_transformer.decoding import generate

        return generate(
            self,
            prompts,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            stop=stop,
            seed=seed,
            use_cache=use_cache,
            **moved,
        )

    def balance_loss(self) -> Float[Tensor, ""]:
        """Return the mean balance loss of all mixtures of experts; 0 if there are none.

        It belongs to the last forward pass, and is 1 if all experts are used equally.
        """
        experts = [m for m in self.modules() if isinstance(m, MixtureOfExperts)]
        if not experts:
            return numbers_of(self).new_zeros(())
        return torch.stack([mixture.balance_loss for mixture in experts]).mean()

    def num_parameters(self, *, active: bool = False) -> int:
        """Count the parameters, or only those that one token goes through."""
        return count_parameters(self, active=active)


# --8<-- [end:model]


# --8<-- [start:sharing]
def with_fewer_keys(model: GPT, num_kv_heads: int) -> GPT:
    """Return a copy of a model in which groups of heads share keys and values.

    Within a group the projections to keys and values are averaged; everything else is
    kept. The copy is a starting point for further training. It computes the same as the
    model only if the heads of each group already had the same keys and values.

    Args:
        model: Any GPT.
        num_kv_heads: Heads of keys and values in the copy; must divide the model's.

    Raises:
        ValueError: If ``num_kv_heads`` does not divide the model's, the model was
            pruned, or its attention cannot share keys, like ``"latent"``.

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
    copy = GPT.from_weights(replace(model.config, num_kv_heads=num_kv_heads), state)
    return copy.train(model.training)


# --8<-- [end:sharing]


def _num_kv_heads(model: GPT) -> int:
    if model.config.kept_heads is not None:
        raise ValueError("model was pruned: share its keys before pruning")
    form = model.config.form()
    if form is not None and "num_kv_heads" in form.refused:
        raise ValueError(
            f"attention={model.config.attention!r} of model has no keys that heads "
            "can share"
        )
    return model.blocks[0].attention.num_kv_heads
