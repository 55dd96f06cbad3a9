"""Bugs by rule: common mistakes in attention, as small rewrites of its source.

A rule looks at one place of the source, and returns what to put there instead, or
``None``. It lists the exhibits that name the bug rightly.
"""

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["RULES", "Place", "Rule", "rewritten"]

_SCALE = re.compile(r"sqrt|\*\* ?\(?-?0\.5|scal(e|ing)|temperature|norm_factor|_temp\b")
_PRODUCT = re.compile(r"@|matmul|einsum|bmm|softmax|dot_product|rearrange|masked_fill")
_LAST = re.compile(
    r"(c_proj|proj|out_proj|o_proj|[wW]_?[oO]|to_out|out|output_linear|w_concat|fc|"
    r"linear|out_lin|final_projection|linear_out|conv_o|proj_out|out_projection|"
    r"out_projection_net|dense|fc_out|output|o|linear_o|proj_o|out_linear|fc_o|"
    r"last_linear|o_linear|unifyheads|combine_heads|projection|to_o)$"
)
_MASK = re.compile(r"mask|\bbias\b|attn_bias|additive_matrix")
_QUERY_OR_KEY = re.compile(r"(x?[qk]|queries|keys|quer?y|key)(_\w+)?$")
_ROTARY = re.compile(r"rot|rope", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """A node of a class or function, with its surroundings.

    Args:
        node: The node to which a rule may apply.
        function: The function that contains it.
        part: The class or function that was taken from a file.
    """

    node: ast.AST
    function: ast.AST
    part: ast.stmt

    @property
    def in_init(self) -> bool:
        """Whether the node is in ``__init__``."""
        return getattr(self.function, "name", "") == "__init__"

    @property
    def after_softmax(self) -> bool:
        """Whether its function calls softmax or attention before it."""
        line = getattr(self.node, "lineno", 0)
        calls = [each for each in ast.walk(self.function) if _is_attention(each)]
        return any(each.lineno < line for each in calls if isinstance(each, ast.expr))


@dataclass(frozen=True)
class Rule:
    """A bug that can be put into many sources.

    Args:
        name: The name of the bug.
        exhibits: The exhibits that name it rightly.
        change: Returns the node to put in a place instead, or ``None``.
        mistake: What is wrong, in a sentence.
    """

    name: str
    exhibits: tuple[str, ...]
    change: Callable[[Place], ast.AST | None]
    mistake: str


RULES: dict[str, Rule] = {}

_Change = Callable[[Place], ast.AST | None]


def _rule(*exhibits: str) -> Callable[[_Change], _Change]:
    def listed(change: _Change) -> _Change:
        name = change.__name__.strip("_").replace("_", "-")
        mistake = (change.__doc__ or "").strip()
        RULES[name] = Rule(name, exhibits, change, mistake)
        return change

    return listed


def rewritten(rule: Rule, part: ast.stmt) -> Iterator[ast.stmt]:
    """Yield copies of a class or function, each with the bug in another place."""
    for at, (node, function) in enumerate(_nodes(part)):
        new = rule.change(Place(node, function, part))
        if new is None:
            continue
        if node is part:
            assert isinstance(new, ast.stmt)
            yield ast.fix_missing_locations(new)
            continue
        whole = copy.deepcopy(part)
        old = _nodes(whole)[at][0]
        yield ast.fix_missing_locations(_Exchange(old, copy.deepcopy(new)).visit(whole))


def _nodes(part: ast.stmt) -> list[tuple[ast.AST, ast.AST]]:
    """Return all nodes, each with the function that contains it."""
    found: list[tuple[ast.AST, ast.AST]] = []

    def walk(node: ast.AST, function: ast.AST) -> None:
        found.append((node, function))
        inside = node if isinstance(node, ast.FunctionDef) else function
        for each in ast.iter_child_nodes(node):
            walk(each, inside)

    walk(part, part)
    return found


class _Exchange(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


class _Fill(ast.NodeTransformer):
    def __init__(self, parts: dict[str, ast.AST]) -> None:
        self.parts = parts

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copy.deepcopy(self.parts.get(node.id, node))


def _filled(template: str, **parts: ast.AST) -> ast.expr:
    """Return a template with some of its names replaced by expressions."""
    return _Fill(parts).visit(ast.parse(template, mode="eval").body)


def _name(name: str) -> ast.Name:
    return ast.Name(id=name, ctx=ast.Load())


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _called(node: ast.AST) -> str:
    """Return the last name of the called function: ``softmax`` for ``F.softmax(x)``."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _is_softmax(node: ast.AST) -> bool:
    by_layer = isinstance(node, ast.Call) and _called(node.func) == "Softmax"
    return _called(node) == "softmax" or by_layer


def _is_fused(node: ast.AST) -> bool:
    return _called(node) in ("scaled_dot_product_attention", "slow_attn")


def _is_attention(node: ast.AST) -> bool:
    inner = re.search("att(n|end|ention)", _called(node))
    return _is_softmax(node) or _is_fused(node) or inner is not None


def _is_library(node: ast.AST) -> bool:
    """Return whether an expression is a library or ``self``."""
    return _text(node) in ("F", "torch", "th", "nn.functional", "self") or _text(
        node
    ).endswith("nn.functional")


def _input(call: ast.Call) -> ast.expr | None:
    """Return the first argument, or the object of a method: x of ``x.softmax()``."""
    if isinstance(call.func, ast.Attribute) and not _is_library(call.func.value):
        return call.func.value
    return call.args[0] if call.args else None


def _is_scale(node: ast.AST) -> bool:
    text = _text(node)
    return bool(_SCALE.search(text)) and not _PRODUCT.search(text) and len(text) < 70


def _with_keyword(call: ast.Call, name: str, value: ast.expr) -> ast.Call:
    """Return a call with one keyword argument changed or added."""
    others = [each for each in call.keywords if each.arg != name]
    new = ast.keyword(arg=name, value=value)
    return ast.Call(func=call.func, args=call.args, keywords=[*others, new])


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


# The scale.


@_rule("no-scale")
def _scale_dropped(place: Place) -> ast.AST | None:
    """The scores are not scaled."""
    return _rescaled(place, lambda left, right, operator: left, "1.0")


@_rule("scale-upside-down")
def _scale_inverted(place: Place) -> ast.AST | None:
    """The scores are multiplied by what they should be divided by."""

    def turned(left: ast.expr, right: ast.expr, operator: ast.operator) -> ast.expr:
        other = ast.Mult() if isinstance(operator, ast.Div) else ast.Div()
        return ast.BinOp(left=left, op=other, right=right)

    return _rescaled(place, turned, "Q.size(-1) ** 0.5")


@_rule("scaled-twice")
def _scale_twice(place: Place) -> ast.AST | None:
    """The scores are divided by the head's width, and not by its root."""

    def again(left: ast.expr, right: ast.expr, operator: ast.operator) -> ast.expr:
        once = ast.BinOp(left=left, op=operator, right=right)
        return ast.BinOp(left=once, op=operator, right=right)

    return _rescaled(place, again, "1 / Q.size(-1)")


def _rescaled(
    place: Place,
    change: Callable[[ast.expr, ast.expr, ast.operator], ast.expr],
    fused: str,
) -> ast.AST | None:
    """Return a product, or a call of PyTorch's function, with another scale."""
    node = place.node
    if isinstance(node, ast.Call) and _is_fused(node):
        if _keyword(node, "scale") is not None:
            return None
        q = node.args[0] if node.args else _keyword(node, "query")
        return None if q is None else _with_keyword(node, "scale", _filled(fused, Q=q))
    if place.in_init or _ROTARY.search(getattr(place.function, "name", "")):
        return None
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div):
        if not _is_scale(node.value):
            return None
        left = ast.Name(id=_text(node.target), ctx=ast.Load())
        return ast.Assign(
            targets=[node.target], value=change(left, node.value, node.op)
        )
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult | ast.Div):
        return None
    left, right = node.left, node.right
    if isinstance(node.op, ast.Mult) and _is_scale(left) and not _is_scale(right):
        left, right = right, left
    if not _is_scale(right) or _is_scale(left) or isinstance(left, ast.Constant):
        return None
    return change(left, right, node.op)


