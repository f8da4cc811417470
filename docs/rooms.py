"""Draws the rooms of the packages from their imports, as SVG.

Each package is a panel. A box is a room: a folder or a module right below the package. A room
stands on a floor above all that it imports. An arrow is an import; one that follows from others is
left out: where A imports B and B imports C, no arrow shows that A imports C as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise
from textwrap import wrap

from docs.import_graph import FLOORS, Tree

CORE = "instep"
CHARACTER = 6.7  # the width of a character, in px, of the 11 px font
BOLD = 7.4  # and of the 12 px bold one
LINE = 15
MARGIN = 14
BETWEEN = 12  # boxes of one floor
FLOOR_GAP = 30
BEND = 8  # the width that a line takes where it passes a floor
WIDTH = 760
WRAP = 33  # characters of a line in a box
COLOURS = {"core": "#2563a8", "other": "#2f7d4f"}
STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1c2329}"
    ".package{font-size:13px;font-weight:bold}.room{font-size:12px;font-weight:bold}"
    ".small{fill:#5b6670}path{fill:none;stroke-width:1.4}"
)
Edges = Mapping[str, set[str]]


@dataclass(slots=True)
class Box:
    """A room, or the place where a line passes a floor: that one has no lines of text.

    `x` and `y` are the upper left corner, in px.
    """

    name: str
    floor: int
    lines: list[str] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        if not self.lines:
            return BEND
        return max(len(self.name) * BOLD, *(len(x) * CHARACTER for x in self.lines)) + 16

    @property
    def height(self) -> float:
        return LINE * len(self.lines) + 10 if self.lines else 0.0


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
    """The edges without those that follow from others. The edges form no circle."""
    below: dict[str, set[str]] = {}
    for node in TopologicalSorter(edges).static_order():
        direct = edges.get(node, set())
        below[node] = direct.union(*(below[target] for target in direct))
    return {
        node: {t for t in targets if not any(t in below[other] for other in targets)}
        for node, targets in edges.items()
    }


def floors(edges: Edges, given: Mapping[str, int]) -> dict[str, int]:
    """The floor of each room: the given one, else the lowest one above all that it imports."""
    found: dict[str, int] = {}
    for node in TopologicalSorter(edges).static_order():
        above = max((found[target] + 1 for target in edges.get(node, ())), default=0)
        found[node] = max(above, given.get(node, 0))
    return found


def draw(tree: Tree) -> str:
    """The SVG of all packages of a tree, the core first."""
    packages = sorted({_package(module) for module in tree.modules} - {CORE})
    shapes: list[str] = []
    described: list[str] = []
    x = y = float(MARGIN)
    tallest = widest = 0.0
    for package in [CORE, *packages]:
        panel = _Panel(tree, package)
        if x > MARGIN and x + panel.width > WIDTH:
            x, y, tallest = float(MARGIN), y + tallest + MARGIN, 0.0
        shapes += panel.shapes(x, y)
        described += panel.described()
        x += panel.width + MARGIN
        tallest, widest = max(tallest, panel.height), max(widest, x)
    size = f"{widest:g}", f"{y + tallest + MARGIN:g}"
    described_text = escape("\n".join(described))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {" ".join(size)}" width="{size[0]}" role="img">
<title>The rooms of each package, and what they import</title>
<desc>{described_text}</desc>
<style>{STYLE}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
{"".join(shapes)}
</svg>
"""


