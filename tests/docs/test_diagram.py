"""The diagrams show every state and every transition of their tables, and are current."""

from enum import StrEnum
from xml.etree import ElementTree as ET

import pytest

from docs.diagram import FOLDER, PICTURES, Table, described, digest, machine, render
from instep.alignment.transitions import TRANSITIONS
from instep.sequencing.transitions import SEQUENCE_TRANSITIONS

# One process reads the imports of all sources, which takes some seconds.
pytestmark = pytest.mark.xdist_group("prose")

DOCS = FOLDER.parent
SVG = "{http://www.w3.org/2000/svg}"


class State(StrEnum):
    NEW = "NEW"
    BUSY = "BUSY"
    DONE = "DONE"
    FAILED = "FAILED"


class Event(StrEnum):
    STARTED = "STARTED"
    RECORD = "RECORD"
    ENDED = "ENDED"
    ERROR = "ERROR"
    RESET = "RESET"


TABLE = {
    State.NEW: {Event.STARTED: State.BUSY, Event.RESET: State.NEW},
    State.BUSY: {
        Event.RECORD: State.BUSY,
        Event.ENDED: State.DONE,
        Event.ERROR: State.FAILED,
        Event.RESET: State.NEW,
    },
    State.DONE: {Event.RESET: State.NEW},
    State.FAILED: {Event.RESET: State.NEW},
}


def edges(dot: str) -> list[str]:
    return [line.partition(" [")[0].strip() for line in dot.splitlines() if " -> " in line]


def texts(svg: str) -> list[str]:
    return [(text.text or "").strip() for text in ET.fromstring(svg).iter(f"{SVG}text")]


def test_what_leads_from_everywhere_is_drawn_once() -> None:
    assert edges(machine(TABLE, State.NEW, State.DONE, State.FAILED)) == [
        '"NEW" -> "BUSY"',
        '"BUSY" -> "DONE"',
        '"BUSY" -> "FAILED"',
        '"any state" -> "NEW"',
        'begin -> "NEW"',
    ]


def test_a_beginning_that_only_such_events_leave_is_not_alone() -> None:
    table = {"A": {"go": "B"}, "B": {"go": "B", "end": "C"}, "C": {"go": "B"}}
    assert edges(machine(table, "A", "C", "")) == [
        '"B" -> "C"',
        '"any state" -> "B"',
        '"A" -> "B"',
        'begin -> "A"',
    ]


def test_graphviz_draws_each_state_and_event_once() -> None:
    pytest.importorskip("pygraphviz", reason="Graphviz is not here: pip install pygraphviz")
    svg = render(machine(TABLE, State.NEW, State.DONE, State.FAILED), "<A machine>", "words")
    assert sorted(texts(svg)) == sorted(
        [*State, "STARTED", "ENDED", "ERROR", "RESET", "any state", "RECORD: stays"]
    )
    root = ET.fromstring(svg)
    assert [(e.tag.removeprefix(SVG), e.text) for e in root[:2]] == [
        ("title", "<A machine>"),
        ("desc", "words"),
    ]
    assert len(list(root.iter(f"{SVG}title"))) == 1


def test_no_picture_fetches_anything() -> None:
    found = [path for path in DOCS.rglob("*.svg") if "_build" not in path.parts]
    assert len(found) >= len(PICTURES) + 1
    for path in found:
        assert "url(" not in path.read_text(encoding="utf-8").replace("url(#", "")


@pytest.mark.parametrize("name", PICTURES)
def test_the_committed_pictures_are_current(name: str) -> None:
    pytest.importorskip("pygraphviz", reason="without Graphviz they cannot be drawn anew")
    dot, title, description = PICTURES[name]()
    root = ET.parse(FOLDER / name).getroot()
    assert root.get("data-source") == digest(dot), "run `python -m docs.diagram`"
    assert root.findtext(f"{SVG}title") == title
    assert (root.findtext(f"{SVG}desc") or "") == description


@pytest.mark.parametrize(
    ("name", "table"),
    [("alignment.svg", TRANSITIONS), ("sequence.svg", SEQUENCE_TRANSITIONS)],
)
def test_a_picture_names_each_state_and_event(name: str, table: Table[str, str]) -> None:
    shown = set(texts((FOLDER / name).read_text(encoding="utf-8")))
    for state, row in table.items():
        assert state in shown
        for event, to in row.items():
            assert event in shown or (to == state and f"{event}: stays" in shown)
            assert f"{state}: on {event} to {to}" in described(table)