@_rule("scaled-by-width")
def _scaled_by_width(place: Place) -> ast.AST | None:
    """The scores are divided by the root of the model's width, not of the head's."""
    node = place.node
    if isinstance(node, ast.Call) and _is_fused(node):
        q = node.args[0] if node.args else _keyword(node, "query")
        scale = "(Q.size(1) * Q.size(-1)) ** -0.5"
        return None if q is None else _with_keyword(node, "scale", _filled(scale, Q=q))
    if isinstance(node, ast.Call) and "sqrt" in _called(node) and node.args:
        width = node.args[0]
    elif (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Pow)
        and _text(node.right) in ("-0.5", "0.5")
    ):
        width = node.left
    else:
        return None
    if found := re.fullmatch(r"(\w+)\.(size\(-1\)|shape\[-1\])", _text(width)):
        wide = _filled("X.size(1) * X.size(-1)", X=_name(found[1]))
    elif "head" in _text(width) or "d_k" in _text(width):
        arguments = (
            place.function.args.args
            if place.in_init and isinstance(place.function, ast.FunctionDef)
            else []
        )
        names = [each.arg for each in arguments]
        wanted = (
            r"dim|embed_dim|d_model|embedding_dim|model_dimension|n_embd|dims|channels"
        )
        known = [each for each in names if re.fullmatch(wanted, each)]
        if not known:
            return None
        wide = ast.Name(id=known[0], ctx=ast.Load())
    else:
        return None
    if isinstance(node, ast.BinOp):
        return ast.BinOp(left=wide, op=node.op, right=node.right)
    return ast.Call(func=node.func, args=[wide], keywords=[])


