"""Draws the picture of the live view in the documentation: `python -m docs.live_picture`.

Two controllers of which one is dead, on a terminal of 80 columns and 24 rows.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from instep.alignment.lag import Fidelity
from instep.cli.live_screen import live_screen, stream_lines
from instep.model.position import Phase
from instep.runtime.health import ConsumerEvent, ConsumerState, Health, StreamHealth

__all__ = ["EVENTS", "HEALTHS", "PICTURE", "draw"]

PICTURE = Path(__file__).parent / "how-to" / "live-view.svg"
_TO_DO = "check that the server runs, and that the port is right"
_DOWN = f"https://ctrl-west.example:8443: the connection is refused — {_TO_DO}"
_RATES = {("east", "network"): 18.0, ("east", "alarms"): 2.0}


def stream(name: str, records: int, **values: object) -> StreamHealth:
    """A stream as the health of a consumer shows it; `values` differ from one that is well."""
    usual: dict[str, object] = {
        "phase": Phase.ALIGNED,
        "attempt": 1,
        "caught_up": True,
        "read_delay_s": 0.012,
        "fidelity": Fidelity.FULL,
        "connected": True,
        "last_error": "",
        "deviations": {},
        "quarantined": 0,
        "compaction_delay_s": 600.0,
        "tombstone_retention_s": 14_400.0,
    }
    return StreamHealth(stream=name, records=records, **usual | values)  # type: ignore[arg-type]


HEALTHS = (
    Health(
        consumer="east",
        state=ConsumerState.RUNNING,
        error="",
        streams=(stream("network", 48_211), stream("alarms", 1_906, read_delay_s=0.031)),
    ),
    Health(
        consumer="west",
        state=ConsumerState.RETRYING,
        error="",
        streams=(
            stream("network", 31_877, connected=False, last_error=_DOWN),
            stream("alarms", 644, connected=False, last_error=_DOWN),
        ),
    ),
)
_STARTED_US = 1_786_439_064_000_000
EVENTS = tuple(
    ConsumerEvent(_STARTED_US + after_s * 1_000_000, consumer, name, kind, text)
    for after_s, consumer, name, kind, text in (
        (1, "east", "network", "connected", "from the start"),
        (1, "west", "network", "connected", "from the start"),
        (4, "west", "network", "aligned", "aligned by attempt 1"),
        (6, "east", "network", "aligned", "aligned by attempt 1"),
        (6, "east", "alarms", "aligned", "aligned by attempt 1"),
        (7, "west", "alarms", "aligned", "aligned by attempt 1"),
        (912, "west", "alarms", "disconnected", _DOWN),
        (912, "west", "network", "disconnected", _DOWN),
    )
)


def draw() -> str:
    """The picture, as SVG: the same each time."""
    console = Console(
        record=True, width=80, height=24, file=io.StringIO(), force_terminal=True, highlight=False
    )
    lines = stream_lines(HEALTHS, lambda consumer, one: _RATES.get((consumer, one.stream), 0.0))
    console.print(live_screen(lines, EVENTS, 80, 24))
    drawn = console.export_svg(title="instep run", unique_id="live-view")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # it would fetch a font


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
