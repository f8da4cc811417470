"""The live view as text, at the widths that terminals have."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from docs import live_picture
from docs.live_picture import EVENTS, HEALTHS, stream
from instep.alignment.lag import Fidelity
from instep.cli.live_screen import Trouble, live_screen, stream_lines
from instep.model.position import Phase
from instep.runtime.health import ConsumerEvent, ConsumerState, Health, IntakeHealth, StreamHealth

WIDTHS = [60, 80, 132, 200]


def screen(
    healths: tuple[Health, ...],
    width: int = 80,
    height: int = 24,
    events: tuple[ConsumerEvent, ...] = (),
) -> list[str]:
    """The rows of the screen, as they stand on a terminal."""
    console = Console(width=width, height=height, file=io.StringIO(), highlight=False)
    with console.capture() as captured:
        console.print(live_screen(stream_lines(healths, lambda *_: 2.0), events, width, height))
    return captured.get().splitlines()


def consumer(name: str, *streams: StreamHealth, **values: object) -> Health:
    usual: dict[str, object] = {"state": ConsumerState.RUNNING, "error": ""}
    return Health(consumer=name, streams=streams, **usual | values)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("height", [10, 24, 60])
@pytest.mark.parametrize("count", [1, 4, 40])
def test_it_fits_and_has_a_row_for_each_stream(width: int, height: int, count: int) -> None:
    dead = [
        stream(f"s{n}", n, connected=False, last_error=f"error {n} " * 20) for n in range(count)
    ]
    rows = screen((consumer("west", *dead), *HEALTHS), width, height, EVENTS * 4)
    assert max(map(len, rows)) <= width
    assert len(rows) <= max(height, 14)
    listed = [row for row in rows if row.startswith(("west / s", "east /", "west /"))]
    if height == 60 and count < 40:
        assert len([row for row in listed if "no connection" in row]) >= count
        assert len(listed) >= count + 4
    else:
        assert listed


@pytest.mark.parametrize("width", WIDTHS)
def test_trouble_comes_first_and_stale_numbers_stand_in_brackets(width: int) -> None:
    rows = screen(HEALTHS, width)
    names = [row.split("  ")[0] for row in rows[3:7]]
    assert names == ["west / alarms", "west / network", "east / alarms", "east / network"]
    assert "(12 ms)" in rows[3]
    assert "no connection" in rows[3]
    assert " 31 ms" in rows[5]
    assert "(" not in rows[5]
    assert rows[0].startswith("2 of 4 streams are well, 2 in trouble")


@pytest.mark.parametrize(
    ("values", "trouble"),
    [
        ({}, Trouble.NONE),
        ({"caught_up": False}, Trouble.WORKING),
        ({"unproven": 3}, Trouble.NONE),
        ({"unreadable": 2, "unproven": 3}, Trouble.BEHIND),
    ],
)
def test_what_is_aligned_is_worded_as_everywhere(values: Any, trouble: Trouble) -> None:
    one = stream("s", 1, **values)
    [line] = stream_lines([consumer("west", one)])
    assert (line.state, line.trouble) == (one.freshness.text, trouble)


@pytest.mark.parametrize("width", WIDTHS)
def test_an_error_is_whole_in_a_panel_and_told_once(width: int) -> None:
    rows = screen(HEALTHS, width)
    inside = [row[2:-2].rstrip() for row in rows if row.startswith("│")]
    error = HEALTHS[1].streams[0].last_error
    assert " ".join(inside) == f"west / alarms and 1 more: {error}"


def test_without_trouble_there_is_no_panel() -> None:
    rows = screen(HEALTHS[:1])
    assert not any("Errors" in row for row in rows)
    assert rows[0] == "2 of 2 streams are well; 4 records/s"


def test_what_a_stranger_writes_does_not_steer_the_terminal() -> None:
    evil = "x\x1b[2J\r\n\u202e[bold]y"
    streams = (stream(evil, 1, connected=False, last_error=evil, deviations={evil: 1}),)
    event = ConsumerEvent(0, evil, evil, "disconnected", evil)
    for width in WIDTHS:
        rows = screen((consumer(evil, *streams),), width, 24, (event,))
        assert all(row.isprintable() for row in rows), [ascii(row) for row in rows]
        assert any("[bold]y" in row for row in rows)


@pytest.mark.parametrize(
    ("values", "state", "trouble", "shown"),
    [
        ({}, ConsumerState.RUNNING, Trouble.NONE, "aligned"),
        (
            {"phase": Phase.ALIGNING, "attempt": 3},
            ConsumerState.RUNNING,
            Trouble.WORKING,
            "aligning (3)",
        ),
        ({"connected": False}, ConsumerState.STARTING, Trouble.WORKING, "connecting"),
        ({"fidelity": Fidelity.REDUCED}, ConsumerState.RUNNING, Trouble.WORKING, "aligned"),
        ({"fidelity": Fidelity.AT_RISK}, ConsumerState.RUNNING, Trouble.BEHIND, "aligned"),
        ({"phase": Phase.SWEEP_HELD}, ConsumerState.RUNNING, Trouble.BEHIND, "sweep-held"),
        ({"phase": Phase.LOST}, ConsumerState.RUNNING, Trouble.BEHIND, "lost"),
        ({"no_progress": "no further"}, ConsumerState.RETRYING, Trouble.AWAY, "no progress"),
        (
            {"connected": False, "last_error": "e"},
            ConsumerState.RETRYING,
            Trouble.AWAY,
            "no connection",
        ),
        ({"failed": True, "last_error": "e"}, ConsumerState.RUNNING, Trouble.FAILED, "failed"),
        ({"connected": False}, ConsumerState.FAILED, Trouble.FAILED, "failed"),
        ({"connected": False}, ConsumerState.STOPPED, Trouble.NONE, "aligned, stopped"),
        (
            {"connected": False, "unreadable": 41},
            ConsumerState.STOPPED,
            Trouble.BEHIND,
            "aligned, 41 unreadable, stopped",
        ),
        (
            {"connected": False, "last_error": "e"},
            ConsumerState.STOPPED,
            Trouble.AWAY,
            "aligned, stopped",
        ),
    ],
)
def test_how_a_stream_is_judged(
    values: dict[str, object], state: ConsumerState, trouble: Trouble, shown: str
) -> None:
    [line] = stream_lines([consumer("east", stream("network", 1, **values), state=state)])
    assert (line.trouble, line.state) == (trouble, shown)
    stopped_well = state is ConsumerState.STOPPED and not values.get("last_error")
    assert line.stale is (not values.get("connected", True) and not stopped_well)


def test_a_consumer_of_messages_has_a_line() -> None:
    intake = IntakeHealth(
        address="http://127.0.0.1:1/",
        accepted=7,
        duplicates=1,
        refused=2,
        commits=3,
        queued=0,
        delivered=7,
        handler_failures=0,
        blocked=("urn:a",),
        deviations={},
    )
    health = consumer("inbox", intake=intake)
    [line] = stream_lines([health])
    assert (line.name, line.records, line.trouble) == ("inbox", 7, Trouble.AWAY)
    assert "1 blocked, the first: urn:a" in line.error
    assert "listens at http://127.0.0.1:1/" in "\n".join(screen((health,), 200))
    [well] = stream_lines([msgspec.structs.replace(health, intake=None)])
    assert well.trouble is Trouble.NONE


def test_the_picture_of_the_documentation_is_current() -> None:
    # To draw it anew: python -m docs.live_picture
    assert live_picture.PICTURE.read_text(encoding="utf-8") == live_picture.draw()
    rows = screen(HEALTHS, 80, 24, EVENTS)
    assert len(rows) <= 24