# The mask.


def _fill_of(node: ast.AST) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """Return the scores, the mask and the value of a ``masked_fill`` or ``where``."""
    if not isinstance(node, ast.Call) or _called(node) not in (
        "masked_fill",
        "masked_fill_",
        "where",
    ):
        return None
    if _called(node) == "where":
        if len(node.args) != 3 or "mask" not in _text(node.args[0]):
            return None
        where = _filled("~(M)", M=node.args[0])
        return node.args[1], where, node.args[2]
    values = [*node.args, *[each.value for each in node.keywords]]
    if not isinstance(node.func, ast.Attribute) or len(values) != 2:
        return None
    return node.func.value, values[0], values[1]


def _filled_otherwise(place: Place, template: str) -> ast.AST | None:
    """Return an expression of scores S, forbidden places M and fill V in its place."""
    found = _fill_of(place.node)
    if found is None or place.in_init:
        return None
    scores, where, value = found
    new = _filled(template, S=scores, M=where, V=value)
    if _called(place.node) != "masked_fill_":
        return new
    # masked_fill_ changes the scores in place, and so must its replacement.
    return _filled("S.copy_(N)", S=scores, N=new)


@_rule("inverted-mask")
def _mask_inverted(place: Place) -> ast.AST | None:
    """The mask is inverted."""
    if new := _filled_otherwise(place, "S.masked_fill(~(M).bool(), V)"):
        return new
    node = place.node
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and _text(node.left) in ("1", "1.0")
        and "mask" in _text(node.right)
    ):
        return node.right
    if isinstance(node, ast.Call) and _is_fused(node):
        mask = _keyword(node, "attn_mask")
        if mask is None or _text(mask) == "None":
            return None
        turned = "~(M) if M is not None and M.dtype == torch.bool else M"
        return _with_keyword(node, "attn_mask", _filled(turned, M=mask))
    return None


@_rule("inverted-mask")
def _triangle_inverted(place: Place) -> ast.AST | None:
    """The other triangle is kept."""
    node, other = place.node, {"tril": "triu", "triu": "tril"}
    name = _called(node)
    if not isinstance(node, ast.Call) or name.rstrip("_") not in other:
        return None
    tail = "_" if name.endswith("_") else ""
    func = copy.deepcopy(node.func)
    assert isinstance(func, ast.Attribute)
    func.attr = other[name.rstrip("_")] + tail
    return ast.Call(func=func, args=node.args, keywords=node.keywords)


@_rule("no-causal-mask", "padding-ignored")
def _mask_dropped(place: Place) -> ast.AST | None:
    """The mask is not applied."""
    if (found := _fill_of(place.node)) and not place.in_init:
        return found[0]
    node = place.node
    if isinstance(node, ast.Call) and _is_fused(node):
        mask = _keyword(node, "attn_mask")
        if mask is None or _text(mask) == "None":
            return None
        return _with_keyword(node, "attn_mask", ast.Constant(value=None))
    if place.in_init:
        return None
    if not isinstance(getattr(node, "op", None), ast.Add | ast.Sub):
        return None
    if isinstance(node, ast.BinOp) and _MASK.search(_text(node.right)):
        return node.left
    if isinstance(node, ast.AugAssign) and re.search("mask|-inf", _text(node.value)):
        return ast.Pass()
    return None


@_rule("one-too-far")
def _diagonal_too_far(place: Place) -> ast.AST | None:
    """The mask ends one diagonal too late, so each token sees the next."""
    return _diagonal(place, 1)


@_rule("without-itself")
def _diagonal_too_early(place: Place) -> ast.AST | None:
    """The mask ends one diagonal too early, so no token sees itself."""
    return _diagonal(place, -1)


