"""What stands in the tables of the monitor. Pure: the same reading and width give the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from instep.cli.monitor.reading import MonitorSnapshot
from instep.cli.output import moment, plain
from instep.cli.sequences import sequence_facts, sequence_remark
from instep.metrics.reading_bar import reading_bar
from instep.model.durations import duration

__all__ = [
    "TABLES",
    "TableLayout",
    "bar_text",
    "rates_of",
    "sparkline",
    "stream_details",
    "table_rows",
    "verdict_of",
]

_TICKS: Final = "▁▂▃▄▅▆▇█"
_SPARKS: Final = 8
_BAR: Final = 12

Rates = Mapping[tuple[str, str], Sequence[float]]
"""Consumer and stream → records a second, the newest last."""
Cells = Sequence[tuple[str, ...]]
"""The rows of a table: in each a key, and the text of each column."""


class TableLayout(msgspec.Struct, frozen=True):
    """One table: its columns with their widths in characters, at first those of a terminal of 80
    columns, and behind them those that a wide one has, too.
    """

    title: str
    columns: tuple[tuple[str, int], ...]
    wide: tuple[tuple[str, int], ...] = ()
    empty: str = ""
    """What is said where there are no rows."""


TABLES: Final = {
    "streams": TableLayout(
        "Streams",
        (("", 1), ("Stream", 19), ("State", 16), ("Heard", 8), ("Behind", 8), ("", _BAR)),
        (("Records/s", 9), ("Unproven", 8), ("Quarantine", 10), ("Attempt", 7)),
        "no stream was found",
    ),
    "sequences": TableLayout(
        "Sequences",
        (("Sequence", 28), ("Missing", 16), ("Held", 6), ("Waiting", 7), ("Why", 12)),
        empty="no sequence is in trouble",
    ),
    "unproven": TableLayout(
        "Unproven",
        (("Entity", 30), ("Class", 18), ("Why", 24)),
        (("Proven at", 19),),
        empty="every entity is proven",
    ),
    "quarantine": TableLayout(
        "Quarantine",
        (("ID", 6), ("Received", 19), ("Times", 5), ("Replayed", 8), ("Why", 32)),
        (("Stream", 30),),
        empty="nothing is in quarantine",
    ),
    "dead": TableLayout(
        "Dead",
        (("ID", 6), ("Since", 19), ("Number", 7), ("End", 10), ("Why", 28)),
        (("Sequence", 30),),
        empty="nothing is in the dead letter",
    ),
    "derived": TableLayout(
        "Derived",
        (("What", 12), ("Of", 46), ("Count", 12)),
        empty="nothing that is derived has a summary, or nothing stands in it",
    ),
    "events": TableLayout(
        "Events",
        (("At", 19), ("Event", 16), ("Text", 37)),
        (("Of", 30),),
        empty="no event was told; only a port tells events",
    ),
}
"""Name → table, in the order in which they are shown; with two margins they fit 80 columns."""


def verdict_of(reading: MonitorSnapshot) -> str:
    """One line: whether all is in step, of when, and from where that is known."""
    faults = [fault for one in reading.told["consumers"] for fault in one["faults"]]
    if reading.told["ready"]:
        said = "IN STEP"
    elif not reading.told["consumers"]:
        said = "NOTHING KNOWN"
    else:
        first = faults[0] if faults else {"part": "consumer", "text": "it has not begun"}
        more = f" (+{len(faults) - 1})" if len(faults) > 1 else ""
        said = f"NOT IN STEP: {first['part']}: {first['text']}{more}"
    error = f" – {reading.error}" if reading.error else ""
    return plain(f"{said} – {reading.told['at'][11:19]}, by {reading.source}{error}")


def table_rows(
    name: str, reading: MonitorSnapshot, rates: Rates
) -> list[tuple[str, tuple[str, ...]]]:
    """The rows of a table, each with a key of its own; of all its columns, wide ones too."""
    return [(key, tuple(map(plain, cells))) for key, *cells in _ROWS[name](reading, rates)]


def _streams(reading: MonitorSnapshot, rates: Rates) -> Cells:
    found: list[tuple[str, ...]] = []
    for consumer, one in _all_streams(reading):
        found.append(
            (
                f"{consumer} / {one['stream']}",
                " " if one["ready"] else "!",
                f"{consumer} / {one['stream']}",
                one["state"],
                duration(one["heard_age_s"]),
                duration(one["behind_s"]),
                bar_text(one),
                sparkline(rates.get((consumer, one["stream"]), ())),
                f"{one['unproven']:,}",
                f"{one['quarantined']:,}",
                f"{one['attempt']:,}",
            )
        )
    return sorted(found, key=lambda row: (row[1] == " ", row[2]))


def _sequences(reading: MonitorSnapshot, rates: Rates) -> Cells:  # noqa: ARG001
    found: list[tuple[str, ...]] = []
    for one in reading.sequences:
        facts = sequence_facts(one)
        found.append(
            (
                f"{one.consumer} / {one.stream}",
                f"{one.consumer} / {one.stream}",
                facts["missing"] or "—",
                f"{one.held:,}",
                f"{one.waiting:,}",
                sequence_remark(one, facts) or facts["phase"],
            )
        )
    return found


def _unproven(reading: MonitorSnapshot, rates: Rates) -> Cells:  # noqa: ARG001
    return [
        (
            f"{one.consumer} {one.stream} {one.key}",
            one.key,
            one.entity_class,
            one.unproven,
            moment(one.proven_at_us) if one.proven_at_us else "never",
        )
        for one in reading.unproven
    ]


def _quarantine(reading: MonitorSnapshot, rates: Rates) -> Cells:  # noqa: ARG001
    return [
        (
            f"{one.consumer} {one.id}",
            str(one.id),
            moment(one.received_at_us),
            f"{one.times:,}",
            "no" if one.replayed_at_us is None else "yes",
            one.reason,
            f"{one.consumer} / {one.stream}",
        )
        for one in reading.quarantined
    ]


def _dead(reading: MonitorSnapshot, rates: Rates) -> Cells:  # noqa: ARG001
    return [
        (
            f"{one.consumer} {one.stream} {one.id} {one.number}",
            str(one.id),
            moment(one.dead_at_us),
            "—" if one.number < 0 else str(one.number),
            one.end,
            one.reason,
            f"{one.consumer} / {one.stream}",
        )
        for one in reading.dead
    ]


def _derived(reading: MonitorSnapshot, rates: Rates) -> Cells:  # noqa: ARG001
    """The last column of a summary counts; what is before it says what."""
    found: list[tuple[str, ...]] = []
    for name, rows in reading.summaries.items():
        for row in rows:
            *of, count = (str(value) for value in row.values())
            found.append((f"{name} {of}", name, " / ".join(of), count))
    return found


def _events(reading: MonitorSnapshot, rates: Rates) -> Cells:  # noqa: ARG001
    events = list(enumerate(reading.told.get("events", ())))
    return [
        (
            f"{one['at']} {number}",
            one["at"][:19].replace("T", " "),
            one["event"],
            one["text"],
            " / ".join(filter(None, (one["consumer"], one["stream"]))),
        )
        for number, one in reversed(events)
    ]


_ROWS: Final = {
    "streams": _streams,
    "sequences": _sequences,
    "unproven": _unproven,
    "quarantine": _quarantine,
    "dead": _dead,
    "derived": _derived,
    "events": _events,
}


def stream_details(reading: MonitorSnapshot, key: str) -> str:
    """What stands below the table about one stream."""
    for consumer, one in _all_streams(reading):
        if f"{consumer} / {one['stream']}" == key:
            margins = one["margin_s"]
            told = [key]
            told += [_margin(name, left) for name, left in margins.items() if left is not None]
            faults = _faults_of(reading, consumer, one["stream"])
            told += faults or ([one["error"]] if one["error"] else [])
            return "\n".join(map(plain, told))
    return ""


def _margin(name: str, left_s: float) -> str:
    if left_s < 0:
        return f"{name}: over for {duration(-left_s)}, something may be lost"
    return f"{name}: {duration(left_s)} left"


def _faults_of(reading: MonitorSnapshot, consumer: str, stream: str) -> list[str]:
    return [
        f"{fault['part']}: {fault['text']}"
        for one in reading.told["consumers"]
        if one["consumer"] == consumer
        for fault in one["faults"]
        if fault["stream"] in ("", stream)
    ]


def _all_streams(reading: MonitorSnapshot) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        (one["consumer"], stream) for one in reading.told["consumers"] for stream in one["streams"]
    ]


def rates_of(
    reading: MonitorSnapshot, before: MonitorSnapshot | None, for_s: float
) -> dict[tuple[str, str], float]:
    """Records a second of each stream since the reading before."""
    if before is None or for_s <= 0:
        return {}
    earlier = {(consumer, one["stream"]): one["records"] for consumer, one in _all_streams(before)}
    return {
        (consumer, one["stream"]): max(0, one["records"] - counted) / for_s
        for consumer, one in _all_streams(reading)
        if (counted := earlier.get((consumer, one["stream"]))) is not None
    }


def sparkline(rates: Sequence[float]) -> str:
    """The last rates as a line of blocks, beside the highest of them."""
    shown = rates[-_SPARKS:]
    high = max(shown, default=0.0)
    if not high:
        return "▁" * len(shown)
    return "".join(_TICKS[round(rate / high * (len(_TICKS) - 1))] for rate in shown)


def bar_text(stream: Mapping[str, Any]) -> str:
    """What may be missing, from now to the right, with a `│` for each mark (compaction delay, then
    tombstone retention): it should end before the first.
    """
    bar = reading_bar(stream)
    if bar is None:
        return ""
    marks = {int(at * _BAR) for at in (bar.compaction, bar.retention) if at is not None}
    filled = max(1, round(bar.behind * _BAR))
    return "".join(
        ("┿" if n < filled else "│") if n in marks else "━" if n < filled else "─"
        for n in range(_BAR)
    )
