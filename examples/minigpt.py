"""A GPT in one file: text, model, training and generation.

    python examples/minigpt.py                          # learns from Python's manual
    python examples/minigpt.py --text path/to/text.txt  # learns from your text

It reads characters and predicts the next one. It trains in a minute or two on a laptop,
and uses a GPU if there is one. Attention comes from the library, with mask, positions
and cache. Everything else is here: copy the file and change it.
"""

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer import KVCache, MultiHeadAttention, rotary_table
from tested_transformer.cache import LayerCache


@dataclass(frozen=True)
class Config:
    """The sizes of a model."""

    vocab_size: int
    max_seq_len: int = 64
    num_layers: int = 4
    num_heads: int = 4
    d_model: int = 128
    dropout: float = 0.0


# ---- the text ----------------------------------------------------------------------


class Text:
    """A text as numbers, one for each character. The last tenth is held out."""

    def __init__(self, text: str) -> None:
        self.characters = sorted(set(text))
        self.numbers = {char: number for number, char in enumerate(self.characters)}
        tokens = self.encode(text)
        cut = len(tokens) * 9 // 10
        self.train, self.held_out = tokens[:cut], tokens[cut:]

    def encode(self, text: str) -> Tensor:
        """Return the number of each character."""
        unknown = sorted(set(text) - set(self.characters))
        if unknown:
            raise ValueError(f"the model never read {''.join(unknown)!r}")
        return torch.tensor([self.numbers[char] for char in text])

    def decode(self, tokens: Tensor) -> str:
        """Return the characters with these numbers."""
        return "".join(self.characters[number] for number in tokens.tolist())


def draw_batch(tokens: Tensor, size: int, length: int) -> tuple[Tensor, Tensor]:
    """Draw random pieces of a text: inputs and, one character later, targets."""
    starts = torch.randint(len(tokens) - length, (size, 1), device=tokens.device)
    pieces = tokens[starts + torch.arange(length + 1, device=tokens.device)]
    return pieces[:, :-1], pieces[:, 1:]


# ---- the model ---------------------------------------------------------------------


class Block(nn.Module):
    """Let tokens attend to each other, then transform each of them on its own."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.d_model
        self.attention_norm = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(
            d_model=width, num_heads=config.num_heads, dropout=config.dropout
        )
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, rotary: Tensor, cache: LayerCache | None) -> Tensor:
        """Add the output of attention to ``x``, then that of the feed-forward."""
        attended = self.attention(
            self.attention_norm(x), causal=True, rotary=rotary, cache=cache
        )
        x = x + self.dropout(attended)
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class MiniGPT(nn.Module):
    """A decoder with rotary positions. One matrix reads tokens and predicts them."""

    rotary: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.d_model)
        # Small, so that at first every character is about equally likely.
        nn.init.normal_(self.embedding.weight, std=0.02)
        positions = torch.arange(config.max_seq_len)
        table = rotary_table(positions, config.d_model // config.num_heads)
        self.register_buffer("rotary", table, persistent=False)

    def forward(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """Return the logits of the token after each one: (B, T, vocab_size).

        With a cache, the tokens continue those that it already holds.
        """
        start = 0 if cache is None else cache.length
        rotary = self.rotary[:, start : start + tokens.shape[1]]
        x = self.embedding(tokens)
        for number, block in enumerate(self.blocks):
            x = block(x, rotary, None if cache is None else cache.layers[number])
        return F.linear(self.norm(x), self.embedding.weight)

    def new_cache(self) -> KVCache:
        """Return an empty cache for one text of at most ``max_seq_len`` tokens."""
        attention = [m for m in self.modules() if isinstance(m, MultiHeadAttention)]
        return KVCache([m.new_cache(1, self.config.max_seq_len) for m in attention])

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of the targets, in nats."""
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())


# ---- training ----------------------------------------------------------------------


