"""Turns the episodes of alarms on and off, and keeps them in step with what is committed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from instep.model.columns import RecordColumns
from instep.model.position import Position
from instep.model.records import Record, RecordHeader, RecordType
from instep_sql.alarms.detector import DETECTOR, ApproximateTime, Detector
from instep_sql.alarms.episodes import NO_LINEAGE, SWEEP, Episode, LogReading, followed
from instep_sql.engine.definitions import define, definition_of
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.options import SqlOptions

__all__ = ["are_kept", "follow", "keep", "swept", "trim"]

_NAME: Final = "alarms"
_VERSION: Final = "1"
_REMOVE: Final = text("DELETE FROM instep_alarm")
_PAGE_RECORDS: Final = 1_000
_TRIM_RECORDS: Final = 1_000
_ENDS_OF_ANY: Final = frozenset({DETECTOR, "", "ANY_CLASS"})
"""A header-only end names no class."""

_DETECTOR_COLUMNS: Final = tuple(
    name for name in Detector.__struct_fields__ if name not in ("state", "event")
)
_COLUMNS: Final = (
    *("stream_no", "key", "number", "event", "state", "worst_severity", "severity_changes"),
    *("intermittent_count", "statements", "flapping_count", "reduced", "ended_by"),
    *("first_raised_at_us", "raised_at_us", "raised_from_us", "raised_spread"),
    *("raised_precision", "stated_at_us", "cleared_at_us", "cleared_from_us", "cleared_spread"),
    *("cleared_precision", "lineage", "attempt", "partition", "offset", "appended_at_us"),
    *("digest", "last_state", *_DETECTOR_COLUMNS),
)


def _quoted(name: str) -> str:
    return f'"{name}"' if name == "offset" else name


_INSERT: Final = (
    f"INSERT INTO instep_alarm ({', '.join(map(_quoted, _COLUMNS))}) "  # noqa: S608 — constants only
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_UPDATE: Final = (
    f"UPDATE instep_alarm SET {', '.join(f'{_quoted(name)} = ?' for name in _COLUMNS)} WHERE id = ?"  # noqa: S608
)
_LAST: Final = """
    SELECT a.* FROM instep_alarm AS a
    WHERE a.stream_no = :no AND a.key IN {members} AND a.number = (
        SELECT max(b.number) FROM instep_alarm AS b
        WHERE b.stream_no = a.stream_no AND b.key = a.key)
"""
_SWEPT: Final = """
    UPDATE instep_alarm SET state = 'CLEAR', ended_by = :by, reduced = 1, lineage = :lineage,
        cleared_at_us = CASE WHEN raised_at_us > :at_us THEN raised_at_us ELSE :at_us END,
        cleared_spread = 'BEFORE'
    WHERE stream_no = :no AND ended_by IS NULL AND key IN {members}
"""
_GONE: Final = text("""
    SELECT a.key FROM instep_alarm AS a
    WHERE a.stream_no = :no AND a.ended_by IS NULL AND NOT EXISTS (
        SELECT 1 FROM instep_entity AS e WHERE e.stream_no = a.stream_no AND e.key = a.key)
""")
_UNPROVEN: Final = text("""
    UPDATE instep_alarm SET reduced = 1
    WHERE stream_no = :no AND ended_by IS NULL AND reduced = 0 AND key IN (
        SELECT key FROM instep_entity WHERE stream_no = :no AND proven = 0)
""")
_STORED: Final = text(f"""
    SELECT e.*, s.consumer, s.stream FROM instep_entity AS e
    JOIN instep_stream AS s ON s.id = e.stream_no
    WHERE e.class = '{DETECTOR}' AND e.id > :after ORDER BY e.id LIMIT :size
""")  # noqa: S608 — constants only
_TRIM: Final = """
    DELETE FROM instep_alarm WHERE id IN (
        SELECT id FROM instep_alarm
        WHERE id <= (SELECT max(id) FROM instep_alarm) - :keep AND ended_by IS NOT NULL
        ORDER BY id LIMIT :limit {unlocked})
