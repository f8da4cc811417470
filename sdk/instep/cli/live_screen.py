"""The screen of `instep run`: which stream is how, trouble first. Pure: the same data, width and
height give the same screen.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import Final

import msgspec
from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from instep.alignment.lag import Fidelity
from instep.cli.output import moment, plain
from instep.model.durations import duration
from instep.model.freshness import FreshnessState
from instep.model.position import Phase
from instep.runtime.health import ConsumerEvent, ConsumerState, Health, StreamHealth

__all__ = ["Line", "Trouble", "live_screen", "stream_lines"]


class Trouble(IntEnum):
    """How much a stream needs somebody to look at it."""

    NONE = 0
    WORKING = 1
    """It is being aligned, or a little behind: it comes right by itself."""
    BEHIND = 2
    """It is read so late that something is lost, or nearly, or records of it cannot be read."""
    AWAY = 3
    """It has no connection, or its connections come no further; it is tried again."""
    FAILED = 4
    """An error that does not pass by itself."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, or a consumer that has none."""

    consumer: str
    stream: str
    """Empty for a consumer without streams."""
    trouble: Trouble
    state: str
    stale: bool
    """Whether the numbers are those of a connection that is over."""
    records: int
    records_per_s: float
    read_delay_s: float | None
    fidelity: Fidelity | None
    error: str
    """Why it is in trouble; empty if it is not."""
    remarks: tuple[str, ...]
    """What is worth knowing besides."""

    @property
    def name(self) -> str:
        return f"{self.consumer} / {self.stream}" if self.stream else self.consumer


_STYLES: Final = {
    Trouble.NONE: "green",
    Trouble.WORKING: "yellow",
    Trouble.BEHIND: "bold yellow",
    Trouble.AWAY: "bold red",
    Trouble.FAILED: "bold red",
}
_STALE: Final = "dim"
_LEGEND: Final = "Delay: how late records are read. In brackets: the last known, not of now."
_MIN_ROWS: Final = 3
_MAX_EVENTS: Final = 8
_MEDIUM, _WIDE = 76, 116
"""Columns from which on a screen has room for the records, and for more of the rest."""


def stream_lines(
    healths: Collection[Health], rate: Callable[[str, StreamHealth], float] = lambda *_: 0.0
) -> list[Line]:
    """What the screen and the JSON lines show: a line for each stream, the most troubled first.

    `rate` gives the records per second of a consumer's stream.
    """
    lines = [
        line
        for health in healths
        for line in (
            [_of_stream(health, stream, rate) for stream in health.streams]
            or [_of_consumer(health)]
        )
    ]
    return sorted(lines, key=lambda line: (-line.trouble, line.consumer, line.stream))


def _of_stream(
    health: Health, stream: StreamHealth, rate: Callable[[str, StreamHealth], float]
) -> Line:
    trouble, state = _judged(health, stream)
    error = stream.refusal or stream.no_progress or stream.last_error or health.error
    stale = stream.freshness.state is FreshnessState.STALE
    if stale:
        error = f"it was not heard for {stream.heard_s:,.0f} s"
    remarks = [f"{kind} × {count:,}" for kind, count in sorted(stream.deviations.items())]
    remarks += [f"{stream.quarantined:,} in quarantine"] if stream.quarantined else []
    remarks += [f"left {health.left}"] if health.left else []
    return Line(
        consumer=health.consumer,
        stream=stream.stream,
        trouble=trouble,
        state=state,
        # To stop is to disconnect: what was known then is the last word, unless it was stale.
        stale=stale
        or (
            not stream.connected
            and (health.state is not ConsumerState.STOPPED or bool(stream.last_error))
        ),
        records=stream.records,
        records_per_s=round(rate(health.consumer, stream), 1),
        read_delay_s=stream.read_delay_s,
        fidelity=stream.fidelity,
        error=error if trouble >= Trouble.AWAY else "",
        remarks=(*remarks, *_pair(health)),
    )


