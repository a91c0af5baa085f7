"""Mutants of a Python module: its source with one small fault each.

The operators are those of the literature (Offutt's sufficient set as mutmut and cosmic-ray have it), and some for numpy:

| operator | example |
|---|---|
| compare | `<` to `<=` and `>=`, `==` to `!=`, `is` to `is not`, `in` to `not in` |
| arithmetic | `+` to `-`, `*` to `/`, `//` to `/`, `**` to `*`, `&` to `|`, `<<` to `>>`; also in `+=`, which becomes `=` too |
| unary | `-x`, `not x` and `~x` to `x` |
| boolean | `and` to `or`, `True` to `False` |
| constant | a number n to n + 1 (so -1 to 0), `"left"` to `"right"` |
| condition | that of `if`, `while`, a conditional expression or a comprehension is negated |
| return | `return x` to `return None` |
| argument | a keyword argument of a call is dropped, unless it is a sentence |
| slice | a bound is dropped |
| sibling | `min` to `max`, `any` to `all`, `sum` to `mean`, `argmin` to `argmax`, `floor` to `ceil`, ... |
| deletion | of a call whose value is not used, of `raise`, and of an assignment to what had a value before |
| jump | `break` to `continue` and back |

The reward and credit of a method are expressions in a string: they are mutated as expressions. Left alone are docstrings, annotations
and aliases of types, imports, `__all__`, blocks under `TYPE_CHECKING`, what `raise` says, logging, and all other strings. An assignment that
gives a name its first value is not deleted: the NameError would be too easy a kill.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from hashlib import sha256

__all__ = ["Mutant", "compiles", "mutants"]

COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.MatMult: ast.Mult,
}
PAIRS = (
    "min max, minimum maximum, fmin fmax, nanmin nanmax, argmin argmax, nanargmin nanargmax, any all, sum mean, nansum nanmean, "
    "cumsum cumprod, floor ceil, zeros ones, zeros_like ones_like, logical_and logical_or, isnan isfinite, std var, "
    "union1d intersect1d, union intersection, issubset issuperset, startswith endswith, lstrip rstrip"
)
SIBLING = {a: b for pair in PAIRS.split(", ") for a, b in (pair.split(), pair.split()[::-1])} | {
    "sqrt": "square",
    "log": "log1p",
    "exp": "expm1",
    "abs": "positive",
    "median": "mean",
    "unique": "sort",
}
BUILTIN = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "max", "sorted": "list", "abs": "float"}
SIDES = {"left": "right", "right": "left"}
EXPRESSIONS = ("reward", "credit")  # keywords of a method that hold an expression


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the text from `start` to `end` of a module is replaced."""

    path: str
    operator: str
    line: int  # of the fault
    first: int  # the lines whose running shows that the fault was reached
    last: int
    on_import: bool  # it is reached when the module is imported, not when a test runs
    start: int
    end: int
    text: str

    def source(self, original: str) -> str:
        return original[: self.start] + self.text + original[self.end :]

    def diff(self, original: str) -> str:
        lines = difflib.unified_diff(original.splitlines(), self.source(original).splitlines(), lineterm="", n=1)
        return "\n".join(list(lines)[2:])

    def key(self, original: str) -> str:
        """A name that stays when other lines of the module change: what a verdict is kept under."""
        changed = [x.strip() for x in self.diff(original).splitlines() if x[:1] in "+-"]
        return sha256("\n".join([self.path, self.operator, *changed]).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is: which lines show that it was reached, and which node stands for what has no position of its own."""

    first: int = 1
    last: int = 1
    on_import: bool = True
    whole: ast.AST | None = None  # the f-string around: before Python 3.12 its parts do not know where they are
    bound: frozenset[str] = frozenset()

    def at(self, first: ast.AST, last: ast.AST | None = None) -> _Place:
        return replace(self, first=first.lineno, last=(last or first).end_lineno)  # type: ignore[attr-defined]


def mutants(path: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of the source."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines()

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    result = []
    for node, text, operator, place in _walk(ast.parse(source), _Place()):
        begin, end = offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
        result.append(
            Mutant(path, operator, node.lineno, place.first, place.last, place.on_import, begin, end, text)
        )
    return sorted(set(result), key=lambda m: (m.start, m.end, m.operator, m.text))


def compiles(source: str) -> bool:
    """Whether a fault left a program: some do not, such as a number in a pattern."""
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


Fault = tuple[ast.AST, str, str, _Place]


def _walk(node: ast.AST, place: _Place) -> Iterator[Fault]:
    """Every fault in and below a node, as (node to be replaced, text, operator, place)."""
    if isinstance(node, ast.Import | ast.ImportFrom) or _of_types(node):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield from _walk_function(node, place)
        return
    if isinstance(node, ast.stmt) and not isinstance(node, ast.ClassDef):
        yield from _statement_faults(node, place)
        if isinstance(node, ast.Raise):
            return
    if isinstance(node, ast.JoinedStr) and place.whole is None:
        place = replace(place, whole=node)
    if isinstance(node, ast.expr | ast.comprehension):
        for changed, operator in _faults(node):
            yield from _fault(node, changed, operator, place)
    if isinstance(node, ast.Call):
        yield from _strings(node, place)
    yield from _below(node, place)


def _below(node: ast.AST, place: _Place) -> Iterator[Fault]:
    if _is_negative(node):
        return
    skipped = {id(a) for a in _annotations(node)}
    bound = place.bound
    for child in ast.iter_child_nodes(node):
        if id(child) in skipped or _docstring(node, child):
            continue
        inner = replace(place, bound=bound)
        if isinstance(child, ast.stmt):
            inner = inner.at(child)
            bound = bound | _names(child)
        elif isinstance(node, ast.If | ast.While | ast.For | ast.With | ast.Match) and isinstance(child, ast.expr):
            inner = inner.at(child)
        yield from _walk(child, inner)


def _walk_function(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, place: _Place) -> Iterator[Fault]:
    """Defaults are reached when the function runs; decorators when it is defined."""
    body = node.body if isinstance(node.body, list) else [node.body]
    ran = replace(place.at(body[0], body[-1]), on_import=False)
    for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
        yield from _walk(default, ran)
    if isinstance(node, ast.Lambda):
        yield from _walk(node.body, replace(place, on_import=False))
        return
    if any("overload" in ast.unparse(d) for d in node.decorator_list):
        return
    for decorator in node.decorator_list:
        yield from _walk(decorator, place)
    names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    bound = place.bound | names
    for child in node.body:
        if not _docstring(node, child):
            yield from _walk(child, replace(place.at(child), on_import=False, bound=bound))
        bound = bound | _names(child)


def _names(statement: ast.stmt) -> frozenset[str]:
    """Names that a statement gives a value."""
    nodes = ast.walk(statement)
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _of_types(node: ast.AST) -> bool:
    """What only a type checker reads, and `__all__`."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("TypeVar", "NewType", "ParamSpec", "cast")
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        name = target.id if isinstance(target, ast.Name) else ""
        alias = name[:1].isupper() and not name.isupper() and isinstance(node.value, ast.BinOp | ast.Subscript)
        return name == "__all__" or alias
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).split(".")[0] in ("logging", "logger")
    return False


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.AnnAssign):
        yield node.annotation


