"""Multi-token prediction: heads that predict tokens further ahead, and use as drafter.

Source of the whole: Gloeckle et al., 2024, "Better & Faster Large Language Models via
Multi-token Prediction", section 2.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from tested_transformer.cache import KVCache
from tested_transformer.decoding.speculative import (
    Chance,
    Draft,
    Drafter,
    Probabilities,
    TextReader,
    softmax,
)
from tested_transformer.gpt import GPT, DecoderBlock, GPTConfig
from tested_transformer.validation import (
    validate_between,
    validate_sizes,
    validate_tokens,
)

__all__ = ["HeadDrafter", "SeveralTokenGPT", "several_token_loss"]


# --8<-- [start:model]
class SeveralTokenGPT(GPT):
    """A GPT that predicts several tokens ahead at each position.

    All blocks but the last form a trunk. On top of it are ``num_tokens`` blocks in
    parallel: the GPT's own last block predicts the next token, and each further block a
    token further ahead. They share the last norm and the matrix to logits.

    ``forward`` and ``generate`` use the first head alone. So does ``train``, which
    leaves the further blocks as they were drawn: write a loop of your own around
    ``forward_all`` and ``several_token_loss``. Checkpoints, shipped models and what
    makes a changed copy of a model, such as ``with_fewer_keys``, ``prune_heads`` and
    ``stretched_by``, are for a plain GPT. This makes one of the first head:

        weights = model.state_dict()
        first = {k: v for k, v in weights.items() if not k.startswith("further.")}
        plain = GPT.from_weights(model.config, first)

    Args:
        config: The settings of the GPT, with at least two blocks.
        num_tokens: n, how many tokens ahead it predicts; 1 makes a plain GPT.
        device: Where the weights are; PyTorch's default device by default.
        dtype: The type of its weights. They are drawn in PyTorch's default type.

    Raises:
        ValueError: If ``num_tokens`` is not positive, or there is only one block.
    """

    further: Sequence[DecoderBlock]

    def __init__(
        self,
        config: GPTConfig,
        *,
        num_tokens: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        validate_sizes(num_tokens=num_tokens)
        if config.num_layers < 2:
            raise ValueError(
                f"num_layers={config.num_layers} must be 2 or more: a trunk, and heads"
            )
        super().__init__(config, device=device)
        last = config.num_layers - 1
        with torch.device(torch.get_default_device() if device is None else device):
            further = [self._make_block(last) for _ in range(num_tokens - 1)]
            self.register_module("further", nn.ModuleList(further))
            self.reset_parameters()
        if dtype is not None:
            self.to(dtype=dtype)

    @classmethod
    def from_weights(cls, config: GPTConfig, weights: Mapping[str, Tensor]) -> GPT:
        """Refuse, because a config does not say how many heads there are.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{cls.__name__}.from_weights does not know num_tokens: write "
            f"model = {cls.__name__}(config, num_tokens=...), then "
            "model.load_state_dict(weights)"
        )

    # --8<-- [start:forward]
    def forward_all(
        self, tokens: Int[Tensor, "B T"], *, cache: KVCache | None = None
    ) -> Float[Tensor, "n B T V"]:
        """Return the logits of every head, those of the next token first.

        Args:
            tokens: Token ids. With a cache, only those that it does not hold yet.
            cache: A ``new_cache`` of this model, made with ``further=True``.
        """
        start, config = self._start(cache), self.config
        validate_tokens("tokens", tokens, config.vocab_size, config.max_seq_len, start)
        end = start + tokens.shape[1]
        layers = [None] * self.num_blocks if cache is None else cache.layers
        x = self._embed(tokens, None, cache)
        rotary = self._rotary(None, start, end)
        biases = self._score_biases(end - start, end)
        how = {"rotary": rotary}
        trunk = len(self.blocks) - 1
        for block, bias, layer in zip(self.blocks[:-1], biases, layers, strict=False):
            x = block(x, score_bias=bias, cache=layer, **how)
        heads = [self.blocks[-1], *self.further]
        guesses = [
            head(x, score_bias=biases[-1], cache=layer, **how)
            for head, layer in zip(heads, layers[trunk:], strict=True)
        ]
        self._remember(tokens, cache)
        x = self.norm(torch.stack(guesses))
        return self.to_logits(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    # --8<-- [end:forward]

    def _start(self, cache: KVCache | None) -> int:
        """Return how many tokens a cache holds; refuse one without all heads."""
        if cache is None:
            return 0
        if len(cache.layers) != self.num_blocks:
            raise ValueError(
                f"cache has {len(cache.layers)} layers; all heads need "
                f"{self.num_blocks}: make it with new_cache(further=True)"
            )
        return cache.length

    @property
    def num_blocks(self) -> int:
        """How many blocks there are in the trunk and on top of it."""
        return len(self.blocks) + len(self.further)

    def new_cache(
        self,
        batch_size: int = 1,
        *,
        max_length: int | None = None,
        further: bool = False,
    ) -> KVCache:
        """Return an empty cache for this model.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens it has room for; ``max_seq_len`` by default.
            further: Include the further heads, which ``forward_all`` needs. The model's
                ``forward`` refuses such a cache.
        """
        cache = super().new_cache(batch_size, max_length=max_length)
        if not further:
            return cache
        length = self.config.max_seq_len if max_length is None else max_length
        heads = [head.attention.new_cache(batch_size, length) for head in self.further]
        return KVCache([*cache.layers, *heads])


def several_token_loss(
    logits: Float[Tensor, "n B T V"], targets: Int[Tensor, "B T"]
) -> Float[Tensor, "n"]:
    """Return the mean loss of each head; their sum is the training objective.

    Args:
        logits: The logits of every head at each position.
        targets: The next token of each position.

    Raises:
        ValueError: If there are more heads than positions, or ``logits`` and
            ``targets`` have different batches or lengths.
    """
    length = targets.shape[1]
    if logits.shape[1:3] != targets.shape:
        raise ValueError(
            f"logits are for {tuple(logits.shape[1:3])} tokens, targets for "
            f"{tuple(targets.shape)}: they must be the same"
        )
    validate_between("the number of heads", len(logits), 1, length)
    return torch.stack(
        [
            F.cross_entropy(
                guesses[:, : length - ahead].flatten(0, 1), targets[:, ahead:].flatten()
            )
            for ahead, guesses in enumerate(logits)
        ]
    )


# --8<-- [end:model]


class _HeadReader(TextReader):
    """A ``TextReader`` that keeps the logits of the further heads."""

    model: SeveralTokenGPT

    def __init__(self, model: SeveralTokenGPT) -> None:
        super().__init__(model)
        self.cache = model.new_cache(further=True)
        self.ahead: Tensor | None = None  # (n - 1, T, V), of the last tokens read

    def _logits(self, tokens: Tensor) -> Tensor:
        logits = self.model.forward_all(tokens, cache=self.cache)[:, 0]
        self.ahead = logits[1:]
        return logits[0]


# --8<-- [start:drafter]
class HeadDrafter(Drafter):
    """Draft from the model's own further heads, which costs no extra pass.

    The pass that produced the newest token also predicted, at the same position, the
    tokens after it. The heads know neither which token was drawn nor each other's
    predictions.

    Args:
        probabilities: From logits to the probabilities it draws from; softmax by
            default.
    """

    def __init__(self, *, probabilities: Probabilities = softmax) -> None:
        self.probabilities = probabilities
        self._reader: _HeadReader | None = None

    def reader(self, model: GPT) -> TextReader:
        """Return a reader that keeps the logits of the further heads.

        Raises:
            TypeError: If the model has no further heads.
        """
        if not isinstance(model, SeveralTokenGPT):
            raise TypeError(
                f"model must be a SeveralTokenGPT; it is a {type(model).__name__}"
            )
        self._reader = _HeadReader(model)
        return self._reader

    def draft(self, text: Sequence[int], count: int, chance: Chance) -> Draft:
        """Return up to ``count`` tokens; none before the first pass."""
        reader = self._reader
        if reader is None:
            raise ValueError("the drafter has no model yet: call reader(model) first")
        if reader.ahead is None:
            return Draft([], torch.empty(0, reader.model.config.vocab_size))
        # The reader has read all but the newest token, and perhaps rejected ones too.
        rejected = len(reader.text) - (len(text) - 1)
        at = reader.ahead[:count, reader.ahead.shape[1] - 1 - rejected]
        rows = self.probabilities(at).cpu()
        return Draft([chance.draw(row) for row in rows], rows)


# --8<-- [end:drafter]
