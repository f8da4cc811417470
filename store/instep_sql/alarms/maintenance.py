"""Turns the episodes of alarms on and off, and keeps them in step with what is committed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, text

from instep.model.columns import RecordColumns
from instep.model.position import Position
from instep.model.records import Record, RecordHeader, RecordType
from instep_sql.alarms.detector import DETECTOR, ApproximateTime, Detector
from instep_sql.alarms.episodes import NO_LINEAGE, SWEEP, Episode, LogReading, followed
from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.definitions import ALARMS, define, definition_of, is_kept
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.options import SqlOptions
from instep_sql.stored_entities import rows_of_classes, stored_record

__all__ = ["follow", "keep", "keep_names", "swept", "trim"]

_NAMES: Final = "alarm-names:"
_VERSION: Final = "1"
_REMOVE: Final = text("DELETE FROM instep_alarm")
_TRIM_RECORDS: Final = 1_000
_ENDS_OF_ANY: Final = frozenset({DETECTOR, "", "ANY_CLASS"})
"""A header-only end names no class."""

_FACTS: Final = tuple(
    name
    for name in Detector.__struct_fields__
    if name not in ("state", "event", "acknowledged", "severity")
)
_IDENTITY: Final = ("stream_no", "key", "number")
_MOVED: Final = (
    *("statements", "stated_at_us", "reduced"),
    *("lineage", "attempt", "partition", "offset", "appended_at_us"),
)
"""What a statement changes that says nothing new; no index has any of it."""
_OTHERS: Final = (
    *("state", "ended_by", "cleared_at_us", "cleared_from_us", "cleared_spread"),
    *("cleared_precision", "raised_at_us", "raised_from_us", "raised_spread", "raised_precision"),
    *("first_raised_at_us", "worst_severity", "severity_changes", "intermittent_count"),
    *("flapping_count", "digest", "last_state", "event", "acknowledged", "severity", *_FACTS),
)
_INDEXED: Final = ("ended_by", "measured_uuid")
"""Most statements change none of them, and an assignment writes the index anew even where the value
stays."""


def _quoted(*names: str) -> list[str]:
    return ['"offset"' if name == "offset" else name for name in names]


def _update(*names: str) -> str:
    assigned = ", ".join(f"{name} = ?" for name in _quoted(*names))
    return f"UPDATE instep_alarm SET {assigned} WHERE id = ?"


_COLUMNS: Final = ", ".join(_quoted(*_IDENTITY, *_MOVED, *_OTHERS))
_TEXTS: Final = (
    *("key", "partition", "state", "last_state", "ended_by", "severity", "worst_severity"),
    *("cleared_spread", "cleared_precision", "raised_spread", "raised_precision", *_FACTS),
)
_EPISODES: Final = StoredTable(
    "instep_alarm",
    {name: str if name in _TEXTS else int for name in (*_IDENTITY, *_MOVED, *_OTHERS)},
)
_MOVE: Final = _update(*_MOVED)
_CHANGE: Final = _update(*_MOVED, *_OTHERS)
_NOT_INDEXED: Final = [at for at, name in enumerate(_OTHERS) if name not in _INDEXED]
_RESTATE: Final = _update(*_MOVED, *(_OTHERS[at] for at in _NOT_INDEXED))
_not_indexed: Final = itemgetter(*_NOT_INDEXED)
_LAST: Final = f"""
    SELECT id, {_COLUMNS} FROM instep_alarm AS a
    WHERE a.stream_no = :no AND a.key IN {{members}} AND a.number = (
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
_TRIM: Final = """
    DELETE FROM instep_alarm WHERE id IN (
        SELECT id FROM instep_alarm
        WHERE id <= (SELECT max(id) FROM instep_alarm) - :keep AND ended_by IS NOT NULL
        ORDER BY id LIMIT :limit {unlocked})
"""


def keep_names(connection: Connection, consumer: str, names: Mapping[str, str]) -> None:
    """Keep the normalized names of native conditions (4.9) that this consumer gives from now on: a
    replay from quarantine has only the store.
    """
    definition = msgspec.json.encode(names, order="sorted").decode() if names else None
    name = f"{_NAMES}{consumer}"
    if definition_of(connection, name) != definition:
        define(connection, name, definition)


def keep(
    connection: Connection,
    dialect: Dialect,
    *,
    names: Mapping[str, str],
    wanted: bool,
    now_us: int,
) -> None:
    """Keep episodes from now on, or no longer; does nothing if that is so already. `names`: see
    `keep_names`.

    Alarms that stand when they are turned on become episodes; what was before is not known.
    """
    if is_kept(connection, ALARMS) is wanted:
        return
    dialect.lock_for_migration(connection)
    if is_kept(connection, ALARMS) is wanted:
        return
    connection.execute(_REMOVE)
    define(connection, ALARMS, _VERSION if wanted else None)
    if not wanted:
        return
    for row in rows_of_classes(connection, [DETECTOR]):
        log = LogReading(row.lineage, row.attempt, now_us, None, names)
        episode = followed(None, stored_record(row), log)
        if episode is not None:
            episode.reduced = not episode.detector.event
            _write(connection, dialect, row.stream_no, [episode], {})


def follow(
    connection: Connection,
    dialect: Dialect,
    no: int,
    records: Sequence[Record],
    *,
    info: str,
    names: Mapping[str, str],
    position: Position,
    now_us: int,
) -> None:
    """Open, change and end the episodes that these records of a stream are about, in order. `info`
    is the stored description of the stream, `names` are those that its consumer keeps; they are
    read under the lineage and the attempt of `position`.
    """
    concerned = _concerned(records)
    if not concerned:
        return
    query = text(_LAST.format(members=dialect.members("keys")))
    keys = json_array({record.key for record in concerned})
    stored = [_episode(row) for row in connection.execute(query, {"no": no, "keys": keys}).all()]
    said = {one.id: (one.detector, one.ended_by) for one in stored}
    last = {one.key: one for one in stored}
    declared = json.loads(info)
    log = LogReading(
        position.lineage,
        position.attempt,
        now_us + declared.get("clock_offset_us", 0),
        declared.get("compaction_delay_s"),
        names,
    )
    changed: dict[tuple[str, int], Episode] = {}
    for record in concerned:
        episode = followed(last.get(record.key), record, log)
        if episode is not None:
            last[record.key] = changed[episode.key, episode.number] = episode
    _write(connection, dialect, no, changed.values(), said)


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


def _write(
    connection: Connection,
    dialect: Dialect,
    no: int,
    episodes: Iterable[Episode],
    said: Mapping[int | None, tuple[Detector, str | None]],
) -> None:
    """Write the episodes; `said` is the detector and the end of those that are stored, by id."""
    inserted: list[tuple[Any, ...]] = []
    moved: list[tuple[Any, ...]] = []
    restated: list[tuple[Any, ...]] = []
    changed: list[tuple[Any, ...]] = []
    for one in episodes:
        if one.id is None:
            inserted.append((no, one.key, one.number, *_moved(one), *_others(one)))
        elif _says_nothing_new(one, *said[one.id]):
            moved.append((*_moved(one), one.id))
        elif _keeps_indexed(one, *said[one.id]):
            restated.append((*_moved(one), *_not_indexed(_others(one)), one.id))
        else:
            changed.append((*_moved(one), *_others(one), one.id))
    dialect.insert_rows(connection, _EPISODES, inserted)
    dialect.execute_many(connection, _MOVE, moved)
    dialect.execute_many(connection, _RESTATE, restated)
    dialect.execute_many(connection, _CHANGE, changed)


def _says_nothing_new(one: Episode, detector: Detector, ended_by: str | None) -> bool:
    # The same object: no statement in between has been another.
    return one.detector is detector and one.ended_by == ended_by


def _keeps_indexed(one: Episode, detector: Detector, ended_by: str | None) -> bool:
    """Whether the columns `_INDEXED` are as they are stored."""
    return one.detector.measured_uuid == detector.measured_uuid and one.ended_by == ended_by


_NO_TIME: Final = ApproximateTime(0)


def _moved(one: Episode) -> tuple[Any, ...]:
    """The columns `_MOVED`."""
    place = one.place
    return (
        *(one.statements, one.stated_at_us, int(one.reduced)),
        *(one.lineage, one.attempt, place.partition, place.offset, place.appended_at_us),
    )


def _others(one: Episode) -> tuple[Any, ...]:
    """The columns `_OTHERS`."""
    cleared, raised, detector = one.cleared, one.raised, one.detector
    end = cleared or _NO_TIME
    acknowledged = detector.acknowledged
    return (
        detector.state if one.ended_by is None or detector.event else "CLEAR",
        one.ended_by,
        None if cleared is None else cleared.at_us,
        *(end.from_us, end.spread, end.precision),
        *(raised.at_us, raised.from_us, raised.spread, raised.precision),
        *(one.first_raised_at_us, one.worst_severity, one.severity_changes),
        *(one.intermittent_count, one.flapping_count, one.digest),
        *(detector.state, int(detector.event)),
        *(None if acknowledged is None else int(acknowledged), detector.severity),
        *_facts(detector),
    )


_facts: Final = attrgetter(*_FACTS)


def _episode(row: Row[Any]) -> Episode:
    """An episode of the columns of `_LAST`."""
    columns: Sequence[Any] = row
    id, _, key, number, statements, stated_at_us, reduced, lineage, attempt, *rest = columns
    partition, offset, appended_at_us, _, ended_by, *rest = rest
    cleared, raised, rest = rest[:4], rest[4:8], rest[8:]
    first_raised_at_us, worst_severity, severity_changes, intermittent_count, *rest = rest
    flapping_count, digest, state, event, acknowledged, severity, *facts = rest
    return Episode(
        key=key,
        number=number,
        detector=Detector(
            state=state,
            event=bool(event),
            acknowledged=None if acknowledged is None else bool(acknowledged),
            severity=severity,
            **dict(zip(_FACTS, facts, strict=True)),
        ),
        raised=ApproximateTime(*raised),
        first_raised_at_us=first_raised_at_us,
        stated_at_us=stated_at_us,
        place=RecordHeader(
            "", key, RecordType.CREATE_UPDATE, "", appended_at_us, partition, offset
        ),
        digest=digest,
        lineage=lineage,
        attempt=attempt,
        worst_severity=worst_severity,
        severity_changes=severity_changes,
        intermittent_count=intermittent_count,
        statements=statements,
        flapping_count=flapping_count,
        reduced=bool(reduced),
        cleared=None if cleared[0] is None else ApproximateTime(*cleared),
        ended_by=ended_by,
        id=id,
    )
