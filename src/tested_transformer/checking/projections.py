"""Find the projections in somebody else's layer, and make oracles of them."""

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.checking.forms import FormedAttention

__all__ = [
    "Projection",
    "cut",
    "cuts",
    "find_width",
    "joined",
    "make_layer",
    "meant_as",
    "norm_weights",
    "number_of_heads",
    "oracles",
    "oracles_of",
]

# Words in the names of the three projections in public code. The rest of the three
# names is the same.
_THREE = (
    *(("query", "key", "value"), ("queries", "keys", "values")),
    ("query", "keys", "values"),
    *(("Query", "Key", "Value"), ("q", "k", "v"), ("Q", "K", "V")),
)
# Names of one projection to all three, and of the last projection.
_STACKED = ("c_attn", "qkv", "qkv_proj", "in_proj", "to_qkv", "Wqkv", "query_key_value")
_LAST = (
    *("o_proj", "out_proj", "W_o", "w_o", "wo", "c_proj", "proj", "to_out", "out"),
    *("dense", "output", "w_concat", "fc_o", "fc_out", "linear_out", "out_lin", "o"),
    *("unifyheads", "output_linear", "out_linear", "fc", "W_out"),
)
_NO_COUNT = r"kv|key|dim|size|width|rep|^d_|_d$|per"
_HEADS = (
    *("num_heads", "n_heads", "n_head", "heads", "nhead", "nheads", "h"),
    "num_attention_heads",
)

Projection = tuple[Tensor, Tensor | None]
"""A matrix with a row for each output, and a bias if there is one."""


def find_width(module: nn.Module) -> int | None:
    """Return the width of the features that a layer takes, if it can be inferred."""
    embed_dim = getattr(module, "embed_dim", None)
    if isinstance(embed_dim, int):
        return embed_dim
    found = chain.from_iterable(map(meant_as, module.modules()))
    first = next((matrix for matrix, _ in found), None)
    if first is None:
        return None
    rows, columns = first.shape
    last = next((len(matrix) for matrix, _ in _last(module)), columns)
    # A projection that all heads share takes the features of one head.
    shared = rows == columns < last and last % columns == 0
    return last if shared else columns


def oracles(
    module: nn.Module, num_heads: int | None = None, *, beside: bool = False
) -> Iterator[FormedAttention]:
    """Yield correct layers with the weights of ``module``.

    There are none if its projections or its number of heads are not found, or if it has
    other parameters, since it then computes something else, unless ``beside``. There
    are several if its parameters can be read in more than one way.

    Args:
        module: Somebody else's layer.
        num_heads: The number of heads; by default inferred from its attributes.
        beside: Whether it may have other parameters beside its projections.
    """
    lasts = _last(module)
    if not lasts and (inner := _wrapped(module)) is not None:
        inner.train(module.training)
        yield from oracles(inner, num_heads, beside=beside)
        return
    num_heads = number_of_heads(module) if num_heads is None else num_heads
    if num_heads is None or (getattr(module, "qk_norm", False) and not beside):
        return
    if not _threes(module) and (flat := _flat(module)) is not None:
        yield from oracles(flat.train(module.training), num_heads, beside=beside)
        return
    whole = sum(each.numel() for each in module.parameters())
    # Beside other parameters, a last projection that is not found may be among them.
    without: list[Projection | None] = [] if beside else [None]
    for last in lasts or _other(module, several=beside) or without:
        inner_width = None if last is None else last[0].shape[1]
        for inputs in _inputs(module, num_heads, inner_width, beside=beside):
            found = [*inputs, last]
            pairs = [pair for pair in found if pair is not None]
            parts = [each for pair in pairs for each in pair if each is not None]
            # If only queries and values have biases, those of the keys are added zeros.
            made_up = len(_biases(module)[0]) if _biases(module) else 0
            if beside or whole == sum(each.numel() for each in parts) - made_up:
                layer = make_layer(found, num_heads)
                if layer is not None:
                    yield layer.train(module.training)


def norm_weights(module: nn.Module) -> set[nn.Parameter]:
    """Return the parameters of norms, which are modules with nothing but vectors."""
    found: set[nn.Parameter] = set()
    for each in module.modules():
        own = [*each.parameters()]
        if own and all(weight.ndim == 1 for weight in own):
            found.update(own)
    return found


