"""A GPT in one file: its block, and the model.

Its settings, ``GPTConfig``, are in ``config``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tested_transformer.cache import (
    Cache,
    KVCache,
    WindowCache,
    length_of,
    validate_batch,
    window_room,
)
from tested_transformer.checks import (
    validate_between,
    validate_sizes,
    validate_tokens,
)
from tested_transformer.config import GPTConfig
from tested_transformer.experts import MixtureOfExperts, count_parameters
from tested_transformer.habits import advise_on_model_call, advised
from tested_transformer.inspection import numbers_of
from tested_transformer.interfaces import AttentionLayer
from tested_transformer.layers import FeedForward, make_norm, rows_of
from tested_transformer.multihead import IndexTrained, MultiHeadAttention
from tested_transformer.positions import (
    alibi_bias,
    alibi_slopes,
    rotary_table,
    sinusoidal_positions,
)

__all__ = ["GPT", "DecoderBlock", "GPTConfig"]

_Output = Float[Tensor, "B T D"]
_Weights = Float[Tensor, "B H T S"]


class _Undrawn(TorchFunctionMode):
    """Make layers on the meta device without drawing weights that have no numbers.

    Drawing such normal numbers would import a compiler, two seconds.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == nn.init.__name__:
            return kwargs["tensor"]
        return func(*args, **kwargs)