def _docstring(parent: ast.AST, child: ast.AST) -> bool:
    holds = isinstance(parent, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return holds and isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)


def _fault(node: ast.AST, changed: ast.AST, operator: str, place: _Place) -> Iterator[Fault]:
    """The fault as text, where need be of the f-string that holds the node."""
    if place.whole is not None and place.whole is not node:
        memo: dict[int, ast.AST] = {
            id(node): changed
        }  # deepcopy then puts the changed node in the place of the node
        yield place.whole, ast.unparse(deepcopy(place.whole, memo)), operator, place
        return
    bare = isinstance(changed, ast.Constant | ast.Slice | ast.Name | ast.Attribute | ast.JoinedStr)
    text = ast.unparse(changed)
    yield node, text if bare else f"({text})", operator, place


def _faults(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Faults of one expression itself, as nodes that replace it."""
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in COMPARE[type(op)]:
                    ops = [other() if j == i else o for j, o in enumerate(node.ops)]
                    yield ast.Compare(node.left, ops, node.comparators), "compare"
        case ast.BinOp():
            yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right), "arithmetic"
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield node.operand, "unary"
            if _is_negative(node):
                yield ast.Constant(1 - node.operand.value), "constant"  # type: ignore[attr-defined]
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values), "boolean"
        case ast.Constant():
            yield from _constant(node)
        case ast.IfExp():
            yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse), "condition"
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            yield from _filters(node)
        case ast.Slice():
            if node.lower is not None:
                yield ast.Slice(None, node.upper, node.step), "slice"
            if node.upper is not None:
                yield ast.Slice(node.lower, None, node.step), "slice"
        case ast.Call():
            yield from _call(node)
        case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in SIBLING:
            yield ast.Attribute(node.value, SIBLING[name], ast.Load()), "sibling"


def _is_negative(node: ast.AST) -> bool:
    """A number below 0, which Python reads as a minus before one above."""
    number = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else None
    return isinstance(number, ast.Constant) and type(number.value) in (int, float)


def _constant(node: ast.Constant) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value), "boolean"
    elif isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1), "constant"
    elif isinstance(node.value, str) and node.value in SIDES:
        yield ast.Constant(SIDES[node.value]), "constant"


def _filters(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Iterator[tuple[ast.AST, str]]:
    for i, loop in enumerate(node.generators):
        for j in range(len(loop.ifs)):
            changed = deepcopy(node)
            ifs = changed.generators[i].ifs
            ifs[j] = ast.UnaryOp(ast.Not(), ifs[j])
            yield changed, "condition"


def _call(node: ast.Call) -> Iterator[tuple[ast.AST, str]]:
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None and not _prose(keyword.value):
            yield ast.Call(node.func, node.args, node.keywords[:i] + node.keywords[i + 1 :]), "argument"
    func = node.func
    if isinstance(func, ast.Name) and func.id in BUILTIN:
        yield ast.Call(ast.Name(BUILTIN[func.id]), node.args, node.keywords), "sibling"
    if isinstance(func, ast.Attribute) and func.attr in SIBLING and ast.unparse(func.value) != "np":
        yield ast.Call(ast.Attribute(func.value, SIBLING[func.attr]), node.args, node.keywords), "sibling"
    if ast.unparse(func) == "np.searchsorted" and not any(k.arg == "side" for k in node.keywords):
        side = ast.keyword("side", ast.Constant("right"))
        yield ast.Call(func, node.args, [*node.keywords, side]), "argument"


def _prose(node: ast.expr) -> bool:
    """A sentence, whole or put together."""
    if isinstance(node, ast.BinOp):
        return _prose(node.left) or _prose(node.right)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and " " in node.value
        and "(" not in node.value
    )


def _strings(node: ast.Call, place: _Place) -> Iterator[Fault]:
    """Faults of the expressions that a call is handed as strings."""
    for keyword in node.keywords:
        value = keyword.value
        if (
            keyword.arg in EXPRESSIONS
            and isinstance(value, ast.Constant)
            and isinstance(value.value, str)
            and value.value
        ):
            try:
                tree = ast.parse(value.value, mode="eval").body
            except SyntaxError:
                continue
            for inner in ast.walk(tree):
                for changed, operator in _faults(inner):
                    text = ast.unparse(deepcopy(tree, {id(inner): changed}))
                    yield value, repr(text), operator, place


def _statement_faults(node: ast.stmt, place: _Place) -> Iterator[Fault]:
    match node:
        case ast.If() | ast.While():
            yield node.test, f"(not ({ast.unparse(node.test)}))", "condition", place.at(node.test)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield node, "return None", "return", place
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield node, "pass", "deletion", place
        case ast.Assign():
            stored = {
                n.id
                for t in node.targets
                for n in ast.walk(t)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            if stored <= place.bound:
                yield node, "pass", "deletion", place
        case ast.AugAssign():
            target, value = ast.unparse(node.target), ast.unparse(node.value)
            sign = ast.unparse(ast.BinOp(ast.Name("a"), ARITHMETIC[type(node.op)](), ast.Name("b"))).split()[1]
            yield node, f"{target} {sign}= {value}", "arithmetic", place
            yield node, f"{target} = {value}", "arithmetic", place
            yield node, "pass", "deletion", place
        case ast.Break():
            yield node, "continue", "jump", place
        case ast.Continue():
            yield node, "break", "jump", place
