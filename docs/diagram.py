"""Draws the life of a stream and of a sequence from their transition tables, and a record's way.

Graphviz lays the pictures out; the wheel of pygraphviz brings it. They are committed, so that pages
show them in the repository and are built without Graphviz. After a change of a table:
`python -m docs.diagram`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree as ET

from docs import rooms
from docs.import_graph import packages, read
from instep.alignment.transitions import TRANSITIONS
from instep.model.position import Phase
from instep.sequencing.transitions import SEQUENCE_TRANSITIONS, SequencePhase

__all__ = [
    "FOLDER",
    "PICTURES",
    "Table",
    "described",
    "digest",
    "machine",
    "record_path",
    "render",
    "sequencer_calls",
]

FOLDER = Path(__file__).parent / "diagrams"
_REPOSITORY = FOLDER.parents[1]
SVG = "http://www.w3.org/2000/svg"
ANY = "any state"
State = TypeVar("State", bound=str)
Event = TypeVar("Event", bound=str)
Table = Mapping[State, Mapping[Event, State]]

# An opaque ground: the page around it may be light or dark.
_LOOK = """\
  graph [bgcolor="#ffffff", pad=0.2, nodesep=0.45, ranksep=0.42,
         fontname="Helvetica,Arial,sans-serif"]
  node [shape=box, style="rounded,filled", fillcolor="#eef3f9", color="#2563a8", penwidth=1.4,
        fontname="Helvetica,Arial,sans-serif", fontsize=13, fontcolor="#1c2329", margin="0.18,0.09"]
  edge [color="#4d6370", fontname="Helvetica,Arial,sans-serif", fontsize=11, fontcolor="#1c2329",
        arrowsize=0.8]
"""
_GOOD = 'fillcolor="#e3f4e8", color="#2f7d4f", penwidth=2.4'
_BAD = 'fillcolor="#fbe9ea", color="#a8323e"'
_TO_GOOD = 'color="#2f7d4f", penwidth=2.4'
_TO_BAD = 'color="#a8323e", fontcolor="#a8323e"'
_QUIET = 'style="dashed,rounded", fillcolor="#ffffff", color="#7a8791", fontcolor="#4d6370"'


def machine(table: Table[State, Event], start: State, good: State, bad: State) -> str:
    """The DOT source of a state machine `{state: {event: next state}}`.

    `good` is the state that is wanted, `bad` the one that is not. An event that leads from all
    states to the same one is drawn once, from a box "any state" (and from `start`, where nothing
    else leaves it); one that changes nothing stands in its state's box.
    """
    states = list(dict.fromkeys([*table, *(to for row in table.values() for to in row.values())]))
    everywhere = {
        event: to
        for event, to in table[start].items()
        if all(row.get(event) == to for row in table.values())
    }
    edges: dict[tuple[str, State], list[Event]] = defaultdict(list)
    for state, row in table.items():
        for event, to in row.items():
            if to != state and event not in everywhere:
                edges[state, to].append(event)
    alone = not any(state == start for state, _ in edges)
    for event, to in everywhere.items():
        edges[ANY, to].append(event)
        if alone:
            edges[start, to].append(event)
    lines = [f'  "{ANY}" [label="{ANY}", {_QUIET}]'] if everywhere else []
    for state in states:
        inside = [
            e for e, to in table.get(state, {}).items() if to == state and e not in everywhere
        ]
        label = "\\n".join([state, *(f"{event}: stays" for event in inside)])
        look = {good: _GOOD, bad: _BAD}.get(state, "")
        lines.append(f'  "{state}" [label="{label}"{", " + look if look else ""}]')
    for (origin, to), events in edges.items():
        label = "".join(f" {event} \\n" for event in events)
        look = {good: ", " + _TO_GOOD, bad: ", " + _TO_BAD}.get(to, "")
        lines.append(f'  "{origin}" -> "{to}" [label="{label}"{look}]')
    lines += ['  begin [shape=circle, style=filled, fillcolor="#1c2329", label="", width=0.16]']
    lines += [f'  begin -> "{start}"']
    return "\n".join(["digraph {", _LOOK + "\n".join(lines), "}\n"])


def record_path(*, tall: bool = False) -> str:
    """The DOT source of the way of a record, from the provider to those who ask: from left to
    right, or from top to bottom, for a phone.
    """
    # The arrow goes through the middle of the tall one, and so through a label below its store.
    below = "" if tall else "one transaction"
    within = "<br/><i>one transaction</i>" if tall else ""
    return f"""\
digraph {{
{_LOOK}
  graph [rankdir={"TB" if tall else "LR"}, ranksep=0.28, pad=0.1]
  node [margin="0.12,0.08", fontsize=12]
  provider [label=<<b>provider</b><br/>sends records>, {_QUIET}]
  read [label=<<b>read</b><br/>resume by token,<br/>decode, quarantine>]
  align [label=<<b>align</b><br/>order, mark, sweep,<br/>find what was missed>]
  subgraph cluster_commit {{
    label="{below}"; labelloc=b; style=rounded; color="#2f7d4f"; fontcolor="#2f7d4f"
    fontsize=11; margin=8
    store [label=<<b>store</b><br/>entities, journal,<br/>position{within}>, {_GOOD}]
  }}
  ask [label=<<b>you</b><br/>SQL, Python,<br/>Grafana, webhook>, {_QUIET}]
  provider -> read -> align -> store -> ask
}}
"""


def sequencer_calls() -> str:
    """The DOT source of the calls to a sequencer that is used alone, and when each is made."""
    return f"""\
