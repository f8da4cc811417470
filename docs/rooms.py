"""The rooms of a package and their imports, read from the source files, for Graphviz to draw.

A room is a folder or a module right below a package. An arrow is an import; one that follows from
others is left out: where A imports B and B imports C, no arrow shows that A imports C as well.
"""

from collections.abc import Mapping
from textwrap import wrap

from docs.import_graph import FLOORS, Tree

CORE = "instep"
WRAP = 26  # characters of a line in a box
COLOURS = {"core": "#2563a8", "other": "#2f7d4f"}
Edges = Mapping[str, set[str]]


def rooms(tree: Tree, package: str) -> dict[str, set[str]]:
    """Each room of a package with the rooms of the same package that it imports.

    The package itself stands for its `__init__`: the names that it offers.
    """
    inside = {_room(m, package): set[str]() for m in tree.modules if _package(m) == package}
    for found in tree.within():
        if _package(found.importer) == _package(found.target) == package:
            importer, target = _room(found.importer, package), _room(found.target, package)
            inside[importer] |= {target} - {importer}
    return inside


def core_rooms(tree: Tree, package: str) -> dict[str, set[str]]:
    """Each room of a package with the rooms of the core that it imports."""
    outside: dict[str, set[str]] = {}
    for found in tree.within():
        if _package(found.importer) == package and _package(found.target) == CORE:
            room = _room(found.importer, package)
            outside.setdefault(room, set()).add(_room(found.target, CORE))
    return outside


def reduced(edges: Edges) -> dict[str, set[str]]:
    """The edges without those that follow from others; those of a cycle stay."""
    below = {node: _reached(edges, node) for node in edges}
    return {
        node: {
            target
            for target in targets
            if not any(
                target in below.get(other, ()) and node not in below.get(other, ())
                for other in targets - {target}
            )
        }
        for node, targets in edges.items()
    }


def described(tree: Tree, package: str) -> str:
    """Every import between the rooms of a package in words, those without an arrow too."""
    return "\n".join(
        f"{importer} imports {target}"
        for importer, targets in sorted(rooms(tree, package).items())
        for target in sorted(targets)
    )


def source(tree: Tree, package: str, look: str) -> str:
    """The DOT source of a package; `look` is what all pictures share."""
    edges, outside = rooms(tree, package), core_rooms(tree, package)
    colour = COLOURS["core" if package == CORE else "other"]
    lines = [
        "digraph {",
        look,
        "  graph [ranksep=0.3, nodesep=0.2]",
        f'  node [fontsize=12, color="{colour}"]',
    ]
    for room in sorted(edges):
        used = "" if package == CORE else ", ".join(sorted(outside.get(room, ())))
        small = wrap(f"uses {used}", WRAP) if used else []
        if room == package == CORE:
            small = ["the names that you import"]
        second = "".join(f'<br/><font point-size="10">{line}</font>' for line in small)
        lines.append(f'  "{room}" [label=<<b>{room}</b>{second}>]')
    if package == CORE:
        floors = [sorted(set(names) & set(edges)) for names in FLOORS]
        lines += [
            "  {rank=same; " + " ".join(f'"{room}"' for room in floor) + "}"
            for floor in floors
            if len(floor) > 1
        ]
    for importer, targets in sorted(reduced(edges).items()):
        lines += [f'  "{importer}" -> "{to}"' for to in sorted(targets)]
    return "\n".join([*lines, "}\n"])


def _reached(edges: Edges, node: str) -> set[str]:
    found: set[str] = set()
    ahead = list(edges.get(node, ()))
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead += edges.get(one, ())
    return found


def _package(module: str) -> str:
    return module.partition(".")[0]


def _room(module: str, package: str) -> str:
    return module.removeprefix(f"{package}.").partition(".")[0]