class _Panel:
    """One package: its boxes on their floors and the lines between them, laid out from 0, 0."""

    def __init__(self, tree: Tree, package: str) -> None:
        self._package = package
        self._edges = rooms(tree, package)
        self._outside = core_rooms(tree, package) if package != CORE else {}
        given = {room: n for n, names in enumerate(FLOORS) for room in names}
        given[CORE] = given["config"]
        level = floors(self._edges, given if package == CORE else {})
        used = sorted(set(level.values()))  # an empty floor takes no room
        self._boxes = {
            room: Box(room, used.index(level[room]), self._lines(tree, room))
            for room in sorted(level)
        }
        self._chains = self._routed()
        self._floors = _ordered(self._boxes.values(), self._chains)
        self._place()

    def _lines(self, tree: Tree, room: str) -> list[str]:
        if self._package != CORE:
            names = sorted(self._outside.get(room, set()))
            text = f"uses {', '.join(names)}" if names else ""
        elif room == CORE:
            text = "the names that you import"
        else:
            text = ", ".join(_parts(tree, f"{CORE}.{room}"))
        return [room, *wrap(text, WRAP)]

    def _routed(self) -> list[list[Box]]:
        """Each arrow as the boxes that it leads through: importer, bends, target."""
        chains: list[list[Box]] = []
        for importer, targets in reduced(self._edges).items():
            for target in sorted(targets):
                first, last = self._boxes[importer], self._boxes[target]
                between = range(first.floor - 1, last.floor, -1)
                bends = [Box(f"{importer} to {target} {floor}", floor) for floor in between]
                chains.append([first, *bends, last])
        return chains

    def _place(self) -> None:
        rows = [sum(b.width + BETWEEN for b in row) - BETWEEN for row in self._floors]
        title = len(self._package) * BOLD * 1.1
        self.width = max(*rows, title) + 2 * MARGIN
        top = 2.0 * MARGIN + LINE
        for row, width in reversed(list(zip(self._floors, rows, strict=True))):
            x = (self.width - width) / 2
            height = max(box.height for box in row)
            for box in row:
                box.x, box.y = x, top
                x += box.width + BETWEEN
            top += height + FLOOR_GAP
        self.height = top - FLOOR_GAP + MARGIN

    def shapes(self, x: float, y: float) -> list[str]:
        """The panel with its upper left corner at x, y."""
        colour = COLOURS["core" if self._package == CORE else "other"]
        size = f'width="{self.width:g}" height="{self.height:g}"'
        at = f'x="{x + MARGIN:g}" y="{y + MARGIN + 10:g}"'
        shapes = [
            f'<rect x="{x:g}" y="{y:g}" {size} rx="8" fill="#ffffff" stroke="#9aa5b1"/>',
            f'<text class="package" {at}>{escape(self._package)}</text>',
        ]
        for chain in self._chains:
            points = self._points(chain)
            way = "L".join(f"{x + px:g} {y + py:g}" for px, py in points)
            shapes.append(f'<path d="M{way}" stroke="{colour}"/>')
            end_x, end_y = points[-1]
            shapes.append(
                f'<path d="M{x + end_x:g} {y + end_y + 6:g}l-4 -8h8z" style="fill:{colour}"/>'
            )
        for box in self._boxes.values():
            left, top = x + box.x, y + box.y
            shapes.append(
                f'<rect x="{left:g}" y="{top:g}" width="{box.width:g}" height="{box.height:g}"'
                f' rx="5" fill="#f6f8fa" stroke="{colour}" stroke-width="1.4"/>'
            )
            for number, line in enumerate(box.lines):
                kind = "small" if number else "room"
                shapes.append(
                    f'<text class="{kind}" x="{left + 8:g}" y="{top + LINE * (number + 1):g}">'
                    f"{escape(line)}</text>"
                )
        return shapes

    def _points(self, chain: Sequence[Box]) -> list[tuple[float, float]]:
        """Where a line begins, bends and ends; lines at one box stand side by side."""
        first, last = chain[0], chain[-1]
        leaving = sorted((c for c in self._chains if c[0] is first), key=lambda c: c[1].x)
        coming = sorted((c for c in self._chains if c[-1] is last), key=lambda c: c[-2].x)
        deep = [max(box.height for box in row) for row in self._floors]
        x = _slot(first, leaving.index(list(chain)), len(leaving))
        points = [(x, first.y + first.height), (x, first.y + deep[first.floor])]
        for box in chain[1:-1]:
            x = box.x + BEND / 2
            points += [(x, box.y - 4), (x, box.y + deep[box.floor])]
        points.append((_slot(last, coming.index(list(chain)), len(coming)), last.y - 6))
        return points

    def described(self) -> list[str]:
        """Every import between rooms in words, those without an arrow too."""
        return [
            f"{self._package}: {importer} imports {target}"
            for importer, targets in sorted(self._edges.items())
            for target in sorted(targets)
        ]


def _slot(box: Box, number: int, count: int) -> float:
    return box.x + box.width * (number + 1) / (count + 1)


def _ordered(boxes: Iterable[Box], chains: Sequence[Sequence[Box]]) -> list[list[Box]]:
    """The boxes floor by floor from the ground, each near the middle of what it is joined to."""
    every = list({id(b): b for b in [*boxes, *(b for chain in chains for b in chain)]}.values())
    rows = [[b for b in every if b.floor == n] for n in range(max(b.floor for b in every) + 1)]
    pairs = [pair for chain in chains for pair in pairwise(chain)]
    for up in (True, False) * 4:
        for row in rows if up else reversed(rows):
            place = {id(b): (i + 0.5) / len(r) for r in rows for i, b in enumerate(r)}
            middle = {}
            for box in row:
                near = [b if a is box else a for a, b in pairs if box is (a if not up else b)]
                near = near or [b if a is box else a for a, b in pairs if box in (a, b)]
                at = [place[id(b)] for b in near] or [place[id(box)]]
                middle[id(box)] = sum(at) / len(at)
            row.sort(key=lambda b: middle[id(b)])
    return rows


def _parts(tree: Tree, room: str) -> list[str]:
    """The modules and folders right below a room of the core; a folder ends with a slash."""
    inside = {m.removeprefix(f"{room}.") for m in tree.modules if m.startswith(f"{room}.")}
    folders = {name.partition(".")[0] for name in inside if "." in name}
    return [f"{n}/" if n in folders else n for n in sorted(inside) if "." not in n and n[0] != "_"]


def _package(module: str) -> str:
    return module.partition(".")[0]


def _room(module: str, package: str) -> str:
    return module.removeprefix(f"{package}.").partition(".")[0]