class DecoderBlock(nn.Module):
    """One layer of a GPT: causal self-attention, then a feed-forward.

    Args:
        num_heads: How many heads to attend with, in a ``MultiHeadAttention``.
        window: How many tokens a position may attend to, including itself; no limit
            by default.
        dropout: While training, the probability of dropping an attention weight or a
            feature that attention or feed-forward adds.
        attention: Another layer to attend with, instead of ``num_heads``.

    The other arguments are those of ``GPTConfig``.

    Raises:
        ValueError: If a setting does not fit, or ``num_heads`` and ``attention`` are
            both given or both left out.

    Source: Radford et al., 2019, "Language Models are Unsupervised Multitask
    Learners", section 2.3.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int | None = None,
        window: int | None = None,
        d_ff: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        norm_place: str = "before",
        norm_eps: float = 1e-5,
        bias: bool = True,
        dropout: float = 0.0,
        num_experts: int = 0,
        experts_per_token: int = 2,
        router_bias: bool = False,
        attention: AttentionLayer[Any] | None = None,
    ) -> None:
        super().__init__()
        self.window = window
        before, after = (
            partial(make_norm, norm, d_model, bias=bias, eps=norm_eps)
            if norm_place in (place, "both")
            else nn.Identity
            for place in ("before", "after")
        )
        self.attention_norm, self.attention_out_norm = before(), after()
        if attention is None:
            if num_heads is None:
                raise ValueError("num_heads or attention must be given")
            attention = MultiHeadAttention(
                d_model=d_model, num_heads=num_heads, dropout=dropout, bias=bias
            )
        elif num_heads is not None:
            raise ValueError(
                f"num_heads={num_heads} is given, but attention has its own heads"
            )
        self.attention: AttentionLayer[Any] = attention
        self.feed_forward_norm, self.feed_forward_out_norm = before(), after()
        if num_experts:
            self.feed_forward = MixtureOfExperts(
                d_model=d_model,
                num_experts=num_experts,
                experts_per_token=experts_per_token,
                d_ff=d_ff,
                activation=activation,
                bias=bias,
                router_bias=router_bias,
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
        x = x + self.dropout(self.attention_out_norm(attended))
        transformed = self.feed_forward(self.feed_forward_norm(x))
        x = x + self.dropout(self.feed_forward_out_norm(transformed))
        return x if weights is None else (x, weights)

    # --8<-- [end:block-forward]

    def new_cache(self, batch_size: int, max_length: int) -> Cache:
        """Return an empty cache for this layer: a small one if a window allows it.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens may be read.
        """
        window, attention = self.window, self.attention
        if window is not None and isinstance(attention, MultiHeadAttention):
            room = window_room(window)
            if room < max_length:
                memory = attention.new_cache(batch_size, room)
                return WindowCache(memory, window=window, max_length=max_length)
        return attention.new_cache(batch_size, max_length)


_Logits = Float[Tensor, "B T V"] | Float[Tensor, "B 1 V"]


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
    local_position_table: Tensor  # of layers with a window, if they rotate otherwise
    slopes: Tensor

    def __init__(
        self,
        config: GPTConfig,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        device = torch.device(torch.get_default_device() if device is None else device)
        has_numbers = device.type != "meta"
        with device, nullcontext() if has_numbers else _Undrawn():
            self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
            if config.positions == "learned":
                self.position_embedding = nn.Embedding(
                    config.max_seq_len, config.d_model
                )
            if config.smear:
                self.smear = nn.Parameter(torch.empty(config.d_model))
            self.dropout = nn.Dropout(config.dropout)
            layers = range(config.num_layers)
            # Rotary positions and ALiBi are only for layers that have scores.
            self._has_scores = [config.attention_of(n).has_scores for n in layers]
            blocks = [self._make_block(layer) for layer in layers]
            self.register_module("blocks", nn.ModuleList(blocks))
            self.norm = make_norm(
                config.norm, config.d_model, bias=config.bias, eps=config.norm_eps
            )
            if not config.tie_head:
                self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
            if has_numbers:
                self.reset_parameters()
            else:
                self.reset_buffers()
        if dtype is not None:
            self.to(dtype=dtype)

    def _make_block(self, layer: int) -> DecoderBlock:
        """Return a new block with the settings for this layer."""
        config = self.config
        attention = config.attention_of(layer).make(config.layer_settings(layer))
        return DecoderBlock(
            d_model=config.d_model,
            window=config.window_of(layer),
            d_ff=config.d_ff,
            activation=config.activation,
            norm=config.norm,
            norm_place=config.norm_place,
            norm_eps=config.norm_eps,
            bias=config.bias,
            dropout=config.dropout,
            num_experts=config.num_experts,
            experts_per_token=config.experts_per_token,
            router_bias=config.router_bias,
            attention=attention,
        )

    def reset_buffers(self) -> None:
        """Compute the tables of positions again, on the device of the weights."""
        config, tables = self.config, dict[str, Tensor]()
        with torch.device("cpu"):  # because not every device has double precision
            if config.positions == "sinusoidal":
                table = sinusoidal_positions(config.max_seq_len, config.d_model)
                tables = {"position_table": table}
            elif config.positions == "rotary":
                places = torch.arange(config.max_seq_len)
                tables["position_table"] = rotary_table(
                    places,
                    config.d_k,
                    base=config.rotary_base,
                    rates=config.rotary_rates,
                    attention_factor=config.rotary_attention_factor,
                )
                if (local := config.local_rotary_base) is not None:
                    table = rotary_table(places, config.d_k, base=local)
                    tables["local_position_table"] = table
            elif config.positions == "alibi":
                # The steepest head subtracts 1 for each step, the flattest 8 over the
                # whole context.
                flattest = 8 / config.max_seq_len
                slopes = alibi_slopes(config.num_heads, steepest=1.0, flattest=flattest)
                tables = {"slopes": slopes}
        like = numbers_of(self)
        for name, table in tables.items():
            self.register_buffer(name, table.to(like), persistent=False)

    @advised(advise_on_model_call)
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
                rotary=turns[layer],
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

    def _embed(
        self, tokens: Tensor, positions: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        """Look tokens up, then add the smeared token before each and the positions."""
        x = self._scaled_embedding(tokens)
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

    def _scaled_embedding(self, tokens: Tensor) -> Tensor:
        x, scale = self.token_embedding(tokens), self.config.embedding_scale
        return x if scale == 1.0 else x * torch.tensor(scale, dtype=x.dtype)

    def _one_before(
        self, x: Tensor, positions: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        """Return the embedding of the token before each; zeros before the first."""
        if cache is not None:
            validate_batch(cache, x)
        last = None if cache is None else cache.last_tokens
        if last is None:
            first = torch.zeros_like(x[:, :1])
        else:
            first = self._scaled_embedding(last)
        # Cut last: torch.export could not leave open whether T - 1 tokens are one.
        before = torch.cat([first, x], dim=1)[:, :-1]
        return before if positions is None else before * (positions > 0)[..., None]

    def _remember(self, tokens: Tensor, cache: KVCache | None) -> None:
        """Keep the tokens of a pass that is done, of which the next needs the last."""
        if cache is not None and self.config.smear:
            cache.remember(tokens)

    def _rotary(
        self, positions: Tensor | None, start: int, end: int
    ) -> list[Tensor | None]:
        """Return the cosines and sines that rotate the queries and keys of a layer."""
        config, layers = self.config, range(len(self.blocks))
        if config.positions != "rotary":
            return [None for _ in layers]
        tables = [self.position_table]
        if config.local_rotary_base is not None:
            tables.append(self.local_position_table)
        if positions is None:
            tables = [table[:, start:end] for table in tables]
        else:  # the same for all heads
            tables = [table[:, positions][:, :, None] for table in tables]
        turns, local = tables[0], tables[-1]
        return [
            None
            if not config.rotates(layer)
            else (turns if config.window_of(layer) is None else local)
            for layer in layers
        ]

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

    def to_logits(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """Return the logits of features that the last norm has normalized."""
        tied, cap = self.config.tie_head, self.config.logit_cap
        logits = F.linear(x, self.head_weight) if tied else self.head(x)
        return logits if cap is None else cap * torch.tanh(logits / cap)

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
    def from_weights(
        cls,
        config: GPTConfig,
        weights: Mapping[str, Tensor],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> "GPT":
        """Return a model with copies of these weights, without drawing any first.

        Args:
            config: The settings of the model.
            weights: Its ``state_dict()``.
            device: The device of the model; that of the weights by default.
            dtype: The type of the model's weights; their own by default.

        Raises:
            RuntimeError: If a weight is missing, unknown, or of another shape.
        """
        model = cls(config, device="meta")
        return model.fill(weights.items(), device=device, dtype=dtype)

    def fill(
        self,
        weights: Iterable[tuple[str, Tensor]],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> "GPT":
        """Put copies of these weights in place of all weights, and return the model.

        Args:
            weights: The names and tensors of a ``state_dict()``, of which each is
                copied before the next is asked for.
            device: The device of the model; that of the weights by default.
            dtype: The type of the model's weights; their own by default.

        Raises:
            RuntimeError: If a weight is missing, unknown, or of another shape.
        """
        copies = {
            name: weight.detach().to(
                device, dtype, copy=True, memory_format=torch.contiguous_format
            )
            for name, weight in weights
        }
        self.load_state_dict(copies, assign=True)
        self.reset_buffers()
        return self

    def new_cache(
        self, batch_size: int = 1, *, max_length: int | None = None
    ) -> KVCache:
        """Return an empty cache for this model, in which windows save memory.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens it can read; ``max_seq_len`` by default.

        Raises:
            ValueError: If ``max_length`` is not between 1 and ``max_seq_len``, or
                ``batch_size`` is not positive.
        """
        longest = self.config.max_seq_len
        max_length = longest if max_length is None else max_length
        validate_between("max_length", max_length, 1, longest, "max_seq_len")
        validate_sizes(batch_size=batch_size)
        return KVCache(
            [block.new_cache(batch_size, max_length) for block in self.blocks]
        )

    def balance_loss(self) -> Float[Tensor, ""]:
        """Return the mean balance loss of all mixtures of experts; 0 if there are none.

        It belongs to the last forward pass, and is 1 if all experts are used equally.
        """
        experts = [m for m in self.modules() if isinstance(m, MixtureOfExperts)]
        if not experts:
            return numbers_of(self).new_zeros(())
        return torch.stack([mixture.balance_loss for mixture in experts]).mean()

    def index_loss(self) -> Float[Tensor, ""]:
        """Return the mean loss of all indexers; 0 if there are none.

        It belongs to the last forward pass while training; see ``attentions.indexer``.
        """
        trained = [m for m in self.modules() if isinstance(m, IndexTrained)]
        if not trained:
            return numbers_of(self).new_zeros(())
        return torch.stack([module.index_loss for module in trained]).mean()

    def num_parameters(self, *, active: bool = False) -> int:
        """Count the parameters, or only those that one token goes through."""
        return count_parameters(self, active=active)
