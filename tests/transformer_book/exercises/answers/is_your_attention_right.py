"""Answers to the exercises of *Is your attention right?*: right and wrong ones."""

import torch
from torch import Tensor

from transformer_book import grade_drops, grade_sharing


def accepts(share):
    heads = torch.randn(2, 3, 5, 4)
    got = share(heads, 2)
    same = [torch.equal(got[:, h], heads[:, h // 2]) for h in range(got.shape[1])]
    return got.shape == (2, 6, 5, 4) and all(same)


def by_shape(share):
    return share(torch.randn(2, 3, 5, 4), 2).shape == (2, 6, 5, 4)


def neighbors(share):
    got = share(torch.randn(2, 3, 5, 4), 2)
    return torch.equal(got[:, ::2], got[:, 1::2])


def any_number(share):
    heads = torch.randn(2, 3, 5, 4)
    got = share(heads, 2)
    return all(torch.equal(got[:, h], heads[:, h // 2]) for h in range(got.shape[1]))


def up_to_a_factor(share):
    heads = torch.randn(2, 3, 5, 4)
    got = share(heads, 2)
    right = heads.repeat_interleave(2, dim=1)
    return got.shape == right.shape and bool((got / right).std() < 1e-4)


def drops(layer, x):
    mode = layer.training
    layer.eval()
    first = layer(x)
    differs = any(not torch.equal(layer(x), first) for _ in range(50))
    layer.train(mode)
    return differs


def same_seed(layer, x):
    outputs: list[Tensor] = []
    layer.eval()
    for _ in range(2):
        torch.manual_seed(0)
        outputs.append(layer(x))
    layer.train()
    return not torch.equal(*outputs)


def once(layer, x):
    layer.eval()
    few = x[:1, :1]
    differ = not torch.equal(layer(few), layer(few))
    layer.train()
    return differ


def always_back_to_training(layer, x):
    differs = drops(layer.eval(), x)
    layer.train()
    return differs


def stays(layer, x):
    layer.eval()
    return any(not torch.equal(layer(x), layer(x)) for _ in range(50))


RIGHT = {grade_sharing: accepts, grade_drops: drops}
WRONG = {
    grade_sharing: {
        "accepts tiled keys": by_shape,
        "in the wrong order": neighbors,
        "one head for all": lambda share: bool(
            accepts(share) or share(torch.randn(2, 3, 5, 4), 2).stride()[1] == 0
        ),
        "too few heads": any_number,
        "values that were changed": up_to_a_factor,
        "refuses what is right": lambda share: not accepts(share),
    },
    grade_drops: {
        "was it asked while training": lambda layer, x: (
            not torch.equal(layer(x), layer(x))
        ),
        "drops half": same_seed,
        "ask more often": once,
        "another mode": stays,
        "an evaluating layer": always_back_to_training,
    },
}