def _judged(health: Health, stream: StreamHealth) -> tuple[Trouble, str]:
    fresh = stream.freshness
    if stream.failed or health.state is ConsumerState.FAILED:
        return Trouble.FAILED, "failed"
    if health.state is ConsumerState.STOPPED:
        # All are without a connection by now; one that had none before shows why.
        trouble = Trouble.BEHIND if stream.unreadable else Trouble.NONE
        trouble = Trouble.AWAY if stream.last_error else trouble
        return trouble, f"{fresh.phase_text}, stopped"
    if fresh.state is FreshnessState.NOT_OFFERED:
        return Trouble.BEHIND, fresh.text
    if fresh.state is FreshnessState.STALE:
        return Trouble.AWAY, "stale"
    if stream.refusal:
        return Trouble.FAILED, "unreadable"
    if stream.no_progress:
        return Trouble.AWAY, "no progress"
    if not stream.connected:
        if stream.last_error:
            return Trouble.AWAY, "no connection"
        return Trouble.WORKING, "connecting"
    lossy = stream.fidelity in {Fidelity.LOST, Fidelity.AT_RISK}
    if lossy or stream.phase in {Phase.LOST, Phase.SWEEP_HELD}:
        return Trouble.BEHIND, str(stream.phase)
    if stream.phase is not Phase.ALIGNED:
        return Trouble.WORKING, f"{stream.phase} ({stream.attempt})"
    if stream.unreadable:
        return Trouble.BEHIND, fresh.text
    settled = fresh.in_step and stream.fidelity is Fidelity.FULL
    return Trouble.NONE if settled else Trouble.WORKING, fresh.text


def _of_consumer(health: Health) -> Line:
    """A consumer without streams: one that has not found them yet, or one of messages."""
    intake = health.intake
    failed = health.state is ConsumerState.FAILED
    away = bool(health.error) and health.state is not ConsumerState.STOPPED
    blocked = bool(intake and intake.blocked)
    remarks: list[str] = []
    if intake is not None:
        remarks += [f"listens at {intake.address}"] if intake.address else []
        remarks += [f"{intake.duplicates:,} duplicates, {intake.refused:,} refused"]
        remarks += [f"{kind} × {count:,}" for kind, count in sorted(intake.deviations.items())]
    error = health.error
    if intake is not None and intake.blocked:
        error = error or f"{len(intake.blocked):,} blocked, the first: {intake.blocked[0]}"
    trouble = Trouble.FAILED if failed else Trouble.AWAY if away or blocked else Trouble.NONE
    if trouble is Trouble.NONE and health.state is ConsumerState.STARTING:
        trouble = Trouble.WORKING
    return Line(
        consumer=health.consumer,
        stream="",
        trouble=trouble,
        state=str(health.state),
        stale=False,
        records=intake.accepted if intake else 0,
        records_per_s=0.0,
        read_delay_s=None,
        fidelity=None,
        error=error if trouble >= Trouble.AWAY else "",
        remarks=(*remarks, *_pair(health)),
    )


def _pair(health: Health) -> tuple[str, ...]:
    if health.pair is None:
        return ()
    held = f"lease held by {health.pair.holder or 'nobody'}, epoch {health.pair.epoch}"
    return (f"{health.pair.role}; {held}",)