def _diagonal(place: Place, step: int) -> ast.AST | None:
    node = place.node
    if not isinstance(node, ast.Call) or _called(node).rstrip("_") not in (
        "tril",
        "triu",
    ):
        return None
    assert isinstance(node.func, ast.Attribute)
    first = int(_is_library(node.func.value))
    given = _keyword(node, "diagonal") or (
        node.args[first] if len(node.args) > first else ast.Constant(value=0)
    )
    moved = _filled(f"(D) + {step}", D=given)
    whole = ast.Call(func=node.func, args=node.args[:first], keywords=node.keywords)
    return _with_keyword(whole, "diagonal", moved)


@_rule("tiny-fill")
def _fill_tiny(place: Place) -> ast.AST | None:
    """Forbidden scores are filled with 1e-9."""
    return _filled_otherwise(place, "S.masked_fill(M, 1e-9)")


@_rule("minus-five")
def _fill_small(place: Place) -> ast.AST | None:
    """Forbidden scores are filled with -5."""
    return _filled_otherwise(place, "S.masked_fill(M, -5.0)")


@_rule()
def _added_small(place: Place) -> ast.AST | None:
    """What is added to forbidden scores is small."""
    node = place.node
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        inside = getattr(place.function, "name", "") not in ("__init__",)
        return ast.Constant(value=2.0) if inside and node.value >= 1e3 else None
    if _text(node) in ("float('-inf')", "-float('inf')", "-torch.inf") and isinstance(
        node, ast.expr
    ):
        full = [
            each
            for each in ast.walk(place.function)
            if _called(each) in ("full", "new_full") and "-inf" in _text(each)
        ]
        if any(node in ast.walk(each) for each in full):
            return ast.Constant(value=-2.0)
    return None


@_rule("scores-times-mask")
def _scores_times_mask(place: Place) -> ast.AST | None:
    """Forbidden scores are multiplied by 0."""
    return _filled_otherwise(place, "S * (~(M).bool())")


@_rule("added-ones")
def _ones_added(place: Place) -> ast.AST | None:
    """A mask of ones and zeros is added."""
    return _filled_otherwise(place, "S + (~(M).bool())")


@_rule("mask-after-softmax")
def _mask_after_softmax(place: Place) -> ast.AST | None:
    """The mask comes after the softmax."""
    node = place.node
    if not isinstance(node, ast.FunctionDef) or (node is place.part and not node.body):
        return None
    fills = [each for each in ast.walk(node) if _fill_of(each)]
    softmaxes = [each for each in ast.walk(node) if _is_softmax(each)]
    if len(fills) != 1 or len(softmaxes) != 1:
        return None
    found = _fill_of(fills[0])
    assert found is not None
    guards = [
        each.test
        for each in ast.walk(node)
        if isinstance(each, ast.If) and fills[0] in ast.walk(each)
    ]
    masked = _filled("(W).masked_fill(M, 0.0)", W=softmaxes[0], M=found[1])
    if guards:
        masked = _filled("X if T else W", X=masked, T=guards[0], W=softmaxes[0])
    old = [fills[0], softmaxes[0]]
    new = [found[0], masked]
    nodes = [[*ast.walk(node)].index(each) for each in old]
    whole = copy.deepcopy(node)
    targets = [[*ast.walk(whole)][at] for at in nodes]
    for target, instead in zip(targets, new, strict=True):
        whole = _Exchange(target, copy.deepcopy(instead)).visit(whole)
    return whole


@_rule("only-while-training")
def _mask_while_training(place: Place) -> ast.AST | None:
    """The mask is applied while training only."""
    arguments = getattr(getattr(place.function, "args", None), "args", [])
    if not arguments or arguments[0].arg != "self" or place.in_init:
        return None
    if new := _filled_otherwise(place, "S.masked_fill(M, V) if self.training else S"):
        return new
    node = place.node
    if isinstance(node, ast.Call) and _is_fused(node):
        flag = _keyword(node, "is_causal")
        if flag is not None and _text(flag) == "True":
            training = ast.parse("self.training", mode="eval").body
            return _with_keyword(node, "is_causal", training)
    return None


@_rule("no-causal-mask")
def _not_causal(place: Place) -> ast.AST | None:
    """A flag that should be set is not."""
    return _flag(place, "True", value=False)


@_rule()
def _causal(place: Place) -> ast.AST | None:
    """A flag is set that should not be."""
    return _flag(place, "False", value=True)


