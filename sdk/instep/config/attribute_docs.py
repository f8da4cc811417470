"""The meaning of each option, from where it is written: the text below it in its class."""

from __future__ import annotations

import ast
import functools
import inspect
import sys

__all__ = ["attribute_docs"]


def attribute_docs(cls: type) -> dict[str, str]:
    """Attribute → the text below it in the source of its class, on one line; inherited ones, too.

    A class without source has none. One that is made of others names them in `documented_by`.
    """
    found: dict[str, str] = {}
    for base in (*reversed(cls.__mro__), *getattr(cls, "documented_by", ())):
        found |= _of_module(base.__module__).get(base.__name__, {})
    return found


@functools.cache
def _of_module(module: str) -> dict[str, dict[str, str]]:
    """Class → attribute → text."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return {}
    return {node.name: _texts(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _texts(node: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for one, after in zip(node.body, node.body[1:], strict=False):
        match one, after:
            case (
                ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(ast.Constant(str(text))),
            ):
                found[name] = " ".join(text.split())
    return found
