"""Graders of *Mini GPT*."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["grade_count", "grade_loss"]


def grade_count(answer: Callable[[int, int, int, int], int]) -> str:
    """Grade a count of the parameters of a GPT.

    Args:
        answer: A function of ``V``, ``T``, ``D`` and ``L``.
    """
    for vocab, length, width, layers in ((5, 7, 6, 1), (11, 3, 10, 2)):
        config = GPTConfig(
            vocab_size=vocab,
            max_seq_len=length,
            d_model=width,
            num_heads=2,
            num_layers=layers,
        )
        mistakes = {
            vocab * width: "the head is the embedding: count it once",
            -length * width: "positions have a table of their own",
            -2 * width: "there is a norm after the last block",
            -layers * 9 * width: "the matrices have biases",
            -layers * 4 * width: "each block has two norms, with gain and bias",
        }
        off = answer(vocab, length, width, layers) - GPT(config).num_parameters()
        wrong = f"parameters too {'many' if off > 0 else 'few'}: {abs(off)}"
        assert off == 0, mistakes.get(off, wrong)
    return "right"


def grade_loss(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Grade the mean loss of the guesses of a language model.

    Args:
        answer: A function of ``logits``, (B, T, V), and ``tokens``, (B, T).
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 7, generator=generator)
    tokens = torch.randint(7, (2, 5), generator=generator)
    logs = logits.log_softmax(dim=-1)
    losses = [-logs[b, t, tokens[b, t + 1]] for b in range(2) for t in range(4)]
    got, expected = torch.as_tensor(answer(logits, tokens)), torch.stack(losses).mean()
    itself = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    assert not torch.isclose(got, itself), (
        "each position guesses the token it has just read: shift by one. "
        "A model learns this in no time, and writes nonsense"
    )
    before = F.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten())
    assert not torch.isclose(got, before), (
        "shifted the wrong way: this asks for the past"
    )
    twice = F.cross_entropy(logs.exp()[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert not torch.isclose(got, twice), (
        "one softmax too many: cross_entropy has its own"
    )
    assert torch.isclose(got, expected), f"{got:.4f}, but the mean is {expected:.4f}"
    return "right"