digraph {{
{_LOOK}
  graph [ranksep=0.32]
  start [label=<<b>the program starts</b><br/>or meets the sequence first>, {_QUIET}]
  arrives [label=<<b>a message arrives</b>>, {_QUIET}]
  due [label=<<b>the clock reaches</b><br/>due_us()>, {_QUIET}]
  over [label=<<b>the clock reaches</b><br/>reclaimable_at_us>, {_QUIET}]
  load [label=<<b>Sequencer(settings, decode_state(stored))</b><br/>
    resume(now_us), if stored before this start>]
  receive [label=<<b>receive([header], now_us)</b><br/>or apply([…], now_us)>]
  tick [label=<<b>tick(now_us)</b>>]
  forget [label=<<b>delete the row</b><br/>the name is unknown again>]
  subgraph cluster_commit {{
    label="one transaction of yours"; labelloc=b; labeljust=l; style=rounded; color="#2f7d4f"
    fontcolor="#2f7d4f"; fontsize=11; margin=10
    store [label=<forget <b>dropped</b>, keep <b>accepted</b>, release <b>deliver</b><br/>
      store <b>checkpoint()</b> and <b>due_us()</b>>, {_GOOD}]
  }}
  after [label=<<b>committed(state)</b><br/>then answer, carry out the effects>]
  failed [label=<<b>drop the sequencer</b><br/>the table is the truth>, {_BAD}]
  start -> load -> receive
  arrives -> receive
  due -> tick
  over -> forget
  receive -> store [label="decision"]
  tick -> store [label="decision"]
  store -> after [label="durable", {_TO_GOOD}]
  store -> failed [label="failed, or in doubt", {_TO_BAD}]
}}
"""


def described(table: Table[State, Event]) -> str:
    """Every transition of a table in words, a line each: what a picture's reader is told."""
    return "\n".join(
        f"{state}: on {event} to {to}" for state, row in table.items() for event, to in row.items()
    )


def digest(dot: str) -> str:
    """What a picture says of the source that it was drawn from, so that a test sees an old one."""
    return sha256(dot.encode()).hexdigest()[:16]


def render(dot: str, title: str, description: str = "") -> str:
    """The SVG of a DOT source, with a title and a description for those who cannot see it."""
    import pygraphviz  # noqa: PLC0415 — the committed pictures are read without it

    drawn: bytes = pygraphviz.AGraph(string=dot).draw(format="svg", prog="dot")
    ET.register_namespace("", SVG)
    root = ET.fromstring(drawn)
    for element in root.iter():  # Graphviz names every node and edge: a browser shows that on hover
        for child in [c for c in element if c.tag == f"{{{SVG}}}title"]:
            element.remove(child)
    root.set("role", "img")
    root.set("data-source", digest(dot))
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        if text:
            told = ET.Element(f"{{{SVG}}}{tag}")
            told.text = text
            root.insert(place, told)
    return ET.tostring(root, encoding="unicode") + "\n"


def _alignment() -> tuple[str, str, str]:
    dot = machine(TRANSITIONS, Phase.UNALIGNED, good=Phase.ALIGNED, bad=Phase.LOST)
    return dot, "The alignment of a stream", described(TRANSITIONS)


def _sequence() -> tuple[str, str, str]:
    dot = machine(
        SEQUENCE_TRANSITIONS,
        SequencePhase.OPEN,
        good=SequencePhase.COMPLETE,
        bad=SequencePhase.FAILED,
    )
    return dot, "A numbered sequence", described(SEQUENCE_TRANSITIONS)


def _record() -> tuple[str, str, str]:
    return record_path(), "The way of a record", ""


def _record_tall() -> tuple[str, str, str]:
    return record_path(tall=True), "The way of a record", ""


def _sequencer_calls() -> tuple[str, str, str]:
    return sequencer_calls(), "The calls to a sequencer that is used alone", ""


def _rooms(package: str) -> tuple[str, str, str]:
    tree = read(_REPOSITORY)
    dot = rooms.source(tree, package, _LOOK)
    return dot, f"The rooms of {package}", rooms.described(tree, package)


PICTURES: dict[str, Callable[[], tuple[str, str, str]]] = {
    "alignment.svg": _alignment,
    "sequence.svg": _sequence,
    "record.svg": _record,
    "record-tall.svg": _record_tall,
    "sequencer-calls.svg": _sequencer_calls,
    **{f"rooms-{package}.svg": partial(_rooms, package) for package in packages(_REPOSITORY)},
}
"""What draws each committed picture: its DOT source, title and description."""


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, made in PICTURES.items():
        (FOLDER / name).write_text(render(*made()), encoding="utf-8")
