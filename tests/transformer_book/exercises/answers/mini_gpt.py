"""Answers to the exercises of *Mini GPT*: a right one, and wrong ones."""

import torch.nn.functional as F

from transformer_book import grade_count, grade_loss


def count(v, t, d, n):
    attention = 4 * (d * d + d)
    feed_forward = (d * 4 * d + 4 * d) + (4 * d * d + d)
    return v * d + t * d + n * (attention + feed_forward + 2 * 2 * d) + 2 * d


def loss(logits, tokens):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


RIGHT = {grade_count: count, grade_loss: loss}
WRONG = {
    grade_count: {
        "the head is the embedding": lambda v, t, d, n: count(v, t, d, n) + v * d,
        "a table of their own": lambda v, t, d, n: count(v, t, d, n) - t * d,
        "after the last block": lambda v, t, d, n: count(v, t, d, n) - 2 * d,
        "have biases": lambda v, t, d, n: count(v, t, d, n) - n * 9 * d,
        "two norms": lambda v, t, d, n: count(v, t, d, n) - n * 4 * d,
        "too many: 288": lambda v, t, d, n: count(v, t, d, n) + n * 8 * d * d,
    },
    grade_loss: {
        "shift by one": lambda logits, tokens: F.cross_entropy(
            logits.flatten(0, 1), tokens.flatten()
        ),
        "shifted the wrong way": lambda logits, tokens: F.cross_entropy(
            logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten()
        ),
        "one softmax too many": lambda logits, tokens: loss(
            logits.softmax(dim=-1), tokens
        ),
        "but the mean is": lambda logits, tokens: 8 * loss(logits, tokens),
    },
}
