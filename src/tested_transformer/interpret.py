"""Look into a model: what its heads attend to, and what each is worth.

``record_heads`` keeps the weights of one pass. A target marks, for each query (row),
the keys (columns) that a head of some kind would attend to; ``head_scores`` is the
weight that each head puts there. A query is never its own target, and a query without
a target does not count in the score.

A gate says how much a head counts: 1 leaves it as it is, and 0 replaces its output with
zeros, with its mean, or with its output for another text. A gate is a number, so the
loss has a gradient with respect to it. ``surgery.prune_heads`` removes heads from the
weights.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tested_transformer.checks import validate_between
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of

__all__ = [
    "Recording",
    "all_open",
    "delimiter_target",
    "first_token_target",
    "gate_slopes",
    "gated_heads",
    "head_scores",
    "induction_target",
    "loss_changes",
    "mean_instead",
    "previous_token_target",
    "record_heads",
    "repeated_tokens",
    "same_token_target",
    "shut",
    "uniform_score",
]

_Target = Bool[Tensor, "B T S"]


class Recording(NamedTuple):
    """What one forward pass computed.

    Attributes:
        logits: (B, T, V).
        weights: For each layer, the attention weights, (B, H, T, T).
        outputs: For each layer, the output of each head before ``o_proj`` mixes them,
            (B, H, T, d_k).
    """

    logits: Float[Tensor, "B T V"]
    weights: list[Float[Tensor, "B H T T"]]
    outputs: list[Float[Tensor, "B H T d_k"]]


def record_heads(model: GPT, tokens: Int[Tensor, "B T"]) -> Recording:
    """Run a model, and return the logits with the weights and outputs of every head.

    Nothing is computed twice: the weights come from the pass that computed the logits,
    and the outputs are read on their way into ``o_proj``. No gradient is kept.

    Args:
        model: Any GPT; call ``model.eval()`` first if it has dropout.
        tokens: Token ids.

    Raises:
        ValueError: If the tokens do not fit the model, or its heads have no weights of
            their own, as in linear attention.
    """
    _validate_weights(model)
    outputs: list[Tensor] = []

    def listen(module: nn.Module, inputs: tuple[Tensor]) -> None:
        heads = inputs[0].unflatten(-1, (-1, head_dim))
        outputs.append(heads.transpose(1, 2))

    head_dim = model.blocks[0].attention.head_dim
    with ExitStack() as hooks, torch.no_grad():
        for block in model.blocks:
            o_proj = block.attention.o_proj
            hooks.enter_context(o_proj.register_forward_pre_hook(listen))
        logits, weights = model(tokens, return_weights=True)
    return Recording(logits, weights, outputs)


def _validate_weights(model: GPT) -> None:
    if not model.config.attention.weighs_by_head:
        raise ValueError(
            f"attention={model.config.attention!r} of model has no table of weights "
            "for each head"
        )


# --8<-- [start:scores]
def head_scores(
    weights: Sequence[Float[Tensor, "B H T S"]], target: Bool[Tensor, "B T S"]
) -> Float[Tensor, "L H"]:
    """Return the weight that each head puts on the target, from 0 to 1.

    It is the mean over all queries that have a target.

    Args:
        weights: The attention weights of each layer, such as ``Recording.weights``.
        target: ``True`` for the keys that a head of this kind attends to.

    Raises:
        ValueError: If no query has a target, or layers have different numbers of
            heads, as after ``prune_heads``.
    """
    _validate_equal_heads(weights)
    queries = _queries_with_target(target)
    marked = target[:, None].to(weights[0].dtype)
    on_target = torch.stack([(layer * marked).sum(dim=-1) for layer in weights])
    return on_target.transpose(1, 2)[:, :, queries].mean(dim=-1)


def uniform_score(target: Bool[Tensor, "B T S"]) -> float:
    """Return the score of a head that attends equally to all tokens up to the query.

    Raises:
        ValueError: If no query has a target.
    """
    seen = torch.arange(1, target.shape[1] + 1, device=target.device)
    queries = _queries_with_target(target)
    return (target.sum(dim=-1) / seen)[queries].mean().item()


# --8<-- [end:scores]


def _validate_equal_heads(weights: Sequence[Tensor]) -> None:
    counts = [layer.shape[1] for layer in weights]
    if len({*counts}) != 1:
        raise ValueError(
            f"weights must have equally many heads in each layer; they have {counts}. "
            "Score one layer at a time: head_scores([weights[layer]], target)"
        )


def _queries_with_target(target: Tensor) -> Tensor:
    queries = target.any(dim=-1)
    if not queries.any():
        raise ValueError("target has no key for any query: there is nothing to score")
    return queries


def previous_token_target(tokens: Int[Tensor, "B T"]) -> _Target:
    """Mark the token just before each query."""
    steps = _steps_back(tokens)
    return (steps == 1).expand(len(tokens), -1, -1)


def first_token_target(tokens: Int[Tensor, "B T"]) -> _Target:
    """Mark the first token, for every query after it.

    The first query is left out: it can attend to nothing else, so every head scores 1.
    """
    first = torch.arange(tokens.shape[1], device=tokens.device) == 0
    return ((_steps_back(tokens) > 0) & first).expand(len(tokens), -1, -1)


def delimiter_target(
    tokens: Int[Tensor, "B T"], delimiters: Collection[int]
) -> _Target:
    """Mark all earlier tokens that are delimiters.

    Args:
        tokens: Token ids.
        delimiters: The ids of delimiters, such as spaces and full stops.
    """
    known = torch.tensor(sorted(delimiters), device=tokens.device)
    return torch.isin(tokens, known)[:, None] & (_steps_back(tokens) > 0)


def same_token_target(tokens: Int[Tensor, "B T"]) -> _Target:
    """Mark all earlier tokens that are the same as the query's."""
    return (tokens[:, :, None] == tokens[:, None]) & (_steps_back(tokens) > 0)