def live_screen(
    lines: Sequence[Line], events: Sequence[ConsumerEvent], width: int, height: int
) -> RenderableType:
    """The screen, at most `width` columns wide and `height` rows high: a heading, a row for each
    stream, a panel with the errors, and the last events.
    """
    errors = _errors(lines, width, most=max(2, height // 4))
    panel_rows = len(errors) + 2 if errors else 0
    # The heading with its rule, the summary, the legend, and what is said of rows left out.
    room = height - 6 - panel_rows
    shown = lines[: max(_MIN_ROWS, room - min(len(events), 3))]
    left = room - len(shown)
    parts: list[RenderableType] = [_summary(lines, width), _table(shown, width)]
    if len(shown) < len(lines):
        rest = lines[len(shown) :]
        well = "all well" if rest[0].trouble is Trouble.NONE else "see --format jsonl"
        parts.append(_one_line(f"  … and {len(rest):,} more, {well}", width, _STALE))
        left -= 1
    if errors:
        parts.append(Panel(Group(*errors), title="Errors", box=ROUNDED, style="red", width=width))
    tail = events[-min(_MAX_EVENTS, max(left, 0)) :] if left > 0 else ()
    parts += [_one_line(_told(event), width) for event in tail]
    parts.append(_one_line(_LEGEND, width, _STALE))
    return Group(*parts)


def _summary(lines: Sequence[Line], width: int) -> Text:
    streams = [line for line in lines if line.stream]
    aligned = sum(line.trouble is Trouble.NONE for line in streams)
    troubled = sum(line.trouble >= Trouble.BEHIND for line in lines)
    text = f"{aligned:,} of {len(streams):,} streams are well"
    text += f", {troubled:,} in trouble" if troubled else ""
    text += f"; {sum(line.records_per_s for line in lines):,.0f} records/s"
    return _one_line(text, width, "bold red" if troubled else "bold")


def _table(lines: Sequence[Line], width: int) -> Table:
    medium, wide = width >= _MEDIUM, width >= _WIDE
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), width=width)
    table.add_column("Consumer / stream", ratio=3, no_wrap=True, overflow="ellipsis")
    table.add_column("State", width=16, no_wrap=True, overflow="ellipsis")
    if medium:
        table.add_column("Records", width=10, justify="right", no_wrap=True)
    table.add_column("/s", width=7, justify="right", no_wrap=True)
    table.add_column("Delay", width=9, justify="right", no_wrap=True)
    if medium:
        table.add_column("Fidelity", width=9 if not wide else 18, no_wrap=True)
    if wide:
        table.add_column("Remarks", ratio=4, no_wrap=True, overflow="ellipsis")
    for line in lines:
        cells = [Text(plain(line.name)), Text(line.state, style=_STYLES[line.trouble])]
        cells += [Text(f"{line.records:,}")] * medium
        cells += [_now(line, f"{line.records_per_s:,.0f}")]
        cells += [_now(line, "" if line.read_delay_s is None else duration(line.read_delay_s))]
        if medium:
            cells += [_fidelity(line, wide)]
        if wide:
            cells += [Text(plain("; ".join(line.remarks)))]
        table.add_row(*cells)
    return table


def _now(line: Line, text: str) -> Text:
    """A number, in brackets where it is not of now."""
    return Text(f"({text})", style=_STALE) if line.stale and text else Text(text)


def _fidelity(line: Line, wide: bool) -> Text:
    if line.fidelity is None:
        return Text("")
    text = str(line.fidelity) if wide else str(line.fidelity).removesuffix(" fidelity")
    if line.stale:
        return Text(f"({text})", style=_STALE)
    return Text(text, style="green" if line.fidelity is Fidelity.FULL else "bold yellow")


def _errors(lines: Sequence[Line], width: int, most: int) -> list[Text]:
    """The errors as rows of the panel: each whole if there is room, the same one told once."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.error:
            found.setdefault(plain(line.error), []).append(plain(line.name))
    rows: list[str] = []
    for error, names in found.items():
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        rows += textwrap.wrap(f"{names[0]}{more}: {error}", width - 4, break_on_hyphens=False)
    if len(rows) > most:
        rows = [*rows[: most - 1], f"… and {len(rows) - most + 1:,} lines more"]
    return [Text(row, no_wrap=True, overflow="ellipsis") for row in rows]


def _told(event: ConsumerEvent) -> str:
    about = f"{event.consumer} / {event.stream}" if event.stream else event.consumer
    return f"{moment(event.at_us)[11:]}  {about}  {event.kind}: {event.text}"


def _one_line(text: str, width: int, style: str = "") -> Text:
    line = Text(plain(text), style=style, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line
