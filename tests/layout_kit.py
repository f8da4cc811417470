"""The laws of the tree, each a function over the parsed imports that returns what breaks it.

A law of layers counts every import, wherever it stands: in a function or under TYPE_CHECKING it is
a dependency all the same. A circle is looked for twice: among the imports that run when a module
is loaded, where the packages that a module lies in are loaded before it, and among all imports.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from docs.import_graph import FLOORS, Import, Tree, ancestors, graph

CORE = "instep"
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# What decisions may use of the standard library and of others: no I/O, no clock, no randomness.
# fmt: off
PURE = frozenset({
    "__future__", "abc", "base64", "binascii", "bisect", "collections", "contextlib", "copy",
    "dataclasses", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "importlib",
    "ipaddress", "itertools", "json", "math", "msgspec", "operator", "re", "string", "struct",
    "textwrap", "types", "typing", "unicodedata", "warnings", "weakref",
})
# fmt: on
KINDS_OF_DATABASE = {"sqlite", "postgresql"}
ASKS_FOR_THE_KIND = {"paramstyle", "get_backend_name", "get_dialect", "drivername"}
HELPERS = {"instep_broker", "instep_http", "instep_soap"}  # of the adapters
BELOW: dict[str, set[str]] = {
    "instep_broker": set(),
    "instep_http": set(),
    "instep_soap": {"instep_http"},
    "instep_tapi_provider": {"instep_tapi", *HELPERS},
}  # what an adapter may import besides the core, where that is not the helpers


def rooms_import_downwards(tree: Tree) -> list[str]:
    """Inside the core a room imports lower floors only, and nothing imports the facade."""
    return [
        f"{_where(found)}: {_room(found.importer)} is not above {_room(found.target) or CORE}"
        for found in tree.within()
        if found.importer.startswith(f"{CORE}.") and _package(found.target) == CORE
        if not _below(_room(found.target), _room(found.importer))
    ]


def every_room_has_a_floor(tree: Tree) -> list[str]:
    """A new room of the core is put on a floor before anything else."""
    rooms = {_room(module) for module in tree.modules if module.startswith(f"{CORE}.")}
    return [f"{CORE}.{room} is on no floor" for room in sorted(rooms - FLOOR.keys())]


def decisions_are_pure(tree: Tree) -> list[str]:
    """Below the ports nothing is imported that does I/O, reads a clock or draws at random."""
    return [
        _where(found)
        for found in tree.imports
        if found.importer.startswith(f"{CORE}.")
        if FLOOR.get(_room(found.importer), 0) < FLOOR["ports"]
        if _package(found.target) not in {*PURE, CORE}
    ]


def packages_import_the_core_only(tree: Tree, adapters: Iterable[str]) -> list[str]:
    """The core imports no other package; others import the core, adapters their helpers too."""
    packages = {_package(module) for module in tree.modules}
    broken = []
    for found in tree.within():
        package = _package(found.importer)
        allowed = {package} if package == CORE else {package, CORE}
        if package in adapters:
            allowed |= BELOW.get(package, HELPERS)
        if _package(found.target) in packages - allowed:
            broken.append(_where(found))
    return broken


def modules_form_no_circle(tree: Tree) -> list[str]:
    """No module needs itself: neither while it is loaded, nor through a lazy import."""
    loaded = [found for found in tree.within() if not found.lazy]
    packages = [
        Import(found.importer, package, found.line)
        for found in loaded
        for package in ancestors(found.target)
        if package in tree.modules
        if package not in {found.importer, *ancestors(found.importer)}
    ]
    return _circle(graph([*loaded, *packages])) or _circle(graph(tree.within()))


def rooms_form_no_circle(tree: Tree) -> list[str]:
    """Rooms of one folder do not need each other, at any depth; its `__init__` is a room, too."""
    between: dict[str, list[Import]] = {}
    for found in tree.within():
        folder = _shared(found.importer, found.target)
        if folder:  # packages have a law of their own
            importer, target = (_in(folder, name) for name in (found.importer, found.target))
            between.setdefault(folder, []).append(Import(importer, target, found.line))
    return [circle for imports in between.values() for circle in _circle(graph(imports))]


def only_the_engine_knows_the_database(sources: Mapping[str, str | bytes]) -> list[str]:
    """Elsewhere nothing asks which kind of database it has: it calls a method of `Dialect`."""
    return [
        f"{path}:{node.lineno} asks which database it is"
        for path, text in sources.items()
        for node in ast.walk(ast.parse(text, path))
        if isinstance(node, ast.expr | ast.MatchValue) and _asks_for_the_kind(node)
    ]


def _asks_for_the_kind(node: ast.expr | ast.MatchValue) -> bool:
    if isinstance(node, ast.Attribute):
        of = node.value
        owner = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
        return node.attr in ASKS_FOR_THE_KIND or (
            node.attr in {"name", "driver"} and owner.endswith("dialect")
        )
    if isinstance(node, ast.Compare | ast.MatchValue | ast.Subscript):
        return any(
            isinstance(one, ast.Constant) and one.value in KINDS_OF_DATABASE
            for one in ast.walk(node)
        )
    return False


def _circle(edges: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return [" <- ".join(error.args[1])]
    return []


def _below(target: str, importer: str) -> bool:
    if target == importer:
        return True
    return FLOOR.get(target, len(FLOORS)) < FLOOR.get(importer, -1)


def _package(module: str) -> str:
    return module.partition(".")[0]


def _room(module: str) -> str:
    """The room of a module of the core; the facade itself has none."""
    return module.partition(".")[2].partition(".")[0]


def _shared(one: str, other: str) -> str:
    """The innermost folder that two modules lie in, or are the `__init__` of; empty: none."""
    of_other = {other, *ancestors(other)}
    return next((name for name in (one, *ancestors(one)) if name in of_other), "")


def _in(folder: str, module: str) -> str:
    """The room of a folder that a module lies in: one part longer than the name of the folder."""
    return ".".join(module.split(".")[: folder.count(".") + 2])


def _where(found: Import) -> str:
    return f"{found.importer}:{found.line} imports {found.target}"


def entries(names: Iterable[str]) -> Iterator[str]:
    """Return the entries of a folder without those that Python or a tool left there."""
    return (name for name in names if not name.startswith((".", "__pycache__")))