def _flag(place: Place, said: str, *, value: bool) -> ast.AST | None:
    node = place.node
    if not isinstance(node, ast.Call) or _called(node) == "super":
        return None
    for name in ("is_causal", "causal"):
        flag = _keyword(node, name)
        if flag is not None and _text(flag) == said:
            return _with_keyword(node, name, ast.Constant(value=value))
    if _is_fused(node) and said == "False" and _keyword(node, "is_causal") is None:
        mask = _keyword(node, "attn_mask")
        if len(node.args) == 3 and (mask is None or _text(mask) == "None"):
            return _with_keyword(node, "is_causal", ast.Constant(value=value))
    return None


@_rule("inverted-mask", "padding-on-the-wrong-axis")
def _mask_transposed(place: Place) -> ast.AST | None:
    """Queries and keys are exchanged in the mask."""
    return _filled_otherwise(place, "S.masked_fill((M).transpose(-2, -1), V)")


@_rule("padding-on-the-wrong-axis")
def _padding_on_queries(place: Place) -> ast.AST | None:
    """Padding is hidden as a query instead of as a key."""
    node = place.node
    if not isinstance(node, ast.Subscript) or "mask" not in _text(node.value):
        return None
    if _text(node.slice) in ("(slice(None, None, None), None, None, slice(None))",):
        return None
    if _text(node).endswith("[:, None, None, :]") or _text(node).endswith(
        "[:, None, None]"
    ):
        return _filled("M[:, None, :, None]", M=node.value)
    return None


# The softmax.


def _another_axis(place: Place, axis: Callable[[int], int]) -> ast.AST | None:
    node = place.node
    if not isinstance(node, ast.Call):
        return None
    if _called(node) not in ("softmax", "Softmax"):
        return None
    place_of = len(node.args) - 1
    method = isinstance(node.func, ast.Attribute) and not _is_library(node.func.value)
    first = 0 if method or _called(node) == "Softmax" else 1
    given = _keyword(node, "dim")
    if given is None:
        if place_of != first:
            return None
        given = node.args[first]
    try:
        before = ast.literal_eval(given)
    except ValueError:
        return None
    after = ast.Constant(value=axis(before))
    whole = ast.Call(func=node.func, args=node.args[:first], keywords=node.keywords)
    return _with_keyword(whole, "dim", after)


@_rule("softmax-over-queries")
def _softmax_over_queries(place: Place) -> ast.AST | None:
    """The softmax runs over the queries."""
    return _another_axis(place, lambda axis: axis - 1)


@_rule(*("softmax-over-batch", "softmax-over-batch-and-heads"), "softmax-over-heads")
def _softmax_over_batch(place: Place) -> ast.AST | None:
    """The softmax runs over the first axis."""
    return _another_axis(place, lambda axis: 0)


# The axis is another one where heads, or heads and batch together, come elsewhere.
@_rule("softmax-over-heads", "softmax-over-queries", "softmax-over-batch")
def _softmax_over_heads(place: Place) -> ast.AST | None:
    """The softmax runs over the heads."""
    return _another_axis(place, lambda axis: 1)


@_rule("softmax-twice", "unmasked-second-softmax")
def _softmax_twice(place: Place) -> ast.AST | None:
    """The softmax is taken twice."""
    node = place.node
    if not isinstance(node, ast.Call) or not _is_softmax(node):
        return None
    return _filled("(W).softmax(dim=-1)", W=node)


# The heads.


