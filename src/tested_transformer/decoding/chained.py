"""Heads in a chain: each predicts one token further, from the token before it.

The heads of ``multi_token`` stand side by side: none of them knows which tokens come
before the one that it predicts. Here each reads what the one before it computed, and
the embedding of the token that this one predicted.

Source of the whole: DeepSeek-AI, 2024, "DeepSeek-V3 Technical Report", section 2.2.
"""

from collections.abc import Sequence
from copy import deepcopy

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tested_transformer.cache import KVCache
from tested_transformer.checks import validate_sizes
from tested_transformer.decoding.sampling import Probabilities, RandomSource, softmax
from tested_transformer.decoding.speculative import Draft, Drafter, TextReader
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of
from tested_transformer.layers import evaluating, make_norm

__all__ = ["ChainDrafter", "ChainedGPT", "ChainedHead"]


# --8<-- [start:head]
class ChainedHead(nn.Module):
    """Combine features with the next token's embedding, and run one more block.

    Args:
        gpt: The model. The block starts as a copy of its last one.
    """

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        config, width = gpt.config, gpt.config.d_model
        self.feature_norm, self.token_norm = (
            make_norm(config.norm, width, bias=config.bias, eps=config.norm_eps)
            for _ in range(2)
        )
        self.projection = nn.Linear(2 * width, width, bias=False)
        self.block = deepcopy(gpt.blocks[-1])
        self.to(numbers_of(gpt))

    def forward(
        self,
        features: Float[Tensor, "B T D"],
        tokens: Float[Tensor, "B T D"],
        *,
        rotary: Float[Tensor, "2 T half"] | None,
        score_bias: Float[Tensor, "..."] | None,
    ) -> Float[Tensor, "B T D"]:
        """Return the features one token further, from the embeddings of these tokens.

        Args:
            features: What was computed up to the token before each of these.
            tokens: The embeddings.
            rotary: The ``rotary_table`` of the positions.
            score_bias: Add this to the scores of every head.
        """
        pair = self.feature_norm(features), self.token_norm(tokens)
        x = self.projection(torch.cat(pair, dim=-1))
        return self.block(x, rotary=rotary, score_bias=score_bias)


class ChainedGPT(nn.Module):
    """A GPT with further heads in a chain, which predict several tokens ahead.

    The first head is the GPT itself. Its features before the last norm go to the second
    with the embedding of the next token, and so on. All share the embedding, the last
    norm and the matrix to logits.

    ``gpt`` remains a model of its own, to generate with, to save and to load.

    Args:
        gpt: The model.
        num_tokens: n, how many tokens ahead to predict; 1 adds no heads.
        shared: Use one further head again and again, as EAGLE does, instead of one for
            each token, as DeepSeek-V3 does.

    Raises:
        ValueError: If ``num_tokens`` is not positive.
    """

    further: Sequence[ChainedHead]

    def __init__(self, gpt: GPT, *, num_tokens: int, shared: bool = False) -> None:
        super().__init__()
        validate_sizes(num_tokens=num_tokens)
        self.gpt, self.num_tokens = gpt, num_tokens
        count = min(num_tokens - 1, 1) if shared else num_tokens - 1
        further = [ChainedHead(gpt) for _ in range(count)]
        self.register_module("further", nn.ModuleList(further))

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "n B T V"]:
        """Return the logits of every head, those of the next token first.

        Those of the head for ``ahead`` further tokens are of no use at the last
        ``ahead`` positions, where it lacks tokens; ``multi_token_loss`` leaves these
        out.
        """
        features, logits = _features_and_logits(self.gpt, tokens)
        guesses = [logits]
        for ahead in range(1, self.num_tokens):
            features = self.step(features, tokens.roll(-ahead, dims=1), ahead)
            guesses.append(self.gpt.to_logits(self.gpt.norm(features)))
        return torch.stack(guesses)

    def step(
        self, features: Float[Tensor, "B T D"], tokens: Int[Tensor, "B T"], ahead: int
    ) -> Float[Tensor, "B T D"]:
        """Return the features of the head for ``ahead`` further tokens, from 1.

        Args:
            features: Those of the head before it.
            tokens: The token that this one predicted, or had to, at each position.
            ahead: Which head.
        """
        head = self.further[min(ahead, len(self.further)) - 1]
        return head(
            features,
            self.gpt._scaled_embedding(tokens),
            rotary=self.gpt._rotary(None, 0, tokens.shape[1])[-1],
            score_bias=self.gpt._score_biases(tokens.shape[1], tokens.shape[1])[-1],
        )


def _features_and_logits(
    gpt: GPT, tokens: Int[Tensor, "B T"], *, cache: KVCache | None = None
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T V"]]:
    """Return what a GPT computes before its last norm, and its logits."""
    seen: list[Tensor] = []

    def see(_: nn.Module, inputs: tuple[Tensor]) -> None:
        seen.extend(inputs)

    with gpt.norm.register_forward_pre_hook(see):
        logits = gpt(tokens, cache=cache)
    return seen[0], logits


# --8<-- [end:head]


class _FeatureReader(TextReader):
    """A ``TextReader`` that keeps the features of the whole text."""

    def __init__(self, model: GPT) -> None:
        super().__init__(model)
        self.features = numbers_of(model).new_empty(1, 0, model.config.d_model)

    def _logits(self, tokens: Tensor) -> Tensor:
        kept = self.features[:, : self.cache.length]
        new, logits = _features_and_logits(self.model, tokens, cache=self.cache)
        self.features = torch.cat([kept, new], dim=1)
        return logits[0]


# --8<-- [start:drafter]
class ChainDrafter(Drafter):
    """Draft from a chain of heads, each of which reads what the one before it drew.

    Each head reads the whole text again; a fast program would keep keys and values for
    it, as for any other block.

    Args:
        model: The model with further heads; its ``gpt`` verifies.
        probabilities: From logits to the probabilities it draws from; softmax by
            default.
    """

    def __init__(
        self, model: ChainedGPT, *, probabilities: Probabilities = softmax
    ) -> None:
        self.model, self.probabilities = model, probabilities
        self._reader = _FeatureReader(model.gpt)

    def reader(self, model: GPT) -> TextReader:
        """Return a reader that keeps the features of the text.

        Raises:
            ValueError: If it is not for the GPT below these heads.
        """
        if model is not self.model.gpt:
            raise ValueError("the drafter's heads are on another model: pass its gpt")
        self._reader = _FeatureReader(model)
        return self._reader

    @torch.inference_mode()
    def draft(self, text: Sequence[int], count: int, rng: RandomSource) -> Draft:
        """Return up to ``count`` tokens; none before the first pass."""
        gpt, length = self.model.gpt, len(text) - 1  # the newest token is not read yet
        features = self._reader.features[:, :length]
        tokens, rows = [*text], [torch.empty(0, gpt.config.vocab_size)]
        heads = range(1, min(count, self.model.num_tokens - 1) + 1)
        for ahead in heads if 0 < length == features.shape[1] else ():
            known = torch.tensor([tokens[ahead:]], device=features.device)
            with evaluating(self.model):
                features = self.model.step(features, known, ahead)
            logits = gpt.to_logits(gpt.norm(features[:, -1:]))[0]
            rows.append(self.probabilities(logits).cpu())
            tokens.append(rng.draw(rows[-1][0]))
        return Draft(tokens[len(text) :], torch.cat(rows))


# --8<-- [end:drafter]