def train(
    model: MiniGPT,
    text: Text,
    *,
    steps: int = 1000,
    batch_size: int = 16,
    peak_rate: float = 3e-3,
) -> list[float]:
    """Train a model, and return its held-out losses in order."""
    device, length = model.rotary.device, model.config.max_seq_len
    tokens, held_out = text.train.to(device), text.held_out.to(device)
    if len(held_out) <= length:
        raise ValueError(
            f"text must have more than {10 * length} characters to learn from"
        )
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98))
    losses: list[float] = []
    start = time.perf_counter()
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * warm_up_and_cool_down(step / steps)
        inputs, targets = draw_batch(tokens, batch_size, length)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = model.loss(inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step == 1 or step % max(1, steps // 10) == 0:
            losses.append(evaluate(model, held_out))
            seconds = time.perf_counter() - start
            print(f"step {step:5}   held-out loss {losses[-1]:.3f}   {seconds:5.1f} s")
    return losses


def warm_up_and_cool_down(progress: float, warmup: float = 0.05) -> float:
    """Return the factor of the learning rate: linear up, then half a cosine down."""
    if progress < warmup:
        return progress / warmup
    return 0.55 + 0.45 * math.cos(math.pi * (progress - warmup) / (1 - warmup))


@torch.no_grad()
def evaluate(model: MiniGPT, tokens: Tensor, rows: int = 256) -> float:
    """Return the loss on a text, or on its first ``rows * max_seq_len`` characters."""
    length = model.config.max_seq_len
    rows = min(rows, (len(tokens) - 1) // length)
    inputs = tokens[: rows * length].view(rows, length)
    targets = tokens[1 : rows * length + 1].view(rows, length)
    model.eval()
    loss = model.loss(inputs, targets).item()
    model.train()
    return loss


# ---- writing -----------------------------------------------------------------------


@torch.no_grad()
def write(
    model: MiniGPT,
    tokens: Tensor,
    count: int,
    *,
    temperature: float = 0.8,
    top_k: int = 20,
    cached: bool = True,
) -> Tensor:
    """Return the tokens with ``count`` more, each drawn from the ``top_k`` most likely.

    The model sees ``max_seq_len`` tokens. When they are full, it continues from the
    last half of them. The cache only saves time: without it, the model reads every
    token again for each new one.
    """
    config = model.config
    cache = model.new_cache()
    model.eval()
    start = max(0, len(tokens) - config.max_seq_len)
    for _ in range(count):
        if len(tokens) - start > config.max_seq_len:
            start = len(tokens) - config.max_seq_len // 2
            cache.reset()
        if cached:
            logits = model(tokens[None, start + cache.length :], cache)[0, -1]
        else:
            logits = model(tokens[None, start:])[0, -1]
        best, numbers = logits.topk(min(top_k, len(logits)))
        weights = (best / temperature).softmax(dim=-1)
        tokens = torch.cat([tokens, numbers[weights.multinomial(1)]])
    return tokens


# ---- the command -------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> None:
    """Train a model on a text, and generate a sample."""
    parser = argparse.ArgumentParser(description="Train a small GPT, then write text.")
    parser.add_argument(
        "--text", type=Path, help="a text file; Python's manual by default"
    )
    parser.add_argument("--steps", type=int, default=1000, help="default 1000")
    parser.add_argument("--prompt", default="The ", help="the text to continue")
    parser.add_argument("--count", type=int, default=500, help="characters to write")
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed gives another model"
    )
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default, help=f"default {default}")
    options = parser.parse_args(arguments)
    if not options.prompt:
        parser.error("--prompt must not be empty: the model continues it")

    torch.manual_seed(options.seed)
    words = "\n".join(topics.values())
    try:
        if options.text:
            words = options.text.read_text("utf-8")
        text = Text(words)
        prompt = text.encode(options.prompt).to(options.device)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    model = MiniGPT(Config(vocab_size=len(text.characters))).to(options.device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(words):,} characters, {parameters:,} parameters, {options.device}")
    train(model, text, steps=options.steps)
    print(text.decode(write(model, prompt, options.count)))


if __name__ == "__main__":
    main()
