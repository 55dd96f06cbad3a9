"""Which form a layer has: positions, norms, a window, found by trying.

What is tried is read off the layer: its tables of angles, its settings, its norms, and
whether the order of what it reads matters. A form counts if attention in the open that
has it gives the layer's outputs.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.checks import (
    LENGTH,
    close,
    permutation,
    sample,
)
from tested_transformer.checking.forms import (
    Form,
    FormedAttention,
    Norm,
    Norms,
    Rotary,
    alibi_slopes_of,
)
from tested_transformer.checking.functions import FunctionModule
from tested_transformer.checking.reading import reads
from tested_transformer.checking.subject import Subject
from tested_transformer.positions import PAIRINGS

__all__ = ["Recognizer", "doubts_about"]

# Bases of published models, the commonest first.
_BASES = (1e4, 5e5, 1e6, 1e5, 1.6e5, 1e2, 5e6, 1e7, 1e3, 10.0)
_OF_BASES = ("theta", "base")
_OF_WIDTHS = ("rotary_dim", "rotary_ndims", "rope_dim", "rotary_pct")
_OF_TABLES = ("freq", "cos", "sin", "rope", "rot", "theta", "table", "angle", "pos")
# How far apart answers may be that differ in what a norm adds before it divides.
_ROUGHLY = 1e-3
_REFUSALS = RuntimeError, TypeError, IndexError, AttributeError
_EPS = (2.0**-52, 2.0**-23, 1e-6, 1e-5, 1e-8)


class Recognizer:
    """Tries which form of attention, with given projections, a subject has.

    Args:
        subject: What is to be explained.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject.without_dropout()
        self.settings = _Settings(subject.module)
        self.x = sample(self.subject).double()
        # Of the forms, those that matter if the order of what is read does.
        asked = replace(self.subject, guessed=())
        self.order_matters = permutation(asked) is not None
        self.window = _window(self.subject)
        ways = (True,) * subject.causal + (False,) * subject.unmasked
        self.answers = {way: self._run(self.x, way) for way in ways}
        self.alone = self._run(self.x[:, :1], ways[0])

    def _run(self, x: Tensor, causal: bool) -> Tensor:
        return self.subject.run(x.to(self.subject.dtype), causal=causal).detach()

    @torch.no_grad()
    def passes_values(self, layer: FormedAttention) -> bool:
        """Return whether a token alone gets its value, whatever the scores are."""
        layer.eval().take(Form())
        try:
            return bool(close(self.subject, self.alone, layer(self.x[:, :1])))
        except (RuntimeError, ValueError):  # of other shapes
            return False

    def explains(self, layer: FormedAttention) -> bool:
        """Give a layer the form that explains the subject; return whether one does."""
        if self.passes_values(layer):
            for form in self._forms(layer):
                layer.take(form)
                if self._alike(layer, form.slack):
                    return True
        layer.take(Form())
        return False

    @torch.no_grad()
    def _gap(self, layer: FormedAttention, form: Form) -> float:
        layer.take(form)
        causal, answer = next(iter(self.answers.items()))
        return float((layer(self.x, causal=causal) - answer).abs().max())

    @torch.no_grad()
    def _alike(self, layer: FormedAttention, slack: float) -> bool:
        return all(
            close(self.subject, answer, layer(self.x, causal=causal), slack)
            for causal, answer in self.answers.items()
        )

    def likely(self, layer: FormedAttention) -> list[Form]:
        """Return the forms that a layer with a bug was probably meant to have."""
        settings = self.settings
        found = next(settings.norms(layer), None)
        # If one of the two is missing, it was probably meant to be like the other.
        norms: Norms | None = None
        if found is not None:
            norms = found[0] or found[1], found[1] or found[0]
        orders = (True, False) if norms else (True,)
        # Queries that are turned and keys that are not leave no trace of an order.
        bases, widths = settings.bases or _BASES[:1], settings.widths(layer.head_dim)
        positions: list[dict[str, Any]] = [{}]
        positions += [
            {"rotary": Rotary(pairing=pairing, base=base, width=width)}
            for pairing, base, width in product(PAIRINGS, bases, widths[:1])
        ]
        if self.order_matters:
            positions += [
                {"slopes": each, "symmetric": self.subject.opens}
                for each in alibi_slopes_of(layer.num_heads)
            ]
        return [
            Form(**each, **self._rest, norms=norms, norms_first=first)
            for first, each in product(orders, positions)
        ]

    @property
    def _rest(self) -> dict[str, Any]:
        settings = self.settings
        return {"window": self.window, "cap": settings.cap, "scale": settings.scale}

    def _positions(self, layer: FormedAttention) -> Iterator[dict[str, Any]]:
        yield {}
        if not self.order_matters:
            return
        settings = self.settings
        widths = settings.widths(layer.head_dim)
        bases = [*dict.fromkeys([*settings.bases, *_BASES])]
        for back, width, base, pairing in product(
            (False, True), widths, bases, PAIRINGS
        ):
            turned = Rotary(pairing=pairing, base=base, width=width, backwards=back)
            yield {"rotary": turned}
        for slopes in alibi_slopes_of(layer.num_heads):
            for symmetric in (False, True)[: 1 + self.subject.unmasked]:
                yield {"slopes": slopes, "symmetric": symmetric}

    def _forms(self, layer: FormedAttention) -> Iterator[Form]:
        """Yield what could be the form of a layer, the likeliest first."""
        positions = [*self._positions(layer)]
        found = [*self.settings.norms(layer)]
        norms = [each for each in found if all(each)]
        for norm, first, each in product(norms, (True, False), positions):
            yield Form(**each, **self._rest, norms=norm, norms_first=first)
        for each in positions:
            yield Form(**each, **self._rest)
        if norms:
            return
        # Norms without parameters: which one, is found roughly, and then exactly.
        for kind, by_head, first in product(
            ("rms", "layer"), (True, False), (True, False)
        ):
            if kind == "rms" and not first:
                continue  # turning changes no length
            for each in positions:
                norm = Norm(kind=kind, eps=_EPS[0], by_head=by_head)
                form = Form(**each, **self._rest, norms=(norm, norm), norms_first=first)
                layer.take(form)
                if not self._alike(layer, _ROUGHLY):
                    continue
                norms = [(replace(norm, eps=eps),) * 2 for eps in _EPS]
                forms = [replace(form, norms=each) for each in norms]
                yield min(forms, key=lambda each: self._gap(layer, each))


