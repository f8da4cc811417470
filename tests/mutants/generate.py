"""Mistakes made by a program: comparisons and guards, dropped, negated, off by one."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["FOLDERS", "Mutant", "mutants", "tree_of"]

FOLDERS: Final = (
    "sdk/instep/alignment",
    "sdk/instep/sequencing",
    "sdk/instep/runtime/messages",
)

_OTHERS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
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
"""A comparison that is off by one, and one that is negated."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    """One mistake in one function."""

    path: str
    function: str
    """Its qualified name."""
    place: int
    """Of the mistake among those of the function."""
    line: int
    text: str
    """What stands there, and what takes its place."""

    @property
    def name(self) -> str:
        """What it is called where it is known to be equivalent: lines move."""
        return f"{self.path} {self.function}: {self.text}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.text}"


def mutants(repository: Path) -> Iterator[Mutant]:
    """Every mistake that can be made, in order."""
    for folder in FOLDERS:
        for path in sorted((repository / folder).glob("*.py")):
            name = str(path.relative_to(repository))
            for qualname, function in _functions(ast.parse(path.read_text(encoding="utf-8"))):
                for place, (line, text, _) in enumerate(_mistakes(function)):
                    yield Mutant(name, qualname, place, line, text)


def tree_of(repository: Path, mutant: Mutant) -> ast.Module:
    """The module with the mistake in it."""
    tree = ast.parse((repository / mutant.path).read_text(encoding="utf-8"))
    function = dict(_functions(tree))[mutant.function]
    *_, make = list(_mistakes(function))[mutant.place]
    make()
    return ast.fix_missing_locations(tree)


def _functions(module: ast.Module) -> Iterator[tuple[str, Function]]:
    """The functions and methods of a module; what they define in themselves is theirs."""
    for node in module.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function):
                    yield f"{node.name}.{inner.name}", inner


def _mistakes(function: Function) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Each mistake in its body: its line, its text, and what makes it in the tree. A default is no
    part of the code that is replaced.
    """
    for parent in chain.from_iterable(map(ast.walk, function.body)):
        for field, value in ast.iter_fields(parent):
            places = value if isinstance(value, list) else [value]
            for at, node in enumerate(places):
                for other in _others(node, parent):
                    yield (
                        node.lineno,
                        f"{ast.unparse(node)} -> {ast.unparse(other)}",
                        _Replacement(parent, field, at, other).make,
                    )


class _Replacement(NamedTuple):
    parent: ast.AST
    field: str
    at: int
    other: ast.expr

    def make(self) -> None:
        value = getattr(self.parent, self.field)
        if isinstance(value, list):
            value[self.at] = self.other
        else:
            setattr(self.parent, self.field, self.other)


def _others(node: ast.AST, parent: ast.AST) -> Iterator[ast.expr]:
    """What may stand in the place of a node by mistake."""
    match node:
        case ast.Compare(ops=[op]):
            for other in _OTHERS[type(op)]:
                changed = copy.deepcopy(node)
                changed.ops = [other()]
                yield changed
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                changed = copy.deepcopy(node)
                changed.ops[at] = _OTHERS[type(op)][0]()
                yield changed
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for at in range(len(values)):
                left = [*values[:at], *values[at + 1 :]]
                yield left[0] if len(left) == 1 else ast.BoolOp(op, left)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)) if not isinstance(parent, ast.keyword):
            yield ast.Constant(not value)
        case ast.Name() | ast.Attribute() | ast.Call() if _is_guard(node, parent):
            yield ast.UnaryOp(ast.Not(), node)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield left
        case _:
            pass


def _is_guard(node: ast.AST, parent: ast.AST) -> bool:
    return isinstance(parent, ast.If | ast.IfExp | ast.While) and parent.test is node
