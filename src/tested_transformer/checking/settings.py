"""Read a layer's settings from its attributes, config, norms and tables of angles."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.forms import FormedAttention, Norm, Norms
from tested_transformer.checking.functions import FunctionModule
from tested_transformer.checking.subject import REFUSALS
from tested_transformer.checking.supplying import Supplied

__all__ = ["BASES", "EPS", "Settings"]

# Rotary bases of published models, the most common first.
BASES = (1e4, 5e5, 1e6, 1e5, 1.6e5, 1e2, 5e6, 1e7, 1e3, 10.0)
_OF_BASES = ("theta", "base")
_OF_WIDTHS = ("rotary_dim", "rotary_ndims", "rope_dim", "rotary_pct")
_OF_TABLES = ("freq", "cos", "sin", "rope", "rot", "theta", "table", "angle", "pos")
EPS = (2.0**-52, 2.0**-23, 1e-6, 1e-5, 1e-8)


class Settings:
    """What tables, attributes and parameters of a layer say about its form.

    Args:
        module: The layer.
        angles: Angles that are computed while it runs.
    """

    def __init__(self, module: nn.Module | None, angles: Sequence[Tensor] = ()) -> None:
        self.module = module
        modules = [] if module is None else [*module.modules()]
        self.names = {
            name
            for each in modules
            for name, value in (*vars(each).items(), *each.named_children())
            if value is not None
        }
        self.numbers = [*_numbers(module)] if module is not None else []
        found = [*_tables(module)] if module is not None else []
        self.tables = [name for name, _, _ in found]
        found += [("", *of) for of in map(_turns_in, angles) if of is not None]
        self.table_widths = [width for _, _, width in found]
        self.said_bases = [
            value
            for name, value in self.numbers
            if value > 1 and any(each in name.lower() for each in _OF_BASES)
        ]
        self.bases = [*dict.fromkeys([*(x for _, x, _ in found), *self.said_bases])]

    def said_widths(self, head_dim: int) -> list[int]:
        """Return the stated numbers of features of a head that are rotated."""
        said = [
            round(value * head_dim) if value <= 1 else round(value)
            for name, value in self.numbers
            if any(each in name for each in _OF_WIDTHS) or "partial" in name
        ]
        fitting = [x for x in said if 2 <= x <= head_dim and x % 2 == 0]
        return [*dict.fromkeys(fitting)]

    def widths(self, head_dim: int) -> list[int]:
        """Return the possible numbers of features of a head that are rotated."""
        said = self.said_widths(head_dim)
        tried = [*said, *self.table_widths, head_dim, head_dim // 2, head_dim // 4]
        fitting = [x for x in tried if 2 <= x <= head_dim and x % 2 == 0]
        return [*dict.fromkeys(fitting)]

    @property
    def cap(self) -> float | None:
        """The limit of a soft cap on scores, if stated."""
        return self._said("softcap", "soft_cap", "logit_cap")

    @property
    def scale(self) -> float | None:
        """The factor of the scores, if another one than usual is stated."""
        modules = [] if self.module is None else self.module.modules()
        if any("relative_attention" in name for name in self.names) or any(
            "T5" in type(each).__name__ for each in modules
        ):
            return 1.0  # T5 starts with smaller weights instead
        scalar = self._said("query_pre_attn_scalar", "attention_scores_scalar")
        return self._said("attention_multiplier") if scalar is None else scalar**-0.5

    def _said(self, *names: str) -> float | None:
        found = [(n, v) for n, v in self.numbers if any(each in n for each in names)]
        # Gemma 2 has another cap, for its logits, with "final" in its name.
        found.sort(key=lambda each: "final" in each[0])
        return next((value for _, value in found if value > 0), None)

    def says_window(self, window: int) -> bool:
        """Return whether the window is stated, with or without the query itself."""
        return any(
            value in (window, window - 1)
            for name, value in self.numbers
            if any(each in name for each in ("window", "local", "context", "span"))
        )

    def outer_norms(self, width: int) -> list[Norm]:
        """Return its norms of features, as opposed to norms of queries or keys."""
        modules = [] if self.module is None else [*self.module.modules()]
        found = [
            _group_norm_of(each) or _norm_of(each, width, True)
            for each in modules
            if not [*each.children()] and any(True for _ in each.parameters())
        ]
        return [each for each in found if each is not None]

    def norms(self, layer: FormedAttention) -> Iterator[Norms]:
        """Yield its candidates for the norms of queries and keys."""
        if self.module is None:
            return
        widths = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
        modules = {
            name.rpartition(".")[2].lower(): each
            for name, each in self.module.named_modules()
            if not [*each.children()]
        }
        found: list[list[Norm]] = [[], []]
        for which, letters in enumerate(
            ({"q", "query", "queries"}, {"k", "key", "keys"})
        ):
            named = {
                each: module
                for each, module in modules.items()
                if _words(each) & letters and _words(each) & {"norm", "ln"}
            }
            # A norm without such a word in its name can be for both.
            for module in (named or modules).values():
                for by_head in (True, False):
                    width = layer.head_dim if by_head else widths[which]
                    if norm := _norm_of(module, width, by_head):
                        found[which].append(norm)
        if any(found):
            queries, keys = ([*each] or [None] for each in found)
            yield from product(queries, keys)


def _words(name: str) -> set[str]:
    return {*name.replace("norm", "_norm_").split("_")}


def _group_norm_of(module: nn.Module) -> Norm | None:
    """Return the norm over groups of features and all tokens that a module computes."""
    if not isinstance(module, nn.GroupNorm) or module.weight is None:
        return None
    weight, bias = (each.detach() for each in (module.weight, module.bias))
    return Norm(
        kind="group", eps=module.eps, weight=weight, bias=bias, groups=module.num_groups
    )


def _norm_of(module: nn.Module, width: int, by_head: bool) -> Norm | None:
    """Return the norm that a module computes for features of a width, if any."""
    generator = torch.Generator().manual_seed(17)
    x = torch.randn(3, width, generator=generator, dtype=torch.float64)
    vectors = [each for each in module.parameters() if each.shape == (width,)]
    if len(vectors) != len([*module.parameters()]) or len(vectors) > 2:
        return None
    module = copy.deepcopy(module).double()
    vectors = [*module.parameters()]
    try:
        with torch.no_grad():
            got = module(x)
    except (*REFUSALS, ValueError):  # it is no norm, and may refuse features
        return None
    weight = vectors[0].detach() if vectors else None
    bias = vectors[1].detach() if len(vectors) > 1 else None
    said = [value for name, value in _numbers(module) if "eps" in name]
    weights = [weight] if weight is None else [weight, 1 + weight]
    found: list[tuple[float, Norm]] = []
    for kind, eps, each in product(("rms", "layer"), (*said, *EPS), weights):
        norm = Norm(kind=kind, eps=eps, weight=each, bias=bias)
        right = norm(x[:, None, None])[:, 0, 0]  # as one head
        if isinstance(got, Tensor) and got.shape == right.shape:
            gap = float((got - right).abs().max())
            found.append((gap, replace(norm, by_head=by_head)))
    gap, norm = min(found, key=lambda each: each[0], default=(1.0, None))
    return norm if gap < 1e-5 else None


def _numbers(module: nn.Module) -> Iterator[tuple[str, float]]:
    """Yield the numbers among the attributes of modules and their configs."""
    for each in module.modules():
        yield from _numbers_in(vars(each))


def _numbers_in(values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, float(value)
        elif "rope" in name and isinstance(value, Mapping):
            yield from _numbers_in(value)
        elif name in ("config", "cfg", "args", "params") and hasattr(value, "__dict__"):
            yield from _numbers_in(vars(value))
        elif name in ("config", "cfg", "args", "params") and isinstance(value, Mapping):
            yield from _numbers_in(value)


def _tables(module: nn.Module) -> Iterator[tuple[str, float, int]]:
    """Yield the name, the base and the number of features of each table of angles."""
    for each in module.modules():
        if isinstance(each, Supplied):
            for name in each.positions:
                yield name, BASES[0], each.width
    tensors = dict(module.named_buffers())
    for each in module.modules():
        for name, value in vars(each).items():
            if isinstance(value, Tensor):
                tensors[name] = value
    if isinstance(module, FunctionModule):
        tensors |= module.tensors
    for name, table in tensors.items():
        last = name.rpartition(".")[2].lower()
        if any(each in last for each in _OF_TABLES):
            turns = _turns_in(table.detach())
            if turns is not None:
                yield name, *turns


def _turns_in(table: Tensor) -> tuple[float, int] | None:
    """Return the base and the number of features of a table of angles, if it is one."""
    rates = _rates_in(table)
    if rates is None:
        return None
    base = (float(rates[0] / rates[1])) ** len(rates)
    # Round it to the number that was written in the code.
    return float(f"{base:.5g}"), 2 * len(rates)


def _rates_in(table: Tensor) -> Tensor | None:
    """Return the angle by which each pair rotates in a step, if a table holds it."""
    if table.is_complex():
        table = torch.view_as_real(table)
    table = table.double()
    shape = [each for each in table.shape if each != 1]
    table = table.reshape(shape)
    found: list[Tensor] = [table] if table.ndim == 1 else []
    if table.ndim == 3 and table.shape[-1] == 2:
        found.append(torch.atan2(table[1, :, 1], table[1, :, 0]))
    if table.ndim == 2 and len(table) > 1:
        found += [table[1] - table[0], table[1].clamp(-1, 1).acos(), table[1].asin()]
    for rates in found:
        half = len(rates) // 2
        for each in (rates, rates[:half], rates[0::2]):
            if len(each) < 2 or not each.isfinite().all():
                continue
            steps = torch.arange(len(each), dtype=torch.float64) / len(each)
            ratio = each[0] / each[1]
            if (
                (each[0] - 1).abs() < 1e-4
                and ratio > 1 + 1e-6
                and torch.allclose(each, (ratio ** len(each)) ** -steps, rtol=1e-3)
            ):
                return each
    return None