def _window(subject: Subject) -> int | None:
    """Return how many tokens are read at most, if that is fewer than there are."""
    if not subject.causal:
        return None
    found = reads(subject)
    for window in range(2, LENGTH):
        if torch.equal(found.tril(), torch.ones_like(found).tril().triu(1 - window)):
            return window
    return None


def doubts_about(subject: Subject, form: Form) -> Iterator[str]:
    """Yield what is odd about a form that explains a layer, and may be meant so."""
    settings = _Settings(subject.module)
    if form.rotary is not None:
        if form.rotary.backwards:
            yield (
                "it turns queries and keys the other way than most: right if it was "
                "trained so, wrong with the weights of others"
            )
        if form.rotary.base not in {*_BASES, *settings.said_bases}:
            yield f"its angles have the base {form.rotary.base:g}, which nothing says"
    elif settings.tables and form.slopes is None:
        yield f"it has {settings.tables[0]}, and attends without positions"
    if form.window is not None and not settings.says_window(form.window):
        yield (
            f"it reads the last {form.window} tokens only, and no attribute of it "
            "says so"
        )


class _Settings:
    """What a layer says about its form, in tables, attributes and parameters."""

    def __init__(self, module: nn.Module | None) -> None:
        self.module = module
        self.numbers = [*_numbers(module)] if module is not None else []
        found = [*_tables(module)] if module is not None else []
        self.tables = [name for name, _, _ in found]
        self.table_widths = [width for _, _, width in found]
        self.said_bases = [
            value
            for name, value in self.numbers
            if value > 1 and any(each in name.lower() for each in _OF_BASES)
        ]
        self.bases = [*dict.fromkeys([*(x for _, x, _ in found), *self.said_bases])]

    def widths(self, head_dim: int) -> list[int]:
        """Return how many features could be turned of a head."""
        said = [
            round(value * head_dim) if value <= 1 else round(value)
            for name, value in self.numbers
            if any(each in name for each in _OF_WIDTHS) or "partial" in name
        ]
        tried = [*said, *self.table_widths, head_dim, head_dim // 2, head_dim // 4]
        fitting = [x for x in tried if 2 <= x <= head_dim and x % 2 == 0]
        return [*dict.fromkeys(fitting)]

    @property
    def cap(self) -> float | None:
        """What its scores are softly kept below, if it says so."""
        return self._said("softcap", "logit_cap", "logits_soft_cap")

    @property
    def scale(self) -> float | None:
        """What its scores are multiplied by, if that is no root of a width."""
        scalar = self._said("query_pre_attn_scalar")
        return self._said("attention_multiplier") if scalar is None else scalar**-0.5

    def _said(self, *names: str) -> float | None:
        found = (v for n, v in self.numbers if any(each in n for each in names))
        return next((each for each in found if each > 0), None)

    def says_window(self, window: int) -> bool:
        """Return whether it says how many tokens it reads, itself included or not."""
        return any(
            value in (window, window - 1)
            for name, value in self.numbers
            if any(each in name for each in ("window", "local", "context", "span"))
        )

    def norms(self, layer: FormedAttention) -> Iterator[Norms]:
        """Yield the norms of queries and keys, if it has modules for them."""
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
            # One without a letter is for both.
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


def _norm_of(module: nn.Module, width: int, by_head: bool) -> Norm | None:
    """Return the norm that a module computes for features of a width, if one."""
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
    except _REFUSALS:
        return None
    weight = vectors[0].detach() if vectors else None
    bias = vectors[1].detach() if len(vectors) > 1 else None
    said = [value for name, value in _numbers(module) if "eps" in name]
    weights = [weight] if weight is None else [weight, 1 + weight]
    found: list[tuple[float, Norm]] = []
    for kind, eps, each in product(("rms", "layer"), (*said, *_EPS), weights):
        norm = Norm(kind=kind, eps=eps, weight=each, bias=bias)
        right = norm(x[:, None, None])[:, 0, 0]  # as one head
        if isinstance(got, Tensor) and got.shape == right.shape:
            gap = float((got - right).abs().max())
            found.append((gap, replace(norm, by_head=by_head)))
    gap, norm = min(found, key=lambda each: each[0], default=(1.0, None))
    return norm if gap < 1e-5 else None


def _numbers(module: nn.Module) -> Iterator[tuple[str, float]]:
    """Yield the numbers among the attributes of modules and their settings."""
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
    """Yield tables of angles: the name, the base, and for how many features it is."""
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
            rates = _rates_in(table.detach())
            if rates is not None:
                base = (float(rates[0] / rates[1])) ** len(rates)
                # As it was written, and not as it was rounded.
                yield name, float(f"{base:.5g}"), 2 * len(rates)


def _rates_in(table: Tensor) -> Tensor | None:
    """Return how far each pair turns in a step, if a table says so."""
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
