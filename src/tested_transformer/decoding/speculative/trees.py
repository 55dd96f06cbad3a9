"""Draft trees: several continuations at once, read by the model in one pass.

A tree of N drafted tokens, its *nodes*, is given by the parent of each: an earlier
node, or -1 for the end of the text. A node sees the text, its ancestors and itself, and
its position is that of a text in which only its ancestors stand before it.

Sources of the whole: Miao et al., 2023, "SpecInfer: Accelerating Generative Large
Language Model Serving with Tree-based Speculative Inference and Verification"; Cai et
al., 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
Heads", on tree attention.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from tested_transformer.cache import DenseCache, KVCache, dense_layers
from tested_transformer.checks import validate_between, validate_sizes
from tested_transformer.decoding.sampling import Probabilities, RandomSource, softmax
from tested_transformer.decoding.speculative.drafters import Draft, ModelDrafter
from tested_transformer.decoding.speculative.text_reader import TextReader
from tested_transformer.gpt import GPT
from tested_transformer.layers import evaluating

__all__ = ["TreeDrafter", "TreeReader", "tree_mask"]


# --8<-- [start:mask]
def tree_mask(parents: Sequence[int]) -> Bool[Tensor, "N N"]:
    """Return which nodes each node sees: its ancestors and itself.

    Args:
        parents: The parent of each node: an earlier one, or -1 for the end of the text.

    Raises:
        ValueError: If a parent does not come before its child.
    """
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        validate_between(f"parents[{node}]", parent, -1, node - 1)
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


# --8<-- [end:mask]


# --8<-- [start:reader]
class TreeReader(TextReader):
    """Read a text and a tree of drafts in one pass; keep the path that is accepted.

    Args:
        model: The model that reads.

    Raises:
        ValueError: If the model depends on where tokens lie in its cache, in which the
            nodes of a tree stand in a row: windows, ALiBi, smeared tokens, states and
            chosen blocks.
    """

    def __init__(self, model: GPT) -> None:
        super().__init__(model)
        _validate_reads_trees(model, self.cache)
        self.nodes, self.parents = list[int](), list[int]()

    @torch.inference_mode()
    def read_draft(
        self,
        text: Sequence[int],
        drafted: Sequence[int],
        parents: Sequence[int] | None = None,
    ) -> Float[Tensor, "N_and_1 V"]:
        """Return the logits after a text, and after each node of a tree behind it."""
        self._keep_path(text)
        tokens = self._unread([*text, *drafted], len(drafted) + 1)
        self.text, self.nodes = [*text], [*drafted]
        self.parents = [*(range(-1, len(drafted) - 1) if parents is None else parents)]
        tree = tree_mask(self.parents).to(tokens.device)
        end, rest = len(text), tokens.shape[1] - len(drafted)
        before = torch.arange(end - rest, end, device=tokens.device)
        depths = tree.sum(dim=-1)
        with evaluating(self.model):
            logits = self.model(
                tokens,
                positions=torch.cat([before, end - 1 + depths])[None],
                # All see the text. The model adds its causal mask.
                mask=F.pad(tree, (end, 0, rest, 0), value=True),
                cache=self.cache,
            )
        return logits[0, rest - 1 :]

    def _keep_path(self, text: Sequence[int]) -> None:
        """Keep the nodes along which a text goes on, and forget the others."""
        edges = zip(self.parents, self.nodes, strict=True)
        children = {edge: node for node, edge in enumerate(edges)}
        start, path = len(self.text), [-1]
        for token in text[start:]:
            if (path[-1], token) not in children:
                break
            path.append(children[path[-1], token])
        end, kept = start + len(path) - 1, [start + node for node in path[1:]]
        for layer in dense_layers(self.cache):
            for memory in (layer.keys, layer.values):
                memory[:, :, start:end] = memory[:, :, kept]
        self.text += [self.nodes[node] for node in path[1:]]
        self.nodes, self.parents = [], []


# --8<-- [end:reader]


def _validate_reads_trees(model: GPT, cache: KVCache) -> None:
    config = model.config
    windows = [config.window_of(n) for n in range(config.num_layers)]
    keys_alone = all(isinstance(layer, DenseCache) for layer in cache.layers)
    for name, depends in {
        "windows": any(windows),
        "positions='alibi'": config.positions == "alibi",
        "smear=True": config.smear,
        f"attention={config.attention}": not (
            keys_alone and config.attention.reads_padding
        ),
    }.items():
        if depends:
            raise ValueError(
                f"the model has {name}, which depends on where tokens lie in the "
                "cache, so it cannot read a tree"
            )


# --8<-- [start:drafter]
class TreeDrafter(ModelDrafter):
    """Let a small model draft a tree, which it reads level by level itself.

    The children of a node are drawn one after another, no token twice, each from what
    the small model leaves for it. The shape of the tree does not depend on the tokens,
    except that no child is drawn with a probability of 0.

    Args:
        model: The small model, with the same vocabulary.
        branches: How many children a node has, for each level of the tree; ``(1, 1)``
            is a chain of two tokens.
        probabilities: From its logits to the probabilities it draws from; softmax by
            default.
        likeliest: Draft the likeliest tokens, each with a probability of 1, instead of
            drawing them.

    Raises:
        ValueError: If a number of children is not positive, or the model cannot read
            trees.
    """

    def __init__(
        self,
        model: GPT,
        branches: Sequence[int],
        *,
        probabilities: Probabilities = softmax,
        likeliest: bool = False,
    ) -> None:
        super().__init__(model, probabilities=probabilities)
        for level, count in enumerate(branches):
            validate_sizes(**{f"branches[{level}]": count})
        self.branches, self.likeliest = [*branches], likeliest
        self._reader = TreeReader(model)
        self._room = model.config.max_seq_len

    def reader(self, model: GPT) -> TextReader:
        """Return a reader of trees, if the small model has what the model needs."""
        super().reader(model)
        self._room = model.config.max_seq_len
        return TreeReader(model)

    def draft(self, text: Sequence[int], count: int, rng: RandomSource) -> Draft:
        """Return a tree of at most ``count`` levels, as far as there is room for it."""
        tokens, parents, rows = list[int](), list[int](), list[Tensor]()
        level, room = [-1], self._room - len(text)
        for branches in self.branches[:count]:
            logits = self._reader.read_draft(text, tokens, parents)
            drawn_from = self.probabilities(logits).cpu()
            start = len(tokens)
            for node in level:
                children = self._children(drawn_from[node + 1], branches, rng)
                for token, row in children[: room - len(tokens)]:
                    tokens.append(token)
                    parents.append(node)
                    rows.append(row)
            level = range(start, len(tokens))
        none = torch.empty(0, self._reader.model.config.vocab_size)
        return Draft(tokens, torch.stack(rows) if rows else none, parents)

    def _children(
        self, row: Float[Tensor, "V"], count: int, rng: RandomSource
    ) -> list[tuple[int, Float[Tensor, "V"]]]:
        """Return up to ``count`` tokens, and the row that each was drawn from."""
        children: list[tuple[int, Tensor]] = []
        for _ in range(count):
            token = int(row.argmax()) if self.likeliest else rng.draw(row)
            sure = F.one_hot(torch.tensor(token), len(row)).to(row)
            children.append((token, sure if self.likeliest else row))
            row = row * (1 - sure)
            if row.sum() == 0:
                break
            row = row / row.sum()
        return children


# --8<-- [end:drafter]
