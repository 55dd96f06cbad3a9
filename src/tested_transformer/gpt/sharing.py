"""From a model in which each head has its own keys to one in which heads share them."""

from dataclasses import replace

import torch
from torch import Tensor

from tested_transformer.gpt.model import GPT

__all__ = ["with_fewer_keys"]


# --8<-- [start:sharing]
def with_fewer_keys(model: GPT, num_kv_heads: int) -> GPT:
    """Copy a model, and let each group of its heads share the mean of their keys.

    The projections to keys and values of the heads of a group are averaged; all else
    is kept. The copy is a start for further training, not an equal: it gives the same
    only if the heads of each group had the same keys and values.

    Args:
        model: Any GPT.
        num_kv_heads: Heads of keys and values in the copy; divides those of ``model``.

    Raises:
        ValueError: If ``num_kv_heads`` does not divide the model's, or the model was
            pruned.

    Source: Ainslie et al., 2023, "GQA: Training Generalized Multi-Query Transformer
    Models from Multi-Head Checkpoints", section 2.1.
    """
    before = _num_kv_heads(model)
    if num_kv_heads < 1 or before % num_kv_heads:
        raise ValueError(
            f"num_kv_heads={num_kv_heads} must divide the model's num_kv_heads={before}"
        )

    def pool(rows: Tensor) -> Tensor:
        heads = rows.unflatten(0, (num_kv_heads, before // num_kv_heads, -1))
        return heads.mean(dim=1).flatten(0, 1)

    state = model.state_dict()
    for name, tensor in state.items():
        if ".k_proj." in name or ".v_proj." in name:
            state[name] = pool(tensor)
    with torch.device(model.head_weight.device), torch.random.fork_rng(devices=[]):
        copy = GPT(replace(model.config, num_kv_heads=num_kv_heads))
    copy.to(model.head_weight.dtype).load_state_dict(state)
    return copy.train(model.training)


# --8<-- [end:sharing]


def _num_kv_heads(model: GPT) -> int:
    if model.config.kept_heads is not None:
        raise ValueError("model was pruned: its keys have to be shared before that")
    return model.blocks[0].attention.num_kv_heads
