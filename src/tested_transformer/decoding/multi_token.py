"""Multi-token prediction: heads that predict tokens further ahead, and use as drafter.

They stand side by side, as those of Medusa (Cai et al., 2024) do, which are single
layers. ``chained`` has heads that know the tokens before their own.

Source of the whole: Gloeckle et al., 2024, "Better & Faster Large Language Models via
Multi-token Prediction", section 2.
"""

from collections.abc import Sequence
from copy import deepcopy

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from tested_transformer.cache import KVCache
from tested_transformer.checks import validate_between, validate_sizes, validate_tokens
from tested_transformer.decoding.sampling import Probabilities, RandomSource, softmax
from tested_transformer.decoding.speculative import Draft, Drafter, TextReader
from tested_transformer.gpt import GPT, DecoderBlock

__all__ = ["HeadDrafter", "MultiTokenGPT", "multi_token_loss"]


# --8<-- [start:model]
class MultiTokenGPT(nn.Module):
    """A GPT with further heads, which predict several tokens ahead at each position.

    All blocks of the GPT but the last form a trunk. On top of it are ``num_tokens``
    blocks in parallel: the GPT's own last block predicts the next token, and each
    further block a token further ahead. They share the last norm and the matrix to
    logits. Each further block starts as a copy of the GPT's last one.

    ``gpt`` remains a model of its own, to generate with, to save and to load.

    Args:
        gpt: The model, with at least two blocks.
        num_tokens: n, how many tokens ahead to predict; 1 adds no heads.

    Raises:
        ValueError: If ``num_tokens`` is not positive, or there is only one block.
    """

    further: Sequence[DecoderBlock]

    def __init__(self, gpt: GPT, *, num_tokens: int) -> None:
        super().__init__()
        validate_sizes(num_tokens=num_tokens)
        if len(gpt.blocks) < 2:
            raise ValueError(
                f"num_layers={len(gpt.blocks)} must be 2 or more: a trunk, and heads"
            )
        self.gpt = gpt
        further = [deepcopy(gpt.blocks[-1]) for _ in range(num_tokens - 1)]
        self.register_module("further", nn.ModuleList(further))

    # --8<-- [start:forward]
    def forward(
        self, tokens: Int[Tensor, "B T"], *, cache: KVCache | None = None
    ) -> Float[Tensor, "n B T V"]:
        """Return the logits of every head, those of the next token first.

        Args:
            tokens: Token ids. With a cache, only those that it does not hold yet.
            cache: A ``new_cache`` of this model.
        """
        gpt, heads = self.gpt, [self.gpt.blocks[-1], *self.further]
        start, config = self._start(cache), gpt.config
        validate_tokens("tokens", tokens, config.vocab_size, config.max_seq_len, start)
        end = start + tokens.shape[1]
        num_blocks = len(gpt.blocks) + len(self.further)
        layers = [None] * num_blocks if cache is None else cache.layers
        x = gpt._embed(tokens, None, cache)
        turns = gpt._rotary(None, start, end)
        biases = gpt._score_biases(end - start, end)
        trunk = gpt.blocks[:-1]
        for n, block in enumerate(trunk):
            x = block(x, score_bias=biases[n], rotary=turns[n], cache=layers[n])
        features = [
            head(x, score_bias=biases[-1], rotary=turns[-1], cache=layer)
            for head, layer in zip(heads, layers[len(trunk) :], strict=True)
        ]
        gpt._remember(tokens, cache)
        x = gpt.norm(torch.stack(features))
        return gpt.to_logits(x.flatten(0, 1)).unflatten(0, x.shape[:2])

    # --8<-- [end:forward]

    def _start(self, cache: KVCache | None) -> int:
        """Return how many tokens a cache holds; refuse one without all heads."""
        if cache is None:
            return 0
        num_blocks = len(self.gpt.blocks) + len(self.further)
        if len(cache.layers) != num_blocks:
            raise ValueError(
                f"cache has {len(cache.layers)} layers; all heads need {num_blocks}: "
                "make it with the new_cache of the MultiTokenGPT"
            )
        return cache.length

    def new_cache(
        self, batch_size: int = 1, *, max_length: int | None = None
    ) -> KVCache:
        """Return an empty cache for the GPT and all further heads.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens it has room for; ``max_seq_len`` by default.
        """
        cache = self.gpt.new_cache(batch_size, max_length=max_length)
        length = self.gpt.config.max_seq_len if max_length is None else max_length
        heads = [head.new_cache(batch_size, length) for head in self.further]
        return KVCache([*cache.layers, *heads])


def multi_token_loss(
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

    def __init__(self, model: MultiTokenGPT) -> None:
        super().__init__(model.gpt)
        self.heads, self.cache = model, model.new_cache()
        self.ahead: Tensor | None = None  # (n - 1, T, V), of the last tokens read

    def _logits(self, tokens: Tensor) -> Tensor:
        logits = self.heads(tokens, cache=self.cache)[:, 0]
        self.ahead = logits[1:]
        return logits[0]


# --8<-- [start:drafter]
class HeadDrafter(Drafter):
    """Draft from the further heads of a model, which costs no extra pass.

    The pass that produced the newest token also predicted, at the same position, the
    tokens after it. The heads know neither which token was drawn nor each other's
    predictions.

    Args:
        model: The model with further heads; its ``gpt`` verifies.
        probabilities: From logits to the probabilities it draws from; softmax by
            default.
    """

    def __init__(
        self, model: MultiTokenGPT, *, probabilities: Probabilities = softmax
    ) -> None:
        self.model, self.probabilities = model, probabilities
        self._reader = _HeadReader(model)

    def reader(self, model: GPT) -> TextReader:
        """Return a reader that keeps the logits of the further heads.

        Raises:
            ValueError: If it is not for the GPT below these heads.
        """
        if model is not self.model.gpt:
            raise ValueError("the drafter's heads are on another model: pass its gpt")
        self._reader = _HeadReader(self.model)
        return self._reader

    def draft(self, text: Sequence[int], count: int, rng: RandomSource) -> Draft:
        """Return up to ``count`` tokens; none before the first pass."""
        reader = self._reader
        if reader.ahead is None:
            return Draft([], torch.empty(0, reader.model.config.vocab_size))
        # The reader has read all but the newest token, and perhaps rejected ones too.
        rejected = len(reader.text) - (len(text) - 1)
        at = reader.ahead[:count, reader.ahead.shape[1] - 1 - rejected]
        rows = self.probabilities(at).cpu()
        return Draft([rng.draw(row) for row in rows], rows)


# --8<-- [end:drafter]