"""


def are_kept(connection: Connection) -> bool:
    """Whether the store keeps episodes of alarms."""
    return definition_of(connection, _NAME) is not None


def keep(
    connection: Connection, dialect: Dialect, options: SqlOptions, *, wanted: bool, now_us: int
) -> None:
    """Keep episodes from now on, or no longer; does nothing if that is so already.

    Alarms that stand when they are turned on become episodes; what was before is not known.
    """
    if are_kept(connection) is wanted:
        return
    dialect.lock_for_migration(connection)
    if are_kept(connection) is wanted:
        return
    connection.execute(_REMOVE)
    define(connection, _NAME, _VERSION if wanted else None)
    if not wanted:
        return
    after = -1
    while True:
        values = {"after": after, "size": _PAGE_RECORDS}
        rows = connection.execute(_STORED, values).all()
        for row in rows:
            log = LogReading(row.lineage, row.attempt, now_us, None, options.alarm_names)
            episode = followed(None, _record(row), log)
            if episode is not None:
                episode.reduced = not episode.detector.event
                _write(connection, dialect, row.stream_no, [episode])
        if len(rows) < _PAGE_RECORDS:
            return
        after = rows[-1].id


def follow(
    connection: Connection,
    dialect: Dialect,
    options: SqlOptions,
    no: int,
    records: Sequence[Record],
    *,
    info: str,
    position: Position,
    now_us: int,
) -> None:
    """Open, change and end the episodes that these records of a stream are about, in order. `info`
    is the stored description of the stream; they are read under the lineage and the attempt of
    `position`.
    """
    concerned = _concerned(records)
    if not concerned:
        return
    query = text(_LAST.format(members=dialect.members("keys")))
    keys = json_array({record.key for record in concerned})
    found = connection.execute(query, {"no": no, "keys": keys})
    last = {row.key: _episode(row) for row in found}
    declared = json.loads(info)
    log = LogReading(
        position.lineage,
        position.attempt,
        now_us + declared.get("clock_offset_us", 0),
        declared.get("compaction_delay_s"),
        options.alarm_names,
    )
    changed: dict[tuple[str, int], Episode] = {}
    for record in concerned:
        episode = followed(last.get(record.key), record, log)
        if episode is not None:
            last[record.key] = changed[episode.key, episode.number] = episode
    _write(connection, dialect, no, changed.values())


def _concerned(records: Sequence[Record]) -> list[Record]:
    """The statements of detectors, and the ends that may be of one."""
    if isinstance(records, RecordColumns):
        if _ENDS_OF_ANY.isdisjoint(records.classes):
            return []
        return [
            records.at(index)
            for index, (name, ends) in enumerate(zip(records.classes, records.ends, strict=True))
            if name == DETECTOR or (ends and name in _ENDS_OF_ANY)
        ]
    return [
        record
        for record in records
        if record.entity_class == DETECTOR or (record.ends and record.entity_class in _ENDS_OF_ANY)
    ]


def swept(
    connection: Connection,
    dialect: Dialect,
    no: int,
    keys: Sequence[str],
    at_us: int,
    *,
    done: bool,
) -> None:
    """End the episodes of what a step of a sweep has removed: it was gone when the attempt began,
    at `at_us`. What the sweep leaves unproven may have ended, too.
    """
    if done:
        # Also what a process without episodes has ended.
        keys = [*keys, *connection.execute(_GONE, {"no": no}).scalars()]
    if keys:
        values = {
            "no": no,
            "keys": json_array(keys),
            "at_us": at_us,
            "by": SWEEP,
            "lineage": NO_LINEAGE,
        }
        connection.execute(text(_SWEPT.format(members=dialect.members("keys"))), values)
    if done:
        connection.execute(_UNPROVEN, {"no": no})


def trim(connection: Connection, dialect: Dialect, options: SqlOptions, appended: int) -> None:
    """Remove the oldest ended episodes that exceed the retention: a bounded number, but more than a
    commit appends.
    """
    statement = text(_TRIM.format(unlocked=dialect.skip_locked))
    limit = 2 * appended + _TRIM_RECORDS
    connection.execute(statement, {"keep": options.alarm_retention_records, "limit": limit})


def _write(connection: Connection, dialect: Dialect, no: int, episodes: Iterable[Episode]) -> None:
    inserted: list[tuple[Any, ...]] = []
    updated: list[tuple[Any, ...]] = []
    for one in episodes:
        values = _values(no, one)
        row = tuple([values[name] for name in _COLUMNS])
        if one.id is None:
            inserted.append(row)
        else:
            updated.append((*row, one.id))
    dialect.execute_many(connection, _INSERT, inserted)
    dialect.execute_many(connection, _UPDATE, updated)


_NO_TIME: Final = ApproximateTime(0)


def _values(no: int, one: Episode) -> dict[str, Any]:
    cleared, detector = one.cleared, one.detector
    end = cleared or _NO_TIME
    acknowledged = detector.acknowledged
    return {
        **{name: getattr(detector, name) for name in _DETECTOR_COLUMNS},
        "stream_no": no,
        "key": one.key,
        "number": one.number,
        "event": int(detector.event),
        "state": detector.state if one.ended_by is None or detector.event else "CLEAR",
        "last_state": detector.state,
        "acknowledged": None if acknowledged is None else int(acknowledged),
        "worst_severity": one.worst_severity,
        "severity_changes": one.severity_changes,
        "intermittent_count": one.intermittent_count,
        "statements": one.statements,
        "flapping_count": one.flapping_count,
        "reduced": int(one.reduced),
        "ended_by": one.ended_by,
        "first_raised_at_us": one.first_raised_at_us,
        "raised_at_us": one.raised.at_us,
        "raised_from_us": one.raised.from_us,
        "raised_spread": one.raised.spread,
        "raised_precision": one.raised.precision,
        "stated_at_us": one.stated_at_us,
        "cleared_at_us": None if cleared is None else cleared.at_us,
        "cleared_from_us": end.from_us,
        "cleared_spread": end.spread,
        "cleared_precision": end.precision,
        "lineage": one.lineage,
        "attempt": one.attempt,
        "partition": one.place.partition,
        "offset": one.place.offset,
        "appended_at_us": one.place.appended_at_us,
        "digest": one.digest,
    }


def _episode(row: Row[Any]) -> Episode:
    facts = {name: getattr(row, name) for name in _DETECTOR_COLUMNS}
    if facts["acknowledged"] is not None:
        facts["acknowledged"] = bool(facts["acknowledged"])
    cleared = None
    if row.cleared_at_us is not None:
        cleared = ApproximateTime(
            row.cleared_at_us, row.cleared_from_us, row.cleared_spread, row.cleared_precision
        )
    return Episode(
        key=row.key,
        number=row.number,
        detector=Detector(state=row.last_state, event=bool(row.event), **facts),
        raised=ApproximateTime(
            row.raised_at_us, row.raised_from_us, row.raised_spread, row.raised_precision
        ),
        first_raised_at_us=row.first_raised_at_us,
        stated_at_us=row.stated_at_us,
        place=RecordHeader(
            "",
            row.key,
            RecordType.CREATE_UPDATE,
            "",
            row.appended_at_us,
            row.partition,
            row._mapping["offset"],  # noqa: SLF001 — SQLAlchemy's public name for it
        ),
        digest=row.digest,
        lineage=row.lineage,
        attempt=row.attempt,
        worst_severity=row.worst_severity,
        severity_changes=row.severity_changes,
        intermittent_count=row.intermittent_count,
        statements=row.statements,
        flapping_count=row.flapping_count,
        reduced=bool(row.reduced),
        cleared=cleared,
        ended_by=row.ended_by,
        id=row.id,
    )


def _record(row: Row[Any]) -> Record:
    """The last statement of a stored entity."""
    return Record(
        row.stream,
        row.key,
        RecordType.CREATE_UPDATE,
        row.token,
        row.appended_at_us,
        row.partition,
        row._mapping["offset"],  # noqa: SLF001 — SQLAlchemy's public name for it
        DETECTOR,
        row.body,
        row.envelope,
    )