def oracles_of(
    module: nn.Module, names: Sequence[str], num_heads: int | None = None
) -> list[FormedAttention]:
    """Return layers with the projections of ``module`` that have these names.

    Args:
        module: Somebody else's layer.
        names: The names of the projections to queries, keys and values and of the last
            one, or of one projection to all three and of the last one. The last may be
            missing.
        num_heads: The number of heads; by default inferred from its attributes.

    Raises:
        ValueError: If there is no such projection, or they do not fit together.
    """
    while (inner := _wrapped(module)) is not None and not hasattr(
        module, names[0].partition(".")[0]
    ):
        module = inner
    num_heads = number_of_heads(module) if num_heads is None else num_heads
    if num_heads is None:
        raise ValueError("the number of heads is not known: give num_heads")
    meant: list[list[Projection]] = []
    for name in names:
        parent, _, last = name.rpartition(".")
        try:
            found = meant_as(getattr(module.get_submodule(parent), last, None))
        except AttributeError:
            found = []
        if not found:
            raise ValueError(f"projections={name!r} is not a projection of the layer")
        meant.append(found)
    layers: list[FormedAttention | None] = []
    for chosen in product(*meant):
        last = chosen[-1] if len(chosen) in (2, 4) else None
        inputs: Iterator[Sequence[Projection]] = iter([chosen[:3]])
        if len(chosen) < 3:
            inner_width = len(chosen[0][0]) // 3 if last is None else last[0].shape[1]
            inputs = cuts(*chosen[0], num_heads, inner_width)
        layers += [make_layer([*each, last], num_heads) for each in inputs]
    fitting = [each for each in layers if each is not None]
    if not fitting:
        raise ValueError(
            f"projections={names} do not fit together with {num_heads} heads"
        )
    return fitting


def make_layer(
    found: Sequence[Projection | None], num_heads: int
) -> FormedAttention | None:
    """Return a layer in float64 with projections, of which the last may be missing.

    Return ``None`` if their shapes do not fit together.
    """
    given = [each for each in found if each is not None]
    if len(given) == 3:
        eye = torch.eye(len(given[0][0]), dtype=given[0][0].dtype)
        given.append((eye, None))
    inner = given[3][0].shape[1]
    given = [*(_of_each_head(each, num_heads, inner) for each in given[:3]), given[3]]
    (q, _), (k, _), (v, _), (o, _) = given
    head_dim, left = divmod(q.shape[0], num_heads)
    if left or k.shape[0] % head_dim or not q.shape[1] == k.shape[1] == v.shape[1]:
        return None
    # A head's values may be wider or narrower than its queries and keys.
    num_kv_heads = k.shape[0] // head_dim
    of_values, left = divmod(v.shape[0], num_kv_heads)
    if left or o.shape != (q.shape[1], num_heads * of_values):
        return None
    # As narrow as it can be, since all weights that it begins with are replaced.
    layer = FormedAttention(
        d_model=num_heads, num_heads=num_heads, num_kv_heads=num_kv_heads
    )
    layer.head_dim = head_dim
    targets = layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj
    for target, (weight, bias) in zip(targets, given, strict=True):
        target.out_features, target.in_features = weight.shape
        shift = weight.new_zeros(len(weight)) if bias is None else bias
        target.weight, target.bias = (
            nn.Parameter(each.detach().to(torch.float64, copy=True))
            for each in (weight, shift)
        )
    return layer


