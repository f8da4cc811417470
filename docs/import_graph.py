"""Reads which module imports which, from the source files alone: nothing is imported or run.

`tests/test_layout.py` holds the laws of the tree with it, and `docs/rooms.py` draws the rooms.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDERS = ("sdk", "adapters", "store", "spark_sink")
# The floors of the core from the ground up. A room imports itself and the floors below it, and
# never another room of its own floor.
FLOORS = (
    ("errors",),
    ("model",),
    ("settings",),
    ("alignment", "sequencing", "coordination", "conformance"),
    ("ports",),
    ("runtime",),
    ("metrics",),
    ("config",),
    ("cli", "testing"),
)


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement.

    `importer` and `target` are dotted names of modules; a target outside the tree stands as it is
    written. `lazy`: the statement does not run when the importer is loaded, because it stands in a
    function or under TYPE_CHECKING.
    """

    importer: str
    target: str
    line: int
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """The modules of a source tree by their dotted names, and what they import."""

    modules: frozenset[str]
    imports: tuple[Import, ...]

    def within(self) -> Iterator[Import]:
        """The imports whose target is a module of the tree."""
        return (i for i in self.imports if i.target in self.modules and i.target != i.importer)


def parse(sources: Mapping[str, str | bytes]) -> Tree:
    """The tree of `{path below a folder of the search path: source text}`."""
    names = {path: _module(path) for path in sources}
    modules = frozenset(names.values())
    found: list[Import] = []
    for path, text in sources.items():
        name = names[path]
        package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
        for target, line, lazy in _statements(ast.parse(text, path), package, lazy=False):
            known = target if target in modules else target.rpartition(".")[0]
            found.append(Import(name, known if known in modules else target, line, lazy))
    return Tree(modules, tuple(found))


@cache  # some seconds, and several tests and pages ask
def read(repository: Path) -> Tree:
    """The tree of the packages that are shipped."""
    roots = [repository / folder for folder in FOLDERS]
    return parse(
        {
            path.relative_to(root).as_posix(): path.read_bytes()
            for root in roots
            for path in sorted(root.rglob("*.py"))
        }
    )


def packages(repository: Path) -> list[str]:
    """The packages that are shipped; no file is read for them."""
    found = (init for folder in FOLDERS for init in (repository / folder).glob("*/__init__.py"))
    return sorted(init.parent.name for init in found)


def ancestors(module: str) -> Iterator[str]:
    """The packages that a module lies in: `a.b.c` lies in `a.b` and in `a`."""
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def graph(imports: Iterable[Import]) -> dict[str, set[str]]:
    """The imports as `{importer: targets}`."""
    edges: dict[str, set[str]] = {}
    for found in imports:
        edges.setdefault(found.importer, set()).add(found.target)
    return edges


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _statements(node: ast.AST, package: str, *, lazy: bool) -> Iterator[tuple[str, int, bool]]:
    """(target, line, lazy) of each import below a node; `from a import b` has the target `a.b`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # most of a tree; no expression holds a statement
        if isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno, lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package.split(".")
            parts = above[: len(above) - child.level + 1] if child.level else []
            parts += [child.module] if child.module else []
            for alias in child.names:
                yield ".".join([*parts, alias.name]), child.lineno, lazy
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for part in child.body:
                yield from _statements(ast.Module([part], []), package, lazy=True)
            for part in child.orelse:
                yield from _statements(ast.Module([part], []), package, lazy=lazy)
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _statements(child, package, lazy=lazy or function)
