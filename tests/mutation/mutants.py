"""Every small change of a module that a test should notice, as a list that has the same order every time.

What is left alone: annotations, docstrings, texts (messages are worded freely), what a ``raise`` says,
imports, decorators, ``return None`` (anything notices), ``zip(strict=...)``, which is a check of ourselves,
``slots`` and ``frozen`` of dataclasses.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
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
_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
_NAMES |= {"minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin"}
_NAMES |= {"mean": "sum", "cumsum": "sort", "zeros_like": "ones_like", "ones_like": "zeros_like"}
_LEFT_ALONE = {"strict", "slots", "frozen", "hint", "description"}

Place = tuple[tuple[str, int | None], ...]
"""From the module down to a node: names of fields and, in lists, positions."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module.

    Attributes:
        module: Path from the repository's root.
        function: The outermost function or method around it; None where it is evaluated on import.
        line: Where.
        was: The code there.
        now: What it becomes.
        number: How many changes of this function, from and to the same, come before it.
        lines: First and last of the statement that holds it, of a compound one those of its head: who
            executes none of them cannot notice.
    """

    module: str
    function: str | None
    line: int
    was: str
    now: str
    number: int = 0
    lines: tuple[int, int] = (0, 0)
    apply: Callable[[], ast.Module] = field(compare=False, repr=False, default=lambda: ast.Module([], []))

    @property
    def key(self) -> str:
        """Stays the same when lines move."""
        number = f" #{self.number}" if self.number else ""
        return f"{self.module}::{self.function or '<module>'}: {self.was} -> {self.now}{number}"


def mutants_of(root: Path, module: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    tree = ast.parse((root / module).read_text())
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for place, function, whole, changed, lines in _walk(tree, (), None):
        was, now = ast.unparse(whole).strip(), ast.unparse(changed(copy.deepcopy(whole))).strip() or "pass"
        was, now = (" ".join(text.split())[:160] for text in (was, now))
        new = Mutant(module, function, whole.lineno, was, now, 0, lines, _applied(tree, place, changed))
        number = seen.get(new.key, 0)
        seen[new.key] = number + 1
        found.append(replace(new, number=number))
    return found


_Change = Callable[[ast.AST], ast.AST]
_Found = tuple[Place, str | None, ast.AST, _Change, tuple[int, int]]


def _applied(tree: ast.Module, place: Place, change: _Change) -> Callable[[], ast.Module]:
    def apply() -> ast.Module:
        new = copy.deepcopy(tree)
        parent: ast.AST = new
        for name, i in place[:-1]:
            parent = getattr(parent, name) if i is None else getattr(parent, name)[i]
        name, i = place[-1]
        if i is None:
            setattr(parent, name, change(getattr(parent, name)))
        else:
            getattr(parent, name)[i] = change(getattr(parent, name)[i])
        return ast.fix_missing_locations(new)

    return apply


def _walk(
    node: ast.AST, place: Place, function: str | None, inside: str = "", lines: tuple[int, int] = (0, 0)
) -> Iterator[_Found]:
    if isinstance(node, ast.stmt):
        lines = _lines(node)
    if isinstance(node, ast.expr | ast.stmt):
        for change in _changes(node):
            yield place, function, node, change, lines
    for name, i, child in _children(node):
        here, below, into = (*place, (name, i)), function, inside
        if isinstance(child, ast.ClassDef):
            into = f"{inside}{child.name}."
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and function is None:
            yield from _function(child, here, f"{inside}{child.name}")
            continue
        yield from _walk(child, here, below, into, lines)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    last = statement.end_lineno or statement.lineno
    body = getattr(statement, "body", None)
    return statement.lineno, max(statement.lineno, body[0].lineno - 1) if body else last


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, place: Place, name: str) -> Iterator[_Found]:
    yield from _walk(node.args, (*place, ("args", None)), None)  # defaults are evaluated on import
    for i, statement in enumerate(node.body):
        yield from _walk(statement, (*place, ("body", i)), name)


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom) or _type_checking(node):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "ctx"):
            continue
        if isinstance(value, ast.AST) and not _left_alone(value):
            yield name, None, value
        elif isinstance(value, list):
            yield from (
                (name, i, x) for i, x in enumerate(value) if isinstance(x, ast.AST) and not _left_alone(x)
            )


def _left_alone(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg in _LEFT_ALONE


def _type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _changes(node: ast.AST) -> list[_Change]:  # noqa: C901 - one line per kind of node
    if _type_checking(node):
        return []
    match node:
        case ast.Compare(ops=[op]):
            return [_set("ops", [new()]) for new in _COMPARE[type(op)]]
        case ast.BinOp(op=op) if type(op) in _BINARY and not isinstance(node.left, ast.JoinedStr):
            return [_set("op", _BINARY[type(op)]())]
        case ast.BoolOp(op=op):
            return [_set("op", ast.Or() if isinstance(op, ast.And) else ast.And())]
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            return [lambda old: old.operand]  # type: ignore[attr-defined]
        case ast.Constant(value=bool(value)):
            return [_set("value", not value)]
        case ast.Constant(value=int(value) | float(value)):
            return [_set("value", value + 1)] + ([_set("value", value * 2)] if value not in (0, 1) else [])
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            return [lambda old: _set("test", ast.UnaryOp(ast.Not(), old.test))(old)]  # type: ignore[attr-defined]
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Break():
            return [lambda _: ast.Pass()]
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return [lambda _: ast.Pass()]
        case ast.Call():
            return list(_of_call(node))
        case ast.For():
            return [lambda old: _set("iter", _first_of(old.iter))(old)]  # type: ignore[attr-defined]
        case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() | ast.SetComp():
            return list(_of_comprehension(node))
    return []


def _of_comprehension(
    node: ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp,
) -> Iterator[_Change]:
    def changed(name: str, new: Callable[[ast.comprehension], object]) -> _Change:
        def change(old: ast.AST) -> ast.AST:
            first = old.generators[0]  # type: ignore[attr-defined]
            setattr(first, name, new(first))
            return old

        return change

    yield changed("iter", lambda first: _first_of(first.iter))
    if node.generators[0].ifs:
        yield changed("ifs", lambda _: [])


def _first_of(iterated: ast.expr) -> ast.expr:
    """The first alone, where all should count."""
    whole = ast.Call(ast.Name("list", ast.Load()), [iterated], [])
    return ast.Subscript(whole, ast.Slice(upper=ast.Constant(1)), ast.Load())


def _of_call(node: ast.Call) -> Iterator[_Change]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _NAMES:
        yield lambda old: _set("func", _renamed(old.func))(old)  # type: ignore[attr-defined]
    for i, keyword in enumerate(node.keywords):
        if keyword.arg and not _left_alone(keyword):
            yield lambda old, i=i: _set("keywords", old.keywords[:i] + old.keywords[i + 1 :])(old)  # type: ignore[misc]


def _renamed(func: ast.expr) -> ast.expr:
    if isinstance(func, ast.Attribute):
        return ast.Attribute(func.value, _NAMES[func.attr], ast.Load())
    assert isinstance(func, ast.Name)
    return ast.Name(_NAMES[func.id], ast.Load())


def _set(name: str, value: object) -> _Change:
    def change(node: ast.AST) -> ast.AST:
        setattr(node, name, value)
        return node

    return change
