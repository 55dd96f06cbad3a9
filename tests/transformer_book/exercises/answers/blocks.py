"""Answers to the exercises of *Blocks*: right ones, and wrong ones."""

from functools import partial

from transformer_book import grade_block, grade_norm


def my_norm(x, gain, bias, eps, *, axes=(-1,), correction=0, center=True):
    if center:
        x = x - x.mean(dim=axes, keepdim=True)
    variance = x.square().sum(dim=axes, keepdim=True)
    count = x.numel() // variance.numel() - correction
    return x / (variance / count + eps).sqrt() * gain + bias


def eps_outside(x, gain, bias, eps):
    x = x - x.mean(dim=-1, keepdim=True)
    return x / (x.std(dim=-1, correction=0, keepdim=True) + eps) * gain + bias


def block(x, norm1, attention, norm2, feed):
    x = x + attention(norm1(x))
    return x + feed(norm2(x))


def post_norm(x, norm1, attention, norm2, feed):
    x = norm1(x + attention(x))
    return norm2(x + feed(x))


def normed_stream(x, norm1, attention, norm2, feed):
    x = norm1(x)
    x = norm2(x + attention(x))
    return x + feed(x)


RIGHT = {grade_norm: my_norm, grade_block: block}
WRONG = {
    grade_norm: {
        "divides by D - 1": partial(my_norm, correction=1),
        "under the root": eps_outside,
        "eps is left out": lambda x, gain, bias, _: my_norm(x, gain, bias, 0.0),
        "tokens meet": partial(my_norm, axes=(-2, -1)),
        "that is RMS norm": partial(my_norm, center=False),
        "gain and bias are missing": lambda x, *_: my_norm(x, 1.0, 0.0, 1e-4),
        "first the gain": lambda x, gain, bias, eps: gain * my_norm(x, 1.0, bias, eps),
        "not a layer norm": lambda x, *_: x,
        "(2, 3), not": lambda x, *_: x.mean(dim=-1),
    },
    grade_block: {
        "that is post-norm": post_norm,
        "on the stream, too": normed_stream,
        "both parts read the same x": lambda x, n, a, m, f: x + a(n(x)) + f(m(x)),
        "nothing is added": lambda x, n, a, m, f: f(m(a(n(x)))),
        "through the same norm": lambda x, n, a, m, f: block(x, n, a, n, f),
        "not the block": lambda x, *_: x,
    },
}
