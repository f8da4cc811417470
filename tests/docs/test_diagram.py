"""The drawing of a state machine shows every state and every transition of its table."""

from enum import StrEnum
from xml.etree import ElementTree as ET

from docs.diagram import draw

SVG = "{http://www.w3.org/2000/svg}"


class State(StrEnum):
    NEW = "NEW"
    BUSY = "BUSY"
    CLOSED = "CLOSED"


class Event(StrEnum):
    STARTED = "STARTED"
    RECORD = "RECORD<&>"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


TABLE = {
    State.NEW: {Event.STARTED: State.BUSY},
    State.BUSY: {
        Event.RECORD: State.BUSY,
        Event.STOPPED: State.CLOSED,
        Event.FAILED: State.NEW,
    },
}


def test_every_state_and_event_is_named_once() -> None:
    root = ET.fromstring(draw(TABLE, "A machine"))
    texts = sorted(text.text or "" for text in root.iter(f"{SVG}text"))
    assert texts == sorted(
        ["NEW", "BUSY", "CLOSED", "STARTED", "STOPPED", "FAILED", "stays: RECORD<&>"]
    )
    assert root.findtext(f"{SVG}title") == "A machine"
    described = (root.findtext(f"{SVG}desc") or "").splitlines()
    assert described == [
        "NEW: on STARTED to BUSY",
        "BUSY: on RECORD<&> to BUSY",
        "BUSY: on STOPPED to CLOSED",
        "BUSY: on FAILED to NEW",
    ]


def test_each_transition_ends_where_its_target_is_entered() -> None:
    root = ET.fromstring(draw(TABLE, "A machine"))
    paths = [path.attrib["d"] for path in root.iter(f"{SVG}path")]
    arrivals = {d.split()[1].split("H")[0] for d in paths if "H" in d and "V" not in d}
    lanes = [d for d in paths if "V" in d]
    assert len(lanes) == 3
    assert {d.split("V")[1] for d in lanes} == arrivals
    assert len(arrivals) == 3