def _exchanged(node: ast.AST) -> ast.expr | None:
    """Return x of ``x.transpose(1, 2)``, however it is written."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    arguments = ", ".join(map(_text, node.args))
    swaps = {"transpose": ("1, 2", "2, 1", "-3, -2", "-2, -3")}
    swaps |= {"permute": ("0, 2, 1, 3",), "swapaxes": ("1, 2",)}
    if arguments in swaps.get(node.func.attr, ()) and not _is_library(node.func.value):
        return node.func.value
    return None


_NO_EXCHANGE = (
    "(lambda y: y.reshape(*y.shape[:-3], y.shape[-2], y.shape[-3], y.shape[-1]))(X)"
)


@_rule(
    "merge-without-transpose",
    "queries-split-without-transpose",
    "keys-split-without-transpose",
    "values-split-without-transpose",
)
def _merge_without_transpose(place: Place) -> ast.AST | None:
    """Heads are merged by a reshape without the transpose."""
    node = place.node
    name = getattr(place.function, "name", "")
    merges = place.after_softmax or re.search("merge|combine|concat|unshape", name)
    if (x := _exchanged(node)) and merges and not place.in_init:
        return _filled(_NO_EXCHANGE, X=x)
    pattern = r"b h (\w) (\w) -> b \1 \(h \2\)"
    if isinstance(node, ast.Call) and re.search(pattern, _text(node), re.IGNORECASE):
        flat = "(lambda y: y.reshape(y.shape[0], y.shape[2], -1))(X)"
        return _filled(flat, X=node.args[0])
    return None


@_rule("split-without-transpose")
def _split_without_transpose(place: Place) -> ast.AST | None:
    """Features are split by a reshape without the transpose."""
    node = place.node
    name = getattr(place.function, "name", "")
    if isinstance(node, ast.Call) and _text(node).endswith(".permute(2, 0, 3, 1, 4)"):
        assert isinstance(node.func, ast.Attribute)
        fused = _filled("(X).permute(2, 0, 1, 3, 4)", X=node.func.value)
        return _filled(_NO_EXCHANGE, X=fused)
    helper = re.search("split|shape|separate", name) and "un" not in name
    loop = isinstance(node, ast.ListComp | ast.GeneratorExp) and _exchanged(node.elt)
    if loop and isinstance(node, ast.ListComp | ast.GeneratorExp):
        new = copy.deepcopy(node)
        new.elt = _filled(_NO_EXCHANGE, X=loop)
        return new
    if helper and (x := _exchanged(node)):
        return _filled(_NO_EXCHANGE, X=x)
    if isinstance(node, ast.FunctionDef) and node is not place.part:
        return _all_splits(node)
    return None


def _all_splits(function: ast.FunctionDef) -> ast.FunctionDef | None:
    """Return a function without the transposes of its queries, keys and values."""
    new = copy.deepcopy(function)
    ends = [each.lineno for each in ast.walk(new) if _is_attention(each)]
    early = [
        each
        for each in ast.walk(new)
        if _exchanged(each)
        and isinstance(each, ast.expr)
        and ends
        and each.lineno < min(ends)
    ]
    if len(early) != 3:
        return None
    for each in early:
        x = _exchanged(each)
        assert x is not None
        new = _Exchange(each, _filled(_NO_EXCHANGE, X=x)).visit(new)
    return new


@_rule(
    "split-without-transpose",
    "merge-without-transpose",
    "queries-split-without-transpose",
    "keys-split-without-transpose",
    "values-split-without-transpose",
    "copied-keys-split-without-transpose",
    "copied-values-split-without-transpose",
)
def _one_split_without_transpose(place: Place) -> ast.AST | None:
    """Queries, keys or values alone are split without the transpose."""
    if place.in_init or place.after_softmax:
        return None
    x = _exchanged(place.node)
    return None if x is None else _filled(_NO_EXCHANGE, X=x)


@_rule("tiled-keys")
def _keys_tiled(place: Place) -> ast.AST | None:
    """Shared keys are tiled, so that heads read those of another group."""
    node = place.node
    if isinstance(node, ast.FunctionDef) and re.search("repeat_(kv|heads)", node.name):
        first, second = (each.arg for each in node.args.args[:2])
        early = re.search(r"\[:, :, None", _text(node)) is not None
        repeats = "1, N, 1, 1" if early else "1, 1, N, 1"
        value = _filled(f"X.repeat({repeats})", X=_name(first), N=_name(second))
        new = copy.deepcopy(node)
        new.body = [ast.Return(value=value)]
        return new
    return None


@_rule("tiled-keys")
def _both_tiled(place: Place) -> ast.AST | None:
    """Shared keys and values are tiled where they should be repeated."""
    node = place.node
    if not isinstance(node, ast.FunctionDef):
        return None
    new = copy.deepcopy(node)
    calls = [each for each in ast.walk(new) if _called(each) == "repeat_interleave"]
    for each in calls:
        assert isinstance(each, ast.Call)
        x, values = _input(each), [*each.args, *[k.value for k in each.keywords]]
        if x is None or len(values) < 2:
            return None
        copies, axis = values[-2:]
        ones = ["1"] * 4
        if _text(axis) not in ("1", "2"):
            return None
        ones[int(_text(axis))] = "N"
        new = _Exchange(
            each, _filled(f"(X).repeat({', '.join(ones)})", X=x, N=copies)
        ).visit(new)
    return new if calls else None


# Queries, keys and values.


def _swapped_name(name: str, old: str, new: str) -> str:
    """Return the name of another projection, such as ``k_proj`` for ``v_proj``."""
    words = {"v": "value", "k": "key", "q": "query"}
    for one, other in (
        (words[old], words[new]),
        (words[old].title(), words[new].title()),
        (old.upper(), new.upper()),
    ):
        if one in name and (len(one) > 1 or re.search(rf"(?<![A-Z]){one}", name)):
            return name.replace(one, other)
    pattern = rf"(?<![a-z]){old}(?=_|s\b|\b|lin)|(?<=_){old}(?=_|s\b|\b)|(?<=^w){old}\b"
    pattern += rf"|(?<=^W){old}\b"
    return re.sub(pattern, new, name)


def _instead(place: Place, old: str, new: str) -> ast.AST | None:
    """Return another projection, or its result, in place of the one that is used."""
    node = place.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if _text(node.func.value) != "self" or place.in_init:
            return None
        other = _swapped_name(node.func.attr, old, new)
        if other == node.func.attr or f"self.{other} = " not in _text(place.part):
            return None
        func = copy.deepcopy(node.func)
        func.attr = other
        return ast.Call(func=func, args=node.args, keywords=node.keywords)
    return None


@_rule("keys-for-values")
def _keys_for_values(place: Place) -> ast.AST | None:
    """The keys serve as values."""
    node = place.node
    if new := _instead(place, "v", "k"):
        return new
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        names = node.targets[0].elts
        if len(names) == 3 and all(isinstance(each, ast.Name) for each in names):
            # For three of something else, the change crashes or has no effect.
            lines = [copy.deepcopy(node)]
            second = ast.Name(id=_text(names[1]), ctx=ast.Load())
            third = ast.Name(id=_text(names[2]), ctx=ast.Store())
            lines.append(ast.Assign(targets=[third], value=second))
            test = ast.Constant(value=True)
            return ast.If(test=test, body=lines, orelse=[])
    return None


@_rule("queries-for-keys")
def _queries_for_keys(place: Place) -> ast.AST | None:
    """The queries serve as keys."""
    return _instead(place, "k", "q")


@_rule("values-for-keys", "keys-for-values")
def _values_for_keys(place: Place) -> ast.AST | None:
    """The values serve as keys."""
    return _instead(place, "k", "v")


@_rule("keys-and-values-exchanged")
def _keys_and_values_exchanged(place: Place) -> ast.AST | None:
    """Keys are given as values, and values as keys."""
    node = place.node
    if not isinstance(node, ast.Call) or not _is_attention(node):
        return None
    if len(node.args) < 3 or "qkv" in _text(place.part):
        return None
    at = 1 if _text(node.args[0]) == "self" else 0
    arguments = [*node.args]
    arguments[at + 1], arguments[at + 2] = arguments[at + 2], arguments[at + 1]
    return ast.Call(func=node.func, args=arguments, keywords=node.keywords)


@_rule("no-output-projection")
def _no_output_projection(place: Place) -> ast.AST | None:
    """The last projection is missing."""
    node = place.node
    if not isinstance(node, ast.Call) or len(node.args) != 1 or place.in_init:
        return None
    named = (
        isinstance(node.func, ast.Attribute)
        and _text(node.func.value) == "self"
        and _LAST.match(node.func.attr)
    )
    listed = re.fullmatch(r"self\.\w+\[(-1|3)\]", _text(node.func))
    return node.args[0] if named or listed else None


@_rule(
    *("no-bias-of-queries", "no-bias-of-values", "no-bias-of-the-output"),
    "no-biases-of-the-three",
)
def _bias_left_out(place: Place) -> ast.AST | None:
    """A projection is used without its bias."""
    node = place.node
    if not isinstance(node, ast.Call) or len(node.args) != 1 or place.in_init:
        return None
    if not isinstance(node.func, ast.Attribute) or _text(node.func.value) != "self":
        return None
    linear = rf"self\.{node.func.attr} = (nn\.)?Linear\("
    if not re.search(linear, _text(place.part)):
        return None
    return _filled("F.linear(X, L.weight)", X=node.args[0], L=node.func)


@_rule()
def _bias_elsewhere(place: Place) -> ast.AST | None:
    """The biases of queries and values are exchanged."""
    node = place.node
    if _called(node) != "cat" or not isinstance(node, ast.Call) or not node.args:
        return None
    parts = node.args[0]
    if not isinstance(parts, ast.Tuple) or len(parts.elts) != 3:
        return None
    if "bias" not in _text(parts):
        return None
    turned = ast.Tuple(elts=parts.elts[::-1], ctx=ast.Load())
    return ast.Call(func=node.func, args=[turned], keywords=node.keywords)


# Dropout.


@_rule("dropout-while-evaluating")
def _dropout_while_evaluating(place: Place) -> ast.AST | None:
    """Weights are dropped while evaluating, too."""
    node = place.node
    if not isinstance(node, ast.Call) or place.in_init:
        return None
    if _is_fused(node):
        p = _keyword(node, "dropout_p")
        if isinstance(p, ast.IfExp):
            return _with_keyword(node, "dropout_p", p.body)
    if _called(node) == "dropout" and _keyword(node, "training") is not None:
        return _with_keyword(node, "training", ast.Constant(value=True))
    if re.match(r"(self\.)?\w*drop", _text(node.func)) and len(node.args) == 1:
        names = {_text(each) for each in ast.walk(node.args[0])}
        weights = {
            _text(each.targets[0])
            for each in ast.walk(place.function)
            if isinstance(each, ast.Assign) and any(map(_is_softmax, ast.walk(each)))
        }
        softened = any(map(_is_softmax, ast.walk(node.args[0])))
        if softened or names & weights:
            return _filled("F.dropout(X, D.p)", X=node.args[0], D=node.func)
    return None


# Rotary positions, and norms.


@_rule("rotary-on-queries-alone")
def _rotary_on_queries_alone(place: Place) -> ast.AST | None:
    """Queries are turned, and keys are not."""
    return _unturned(place, 1, "k")


@_rule("rotary-on-keys-alone")
def _rotary_on_keys_alone(place: Place) -> ast.AST | None:
    """Keys are turned, and queries are not."""
    return _unturned(place, 0, "q")


def _unturned(place: Place, at: int, letter: str) -> ast.AST | None:
    node = place.node
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        names = [*node.targets[0].elts]
        if not _ROTARY.search(_called(node.value)) or len(names) != 2:
            return None
        names[at] = ast.Name(id="_", ctx=ast.Store())
        both = ast.Tuple(elts=names, ctx=ast.Store())
        return ast.Assign(targets=[both], value=node.value)
    if not isinstance(node, ast.Call) or not _ROTARY.search(_called(node)):
        return None
    turned = [re.fullmatch(r"x?([qk])\w*", _text(each)) for each in node.args[:2]]
    if not turned or turned[0] is None or any(turned[1:]):
        return None
    return node.args[0] if turned[0][1] == letter else None


@_rule("sine-without-minus", "sine-with-two-minuses", "keys-turned-back")
def _rotary_sign_flipped(place: Place) -> ast.AST | None:
    """A sign of the rotation is wrong."""
    node, name = place.node, getattr(place.function, "name", "")
    if not _ROTARY.search(name):
        return None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return None if isinstance(node.operand, ast.Constant) else node.operand
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        products = all(
            isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult)
            for each in (node.left, node.right)
        )
        if products:
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            return ast.BinOp(left=node.left, op=other, right=node.right)
    return None


@_rule("keys-turned-too-far", "keys-turned-too-little")
def _rotary_shifted(place: Place) -> ast.AST | None:
    """Keys are turned as if each stood one place further."""
    node = place.node
    if not isinstance(node, ast.Call) or not _ROTARY.search(_called(node)):
        return None
    if len(node.args) < 2 or not re.fullmatch(r"x?k\w*", _text(node.args[0])):
        return None
    axis = 1 if len(node.args) == 3 else 0
    turned = [_filled(f"(A).roll(1, {axis})", A=each) for each in node.args[1:]]
    return ast.Call(
        func=node.func, args=[node.args[0], *turned], keywords=node.keywords
    )


@_rule("keys-turned-too-far", "keys-turned-too-little")
def _rotary_shifted_inside(place: Place) -> ast.AST | None:
    """Keys are turned as if each stood one place further."""
    node = place.node
    if not isinstance(node, ast.Assign) or not _ROTARY.search(
        getattr(place.function, "name", "")
    ):
        return None
    names = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
    angles = {each for each in names if re.search("cos|sin|freqs", each)}
    if not angles or not any(re.fullmatch(r"x?k\w*", each) for each in names):
        return None
    axes = {"freqs_cos": 1, "freqs_sin": 1, "freqs_cis": 2}
    rolled: dict[str, ast.AST] = {
        each: _filled(f"A.roll(1, {axes.get(each, -2)})", A=_name(each))
        for each in angles
    }
    value = _Fill(rolled).visit(copy.deepcopy(node.value))
    return ast.Assign(targets=node.targets, value=value)


@_rule("norm-of-queries-alone", "norm-of-keys-alone", "norms-lost")
def _norm_dropped(place: Place) -> ast.AST | None:
    """Queries or keys are not normed."""
    node = place.node
    if not isinstance(node, ast.Call) or not node.args or place.in_init:
        return None
    if not re.search("norm", _called(node)) or len(node.args) > 1:
        return None
    named = _QUERY_OR_KEY.match(_text(node.args[0]))
    return node.args[0] if named else None