def _of_each_head(projection: Projection, num_heads: int, inner: int) -> Projection:
    """Return a projection for all heads, repeated if the heads share a smaller one."""
    weight, bias = projection
    if num_heads == 1 or weight.shape != (inner // num_heads,) * 2:
        return projection
    bias = None if bias is None else bias.repeat(num_heads)
    return torch.block_diag(*[weight] * num_heads), bias


def _wrapped(module: nn.Module) -> nn.Module | None:
    """Return the only child with parameters, if the module has none of its own."""
    inner = [each for each in module.children() if any(True for _ in each.parameters())]
    own = any(True for _ in module.parameters(recurse=False))
    only = inner[0] if len(inner) == 1 and not own else None
    return None if isinstance(only, nn.ModuleList) else only


def _flat(module: nn.Module) -> nn.Module | None:
    """Return a nested layer as one without nesting, if the names of its parts differ.

    Return ``None`` if it has lists of parts, or no nesting.
    """
    flat = nn.Module()
    nested = False
    for path, each in module.named_modules():
        own = dict(each.named_parameters(path, recurse=False))
        leaf = own and not [*each.children()]
        parts = {path: each} if leaf else own
        for name, part in parts.items():
            parent, _, last = name.rpartition(".")
            if last.isdigit() or hasattr(flat, last):
                return None
            setattr(flat, last, part)
            nested |= bool(parent)
    return flat if nested else None


def _inputs(
    module: nn.Module, num_heads: int, inner: int | None, *, beside: bool
) -> Iterator[Sequence[Projection]]:
    """Yield candidates for the projections to queries, keys and values.

    With ``beside``, yield some that only their shapes or parts of names suggest.
    """
    yield from _separate(module)
    for each in _lists(module):
        of_heads = [next(_separate(head), ()) for head in each]
        if all(of_heads):
            yield [joined(parts) for parts in zip(*of_heads, strict=True)]
        matrices = [meant_as(child) for child in each]
        if len(each) in (3, 4) and all(matrices):
            yield [alternatives[0] for alternatives in matrices[:3]]
    for names in _pairs(module) if beside else [("to_q", "to_kv")]:
        q, kv = (meant_as(getattr(module, name, None)) for name in names)
        if q and kv:
            yield [q[0], *cut(*kv[0], [len(kv[0][0]) // 2] * 2)]
    stacked = [meant_as(getattr(module, name, None)) for name in _STACKED]
    if beside and not any(stacked) and inner is not None:
        children = [meant_as(each) for each in module.children()]
        stacked = [each for each in children if each and len(each[0][0]) == 3 * inner]
    weight = getattr(module, "in_proj_weight", None)
    if isinstance(weight, Tensor):
        stacked.append([(weight, getattr(module, "in_proj_bias", None))])
    biases = _biases(module)
    for each in stacked:
        rows = each[0][0].shape[0] if each else 0
        if rows >= (width := rows // 3 if inner is None else inner) > 0:
            for q, k, v in cuts(*each[0], num_heads, width):
                if biases:  # a bias of keys would not change the attention weights
                    no_bias = k[0].new_zeros(len(k[0]))
                    yield [(q[0], biases[0]), (k[0], no_bias), (v[0], biases[1])]
                else:
                    yield [q, k, v]


def _biases(module: nn.Module) -> list[Tensor]:
    """Return the biases of queries and values, if these are parameters of their own."""
    found = [getattr(module, name, None) for name in ("q_bias", "v_bias")]
    if isinstance(getattr(module, "k_bias", None), nn.Parameter):
        return []
    return [each for each in found if isinstance(each, Tensor)]


def _lists(module: nn.Module) -> list[nn.ModuleList]:
    return [each for each in module.children() if isinstance(each, nn.ModuleList)]


def _separate(module: nn.Module) -> Iterator[list[Projection]]:
    """Yield three projections by name, in each way that a bare matrix can be read."""
    for names in _threes(module):
        found = [_meant_inside(getattr(module, each)) for each in names]
        yield from (list(each) for each in zip(*found, strict=False))


def _pairs(module: nn.Module) -> list[tuple[str, str]]:
    """Return pairs of names that differ in ``q`` and ``kv``."""
    own = {name for name, _ in module.named_children()}
    found = [(name, name.replace("q", "kv")) for name in sorted(own) if "q" in name]
    return [names for names in found if own.issuperset(names)]


def _threes(module: nn.Module) -> list[tuple[str, str, str]]:
    """Return triples of names that differ in the words for query, key and value."""
    own = {name for name, _ in chain(module.named_children(), _own_matrices(module))}
    found = [
        (name, name.replace(q, k), name.replace(q, v))
        for name, (q, k, v) in product(sorted(own), _THREE)
        if q in name
    ]
    return [names for names in found if own.issuperset(names)]


def _own_matrices(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return module.named_parameters(recurse=False)


def joined(parts: Sequence[Projection]) -> Projection:
    """Join the projections of single heads into one."""
    biases = [bias for _, bias in parts if bias is not None]
    weight = torch.cat([weight for weight, _ in parts])
    return weight, torch.cat(biases) if len(biases) == len(parts) else None


def cuts(
    weight: Tensor, bias: Tensor | None, num_heads: int, d_model: int
) -> Iterator[Sequence[Projection]]:
    """Yield ways to split one projection into three, by the order of its rows."""
    d_kv, left = divmod(weight.shape[0] - d_model, 2)
    if left or not d_kv:
        return
    yield cut(weight, bias, [d_model, d_kv, d_kv])
    if d_kv == d_model and d_model % num_heads == 0:
        sizes = 3, num_heads, d_model // num_heads
        # The order (1, 0, 2) has queries, keys and values of each head together, and is
        # the most common one.
        for order in ((1, 0, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0)):
            rows = torch.arange(3 * d_model).view([sizes[axis] for axis in order])
            at = rows.permute([order.index(axis) for axis in range(3)]).flatten()
            by_kind = weight[at], None if bias is None else bias[at]
            yield cut(*by_kind, [d_model] * 3)


def cut(weight: Tensor, bias: Tensor | None, sizes: list[int]) -> list[Projection]:
    """Split a projection by its outputs."""
    biases = [None] * len(sizes) if bias is None else bias.split(sizes)
    return list(zip(weight.split(sizes), biases, strict=True))


def _other(module: nn.Module, *, several: bool) -> list[Projection]:
    """Return the projection besides those with known names, in all readings.

    With ``several``, return all of them, since it could be any.
    """
    known = {*chain.from_iterable(_threes(module) + _pairs(module))}
    found = [
        meant_as(each) for name, each in module.named_children() if name not in known
    ]
    others = [each for each in found if each]
    if not known or (len(others) > 1 and not several):
        return []
    return [*chain.from_iterable(others)]


def _last(module: nn.Module) -> list[Projection]:
    """Return the projection after attention, in each way that it can be read."""
    for name in _LAST:
        child = getattr(module, name, None)
        if isinstance(child, nn.Sequential) and len(child):
            child = child[0]
        if found := _meant_inside(child):
            return found
    for each in _lists(module):
        if len(each) == 4 and all(map(meant_as, each)):
            return meant_as(each[3])
    return []


def _meant_inside(child: object) -> list[Projection]:
    """Return the readings of a child, or of the only module inside it."""
    while not meant_as(child) and isinstance(child, nn.Module):
        child = _wrapped(child)
    return meant_as(child)


def meant_as(child: object) -> list[Projection]:
    """Return a child as a projection, in each way that it can be read."""
    weight, bias = getattr(child, "weight", None), getattr(child, "bias", None)
    if isinstance(child, nn.Linear):
        return [_computed_by(child)]
    if isinstance(child, (nn.Conv1d, nn.Conv2d)):
        # With a kernel of size one, it is a matrix.
        flat = child.weight.flatten(1)
        fits = flat.shape[1] == child.in_channels
        return [(flat, child.bias)] if fits else []
    if type(child).__name__ == "Conv1D" and isinstance(weight, Tensor):
        return [(weight.mT, bias)]  # the transposed layout of GPT-2's weights
    if isinstance(child, nn.Module) and not isinstance(child, nn.Embedding):
        # A matrix, and perhaps a bias, whatever their names are.
        own = sorted(child.parameters(recurse=False), key=torch.numel, reverse=True)
        if len(own) < len([*child.parameters()]) or not (
            len(own) == 2 or (len(own) == 1 and own[0] is weight)
        ):
            return []
        flat = own[1].flatten() if len(own) == 2 else None
        meant = [matrix for matrix, _ in meant_as(own[0])]
        return [(x, flat) for x in meant if flat is None or len(flat) == len(x)]
    if isinstance(child, nn.Parameter) and child.ndim == 2:
        return [(child.mT, None), (child, None)]
    if isinstance(child, nn.Parameter) and child.ndim == 3:
        flat = child.flatten(0, 1), child.flatten(1), child.mT.flatten(0, 1)
        return [(each, None) for one in flat for each in (one, one.mT)]
    return []


def _computed_by(linear: nn.Linear) -> Projection:
    """Return the projection of a linear layer of any kind.

    A subclass may keep its weight transposed, or add a low-rank change to it.
    """
    stored = linear.weight, linear.bias
    if type(linear) is nn.Linear:
        return stored
    x = torch.eye(linear.in_features, dtype=torch.float64)
    x = torch.cat([x, x.new_zeros(1, len(x)), x.new_tensor([range(len(x))])])
    with suppress(RuntimeError, TypeError, ValueError), torch.no_grad():
        copied = copy.deepcopy(linear).double()
        copied.eval()  # in some it returns nothing
        *rows, bias, last = copied(x)
        weight = torch.stack(rows).sub(bias).mT
        if torch.allclose(last, F.linear(x[-1], weight, bias)):
            as_stored = weight.shape == linear.weight.shape and torch.allclose(
                weight, linear.weight.double()
            )
            return stored if as_stored else (weight, bias)
    return stored


def number_of_heads(module: nn.Module) -> int | None:
    """Return the number of heads of a layer, if its attributes tell."""
    # Some layers keep only their config, without copies of its values.
    owners = [module, getattr(module, "config", None), *[*module.modules()][1:]]
    for owner in owners:
        for name in _HEADS:
            value = getattr(owner, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    lists = [each for each in _lists(module) if next(_separate(each[0]), None)]
    if lists:
        return len(lists[0])
    for owner in owners:
        for name, value in vars(owner).items() if owner is not None else ():
            counts = "head" in name and not re.search(_NO_COUNT, name)
            if counts and type(value) is int:
                return value
    head_dim = getattr(module, "head_dim", None)
    queries = next(_separate(module), None)
    if isinstance(head_dim, int) and queries is not None:
        return len(queries[0][0]) // head_dim
    return None
