"""The tables of the pipeline by a plain loop over `changes`: what Spark must come to, too."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.instep_spark.lake.log_kit import Row

FLAPPING_WITHIN_US = 600_000_000
SEVERITIES = ("WARNING", "MINOR", "MAJOR", "CRITICAL")
Key = tuple[str, str, str]


@dataclass
class Episode:
    episode: int
    raised_at: int
    state: str
    severity: str | None
    worst: str | None
    changes: int = 0
    intermittent: int = 0
    statements: int = 1
    flapping: int = 0
    cleared_at: int | None = None
    ended_by: str | None = None


@dataclass
class Minute:
    """How a stream was followed in one minute of our time."""

    ordinal: int = 0
    records: int = 0
    delays_us: list[int] = field(default_factory=list)
    attempt: int = 0
    realignments: int = 0
    sweeps: int = 0

    @property
    def facts(self) -> tuple[object, ...]:
        """As `stream_health` has them."""
        delays_s = [delay / 1e6 for delay in self.delays_us]
        mean_s = pytest.approx(sum(delays_s) / len(delays_s), abs=1e-6) if delays_s else None
        return (
            *(self.ordinal, self.records, len(delays_s), mean_s, max(delays_s, default=None)),
            *("full fidelity" if delays_s else None, self.attempt, self.realignments, self.sweeps),
        )


@dataclass
class Model:
    """State after some rows; `rows` in the order of ordinals."""

    entities: dict[Key, Row] = field(default_factory=dict)
    marks: dict[Key, int] = field(default_factory=dict)
    open: dict[Key, Row] = field(default_factory=dict)
    """What holds now in `history` and `alarms`: ends are remembered there."""
    shown: dict[Key, int] = field(default_factory=dict)
    ended: dict[Key, Row] = field(default_factory=dict)
    history: dict[Key, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    alarms: dict[Key, list[Episode]] = field(default_factory=lambda: defaultdict(list))
    began: dict[tuple[str, str, int], int] = field(default_factory=dict)
    minutes: dict[Key, Minute] = field(default_factory=lambda: defaultdict(Minute))
    """By consumer, stream and begin of the minute in microseconds."""
    swept: dict[tuple[str, str], int] = field(default_factory=dict)
    """Where the last sweep of each stream was made."""

    def read(self, rows: list[Row], statements: list[Row] | None = None) -> None:
        """`statements`: whole ones, where the rows are changes."""
        for row in sorted(rows, key=lambda row: row.ordinal):
            self._follow(row)
        for row in sorted(rows if statements is None else statements, key=lambda row: row.ordinal):
            match row.kind:
                case "ATTEMPT":
                    self.began[row.consumer, row.stream, row.attempt] = row.committed_at
                case "SWEEP":
                    self._sweep(row)
                case "POSITION":
                    pass
                case _:
                    for one in row.each:
                        self._store(one)
                        self._tell(one)

    def current(self) -> dict[Key, tuple[Any, ...]]:
        """Body, token and mark of each entity that exists."""
        return {key: (row.body, row.token, self.marks[key]) for key, row in self.entities.items()}

    def _store(self, row: Row) -> None:
        key = row.at
        stored = self.entities.get(key)
        if stored is not None and self._overtakes(stored, row):
            if row.shown:
                self.marks[key] = row.attempt
            return
        if row.ends:
            self.entities.pop(key, None)
            return
        self.entities[key] = row
        self.marks[key] = row.attempt

    def _follow(self, row: Row) -> None:
        minute_us = row.committed_at - row.committed_at % 60_000_000
        minute = self.minutes[row.consumer, row.stream, str(minute_us)]
        minute.ordinal = row.ordinal
        minute.attempt = max(minute.attempt, row.attempt)
        minute.realignments += row.kind == "ATTEMPT"
        minute.sweeps += row.kind == "SWEEP"
        if row.key:
            minute.records += 1
            if row.token:
                minute.delays_us.append(row.committed_at - row.appended_at)

    def _overtakes(self, stored: Row, row: Row) -> bool:
        """Whether `row` changes nothing, because what is stored, or has ended, is newer (A3)."""
        if row.shown and (stored.shown or stored.ordinal <= self.swept.get(row.at[:2], 0)):
            return False  # a baseline that was read later, or after a sweep (A14)
        return stored.lineage == row.lineage and newer(stored, row)

    def _tell(self, row: Row) -> None:
        key = row.at
        stored, end = self.open.get(key), self.ended.get(key)
        known = stored or end
        if known is not None and self._overtakes(known, row):
            if row.shown and stored is not None:
                self.shown[key] = row.attempt
            return
        if row.shown and stored is not None and stored.body == row.body:
            self.shown[key] = row.attempt
            return
        past = self.history[key]
        begin = max([row.appended_at, *(one["to"] or one["from"] for one in past)])
        if row.ends:
            if self.open.pop(key, None) is not None:
                self.ended[key] = row
                by = "CLEAR" if row.kind == "CREATE_UPDATE" else row.kind
                past[-1] |= {"to": begin, "by": by}
                if row.detector:
                    self._clear(key, row.event_at, by)
            return
        self.open[key] = row
        self.shown[key] = row.attempt
        if stored is not None and same(stored, row):
            return
        if stored is not None:
            past[-1] |= {"to": begin, "by": "UPDATE"}
        past.append({"from": begin, "to": None, "by": None, "body": row.body, "at": row.ordinal})
        if row.detector:
            self._alarm(key, row, raised=stored is None)

    def _alarm(self, key: Key, row: Row, *, raised: bool) -> None:
        episodes = self.alarms[key]
        intermittent = int(row.state == "INTERMITTENT")
        if raised:
            last = episodes[-1] if episodes else None
            near = last is not None and row.event_at - (last.cleared_at or 0) <= FLAPPING_WITHIN_US
            flapping = last.flapping + 1 if last is not None and near else 0
            episodes.append(
                Episode(
                    row.ordinal,
                    row.event_at,
                    row.state,
                    row.severity,
                    row.severity,
                    intermittent=intermittent,
                    flapping=flapping,
                )
            )
            return
        now = episodes[-1]
        now.changes += row.severity != now.severity
        now.intermittent += intermittent and now.state != "INTERMITTENT"
        now.statements += 1
        now.state, now.severity = row.state, row.severity
        now.worst = max(filter(None, (now.worst, row.severity)), key=SEVERITIES.index, default=None)

    def _clear(self, key: Key, at: int, by: str) -> None:
        now = self.alarms[key][-1]
        now.cleared_at, now.ended_by, now.state = max(at, now.raised_at), by, "CLEAR"

    def _sweep(self, sweep: Row) -> None:
        stream = (sweep.consumer, sweep.stream)
        self.swept[stream] = sweep.ordinal
        for key in [k for k in self.entities if k[:2] == stream]:
            if self.marks[key] < sweep.attempt:
                del self.entities[key]
        # What a baseline has read compares with nothing that comes now (A14).
        for rows in (self.entities, self.open):
            for key, row in rows.items():
                if key[:2] == stream and row.shown:
                    rows[key] = replace(row, lineage=-1)
        for key in [k for k in self.open if k[:2] == stream]:
            if self.shown[key] >= sweep.attempt:
                continue
            at = self.began[sweep.consumer, sweep.stream, sweep.attempt]
            row = self.open.pop(key)
            last = self.history[key][-1]
            last |= {"to": max(last["from"], at), "by": "SWEEP"}
            if row.detector:
                self._clear(key, at, "SWEEP")


def newer(stored: Row, row: Row) -> bool:
    if stored.offset >= 0 and row.offset >= 0 and stored.partition == row.partition:
        return stored.offset > row.offset
    return stored.appended_at > row.appended_at


def same(stored: Row, row: Row) -> bool:
    place = (stored.lineage, stored.partition, stored.offset, stored.appended_at)
    if place != (row.lineage, row.partition, row.offset, row.appended_at):
        return False
    return row.offset >= 0 or stored.body == row.body