def induction_target(tokens: Int[Tensor, "B T"]) -> _Target:
    """Mark the tokens that followed earlier occurrences of the query's token.

    A head that attends there can predict that what followed last time follows again.

    Source: Olsson et al., 2022, "In-context Learning and Induction Heads".
    """
    same = same_token_target(tokens)
    after = torch.zeros_like(same)
    after[:, :, 1:] = same[:, :, :-1]
    return after & (_steps_back(tokens) > 0)


def repeated_tokens(
    vocab_size: int, length: int, *, num_sequences: int = 1, seed: int = 0
) -> Int[Tensor, "B T"]:
    """Draw random distinct tokens, and repeat them: only the repetition is predictable.

    Args:
        vocab_size: V, how many tokens there are to draw from.
        length: How many are drawn; the sequence is twice as long.
        num_sequences: B, how many sequences to draw.
        seed: The seed of the random draw.

    Raises:
        ValueError: If ``length`` is not between 1 and ``vocab_size``.
    """
    validate_between("length", length, 1, vocab_size, "vocab_size")
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        torch.randperm(vocab_size, generator=generator)[:length]
        for _ in range(num_sequences)
    ]
    return torch.stack(drawn).repeat(1, 2)


def _steps_back(tokens: Tensor) -> Tensor:
    """Return how many steps each key lies before each query; negative if after it."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    return at[:, None] - at


def all_open(model: GPT) -> list[Float[Tensor, "H"]]:
    """Return a gate of 1 for every head, layer by layer."""
    like = numbers_of(model)
    return [like.new_ones(block.attention.num_heads) for block in model.blocks]


def shut(model: GPT, heads: Iterable[tuple[int, int]]) -> list[Float[Tensor, "H"]]:
    """Return a gate of 0 for the given heads, and of 1 for all others.

    Args:
        model: The model that has the heads.
        heads: ``(layer, head)`` of each head to shut.

    Raises:
        ValueError: If the model has no such head.
    """
    gates = all_open(model)
    for layer, head in heads:
        if not (0 <= layer < len(gates) and 0 <= head < len(gates[layer])):
            raise ValueError(f"heads: the model has no head {head} in layer {layer}")
        gates[layer][head] = 0.0
    return gates


@contextmanager
def gated_heads(
    model: GPT,
    gates: Sequence[Float[Tensor, "*B H"]],
    *,
    instead: Sequence[Float[Tensor, "..."]] | None = None,
) -> Generator[None]:
    """Scale every head by its gate within a ``with`` block.

    The input of ``o_proj`` becomes ``gate * head + (1 - gate) * instead``.

    Args:
        model: Any GPT. Its weights are not changed.
        gates: For each layer, a number for each head, or for each sequence and head;
            with or without a gradient.
        instead: For each layer, what a shut head outputs, in the shape of
            ``Recording.outputs`` or broadcasting to it; zeros by default.

    Raises:
        ValueError: If ``gates`` or ``instead`` do not fit the model, or its heads come
            in pairs, as in differential attention.
    """
    _validate_layers(model, gates, instead)
    with ExitStack() as hooks:
        for layer, block in enumerate(model.blocks):
            replacement = None if instead is None else instead[layer]
            hook = _gate(gates[layer], replacement)
            o_proj = block.attention.o_proj
            hooks.enter_context(o_proj.register_forward_pre_hook(hook))
        yield


def mean_instead(
    outputs: Sequence[Float[Tensor, "B H T d_k"]],
) -> list[Float[Tensor, "1 H 1 d_k"]]:
    """Return the mean output of each head over all positions of all texts.

    It removes what a head writes at one kind of position, too. To keep that, average
    over such positions alone, as in ``each[rows, :, at].mean(dim=0)[None, :, None]``.
    """
    return [heads.mean(dim=(0, 2), keepdim=True) for heads in outputs]


# --8<-- [start:hook]
def _gate(gate: Tensor, instead: Tensor | None) -> Callable[..., tuple[Tensor]]:
    """Return the hook that gates the input of one ``o_proj``."""

    def hook(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        heads = inputs[0].unflatten(-1, (gate.shape[-1], -1))
        count = gate[..., None, :, None]
        gated = count * heads
        if instead is not None:
            gated = gated + (1 - count) * instead.transpose(1, 2)
        return (gated.flatten(-2),)

    return hook


# --8<-- [end:hook]


def _validate_layers(
    model: GPT, gates: Sequence[Tensor], instead: Sequence[Tensor] | None
) -> None:
    attention = model.config.attention
    if attention.has_scores and not attention.weighs_by_head:
        raise ValueError(
            f"attention={attention!r} of model joins heads in pairs "
            "before o_proj: a gate cannot take one away"
        )
    heads = [block.attention.num_heads for block in model.blocks]
    gates_of = [gate.shape[-1] for gate in gates]
    if gates_of != heads:
        raise ValueError(f"gates are for {gates_of} heads; the model has {heads}")
    if instead is not None and len(instead) != len(heads):
        raise ValueError(
            f"instead is for {len(instead)} layers; the model has {len(heads)}"
        )


# --8<-- [start:measured]
@torch.no_grad()
def loss_changes(
    model: GPT,
    loss: Callable[[], Float[Tensor, "*N"]],
    *,
    instead: Sequence[Float[Tensor, "..."]] | None = None,
) -> list[Float[Tensor, "H *N"]]:
    """Measure how much the loss rises when each head alone is shut.

    Args:
        model: Any GPT; call ``model.eval()`` first if it has dropout.
        loss: A function that runs the model and returns its loss, or several numbers
            in one tensor, each of which gets its changes.
        instead: What a shut head outputs; see ``gated_heads``.

    Raises:
        ValueError: If the model's heads come in pairs, as in differential attention.
    """
    unchanged = loss()
    changes: list[Tensor] = []
    for layer, gates in enumerate(all_open(model)):
        of_layer: list[Tensor] = []
        for head in range(len(gates)):
            with gated_heads(model, shut(model, [(layer, head)]), instead=instead):
                of_layer.append(loss() - unchanged)
        changes.append(torch.stack(of_layer))
    return changes


# --8<-- [end:measured]


# --8<-- [start:slopes]
def gate_slopes(
    model: GPT,
    losses: Callable[[], Float[Tensor, "B"]],
    *,
    num_sequences: int,
    instead: Sequence[Float[Tensor, "..."]] | None = None,
) -> list[Float[Tensor, "B H"]]:
    """Return the gradient of each sequence's loss with respect to each open gate.

    Each sequence has gates of its own, so that one backward pass is enough for all
    heads and all sequences.

    Args:
        model: Any GPT; call ``model.eval()`` first if it has dropout.
        losses: A function that runs the model and returns each sequence's loss, with a
            gradient.
        num_sequences: B, how many sequences ``losses`` reads.
        instead: What a shut head outputs; see ``gated_heads``.

    Raises:
        ValueError: If the model's heads come in pairs, as in differential attention.

    Source: Michel et al., 2019, "Are Sixteen Heads Really Better than One?", section
    4.1: the mean of the absolute slopes is how they rank heads.
    """
    gates = [gate.repeat(num_sequences, 1) for gate in all_open(model)]
    for gate in gates:
        gate.requires_grad_()
    with gated_heads(model, gates, instead=instead):
        return [*torch.autograd.grad(losses().sum(), gates)]


# --8<-- [end:slopes]
