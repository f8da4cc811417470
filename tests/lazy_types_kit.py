"""Finds what describes a type to msgspec later than at import, where two threads may do it at once.

msgspec puts the description of a class into the class before its fields are converted. A thread
that uses the class meanwhile reads a NULL pointer, and the process dies of SIGSEGV.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["lazy_uses"]

_FORMATS = ("json", "msgpack", "toml", "yaml")
_ONE_SHOT = {f"msgspec.{form}.decode" for form in _FORMATS}
_DECODERS = {f"msgspec.{form}.Decoder" for form in ("json", "msgpack")}
_CONVERT = "msgspec.convert"
_CONVERTER = "instep.model.conversion.converter"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def lazy_uses(source: str) -> Iterator[tuple[int, str]]:
    """(line, what is used) for each use of msgspec that describes a type when it is called.

    - `decode` with a type, wherever it stands: what is called in a function later is lazy, too, as
      in `partial(msgspec.json.decode, type=T)`. Without a type it describes none.
    - `convert`, wherever it stands.
    - A decoder of a type, or a `converter`, made in a function.
    """
    tree = ast.parse(source)
    names = dict(_imported(tree))
    yield from _walk(tree, names, within=False)


def _walk(node: ast.AST, names: dict[str, str], *, within: bool) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Call):
        called = _dotted(node.func, names)
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if called in {*_DECODERS, _CONVERTER}:
            lazy = within and bool(arguments)
        else:
            # Called here, or handed on to be called: `partial(msgspec.json.decode, type=T)`.
            meant = {called, *(_dotted(argument, names) for argument in arguments)}
            typed = any(keyword.arg == "type" for keyword in node.keywords)
            lazy = typed and not meant.isdisjoint(_ONE_SHOT)
        if lazy:
            yield node.lineno, ast.unparse(node)
    if isinstance(node, ast.Attribute | ast.Name) and _dotted(node, names) == _CONVERT:
        yield node.lineno, _CONVERT
    if isinstance(node, _FUNCTIONS):
        body = node.body if isinstance(node.body, list) else [node.body]
        # Decorators and default values run at import, if the function itself is made there.
        inner = {id(part) for part in body}
    else:
        inner = set()
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, names, within=within or id(child) in inner)


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that imports make, with what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.partition(".")[0],
                    (alias.name if alias.asname else alias.name.partition(".")[0]),
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return ""
