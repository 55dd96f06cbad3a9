"""``tested-transformer evaluate``: measure a model's loss, and whether it is honest."""

import json
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn

from tested_transformer import data, training
from tested_transformer.cli.display import printable, reminder
from tested_transformer.cli.flags import Call, check_at_least
from tested_transformer.cli.sources import HELD_OUT, Source, load_source, load_text
from tested_transformer.gpt import GPT
from tested_transformer.rotary_scaling import SCALINGS as SCALINGS  # for --help

__all__ = ["Evaluate"]

# Rounding in float32 causes much smaller differences, a leak larger ones.
_HONEST_WITHIN = 0.01


class _Opened(nn.Module):
    """A model that reads an opening, such as BOS, before each window."""

    def __init__(self, model: GPT, opening: Sequence[int]) -> None:
        super().__init__()
        self.model, self.opening = model, [*opening]

    def forward(self, tokens: Tensor) -> Tensor:
        opening = tokens.new_tensor(self.opening).expand(len(tokens), -1)
        logits = self.model(torch.cat([opening, tokens], dim=1))
        return logits[:, len(self.opening) :]


@dataclass(frozen=True)
class Evaluate:
    """Measure the loss of a model, and whether it is honest.

    Examples:
      tested-transformer evaluate                  the latest run, as train does
      tested-transformer evaluate --num-tokens 0   on the whole held-out part
      tested-transformer evaluate runs/play --seq-len 32
      tested-transformer evaluate runs/play other.txt --json
      tested-transformer evaluate runs/play --rotary-factor 4   on longer texts

    The loss is the mean over all tokens, each predicted from those before it in its
    window. For the honest loss, the model gets only what comes before a position. If
    the two differ at the same positions, the model sees what it should predict, its
    loss means nothing, and the exit status is 1. If the tokenizer puts a token such as
    BOS before each text, it stands before each window.

    Args:
        checkpoint: The model; the latest run in runs/ by default.
        text: A text; by default the held-out part of the text it was trained on.
        num_tokens: How many tokens to predict, 0 for all; by default as many as in
            training on its own text, and all of any other text.
        seq_len: Tokens in a window; by default as many as the model can read, but at
            most 1024.
        precision: fp32, bf16, fp16 or auto; the honest loss is always measured in
            fp32.
        rotary_factor: Read texts this many times as long as max_seq_len, by slowing
            rotary positions down.
        rotary_scaling: The rule for slowing them down, one of ``SCALINGS``.
    """

    checkpoint: str | None = None
    text: str | None = None
    _: KW_ONLY
    num_tokens: int | None = None
    seq_len: int | None = None
    precision: str = "fp32"
    rotary_factor: float = 1.0
    rotary_scaling: str = "yarn"

    def run(self, call: Call) -> int:
        """Evaluate, and return the exit status."""
        precision = training.choose_precision(call.device, self.precision)
        check_at_least(0, num_tokens=self.num_tokens)
        source = load_source(self.checkpoint, call.device)
        source = source.stretched(self.rotary_factor, self.rotary_scaling)
        seq_len = source.window_length(self.seq_len)
        corpus, part, tokens = self._tokens(source)
        result = training.validate(
            _Opened(source.model, source.opening) if source.opening else source.model,
            tokens,
            step=0,
            seq_len=seq_len,
            vocab_size=source.model.config.vocab_size,
            precision=precision,
        )
        # Bits per character compare across vocabularies, unlike bits per token.
        characters = len(source.tokenizer.decode(tokens[1:].tolist()))
        bits = result.loss * (len(tokens) - 1) / characters / math.log(2)
        agrees = abs(result.prefix - result.full) < _HONEST_WITHIN
        facts = {
            "checkpoint": source.name,
            "text": corpus.name,
            "part": part,
            "tokens": len(tokens),
            "seq_len": seq_len,
            "precision": precision,
            "loss": result.loss,
            "honest": result.prefix,
            "one_pass": result.full,
            "agrees": agrees,
            "bits_per_character": bits,
            "perplexity": math.exp(result.loss),
            "bound": corpus.entropy,
        }
        lines = [
            f"{source.name}:",
            f"  text         {part} of {corpus.origin}, {len(tokens):,} tokens",
            f"  loss         {result.loss:.4f} nats per token, in windows of {seq_len}",
            f"  honest loss  {result.prefix:.4f}; in one pass {result.full:.4f}",
            f"               they {'agree' if agrees else 'DIFFER: it is not honest'}",
            f"  bits         {bits:.4f} per character",
            f"  perplexity   {math.exp(result.loss):.3f}",
        ]
        if corpus.entropy is not None:
            bound = f"{corpus.entropy:.4f} nats per character: the entropy of the text"
            lines.append(f"  bound        {bound}")
        print(json.dumps(facts) if call.as_json else printable("\n".join(lines)))
        return 0 if agrees else 1

    def _tokens(self, source: Source) -> tuple[data.TokenizedCorpus, str, torch.Tensor]:
        """Return a text that the model was not trained on, and which part it is."""
        if self.text is not None:
            corpus = data.load_tokens(
                self.text, tokenizer=source.tokenizer, tell=reminder()
            )
            tokens, part, usual = corpus.tokens, "all", 0
        else:
            corpus, part = load_text(source.about, source.name), "the held-out part"
            tokens = data.split(corpus.tokens)[1]
            usual = source.about.get("eval_tokens", HELD_OUT)
        count = usual if self.num_tokens is None else self.num_tokens
        if count and count + 1 < len(tokens):
            tokens, part = tokens[: count + 1], f"the beginning of {part}"
        return corpus, part, tokens
