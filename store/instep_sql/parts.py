"""CHANGE_ONLY streams: turns changes into whole statements over the parts kept in `instep_part`.

Other streams never come here. What leaves here goes the way of every record: folded, told, written
by rule 3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.position import Position
from instep.records import Kind, Record, Unreadable
from instep_sql import ended
from instep_sql.composition import Composition, Part, UnresolvedError, decode_object
from instep_sql.dialect import Dialect
from instep_sql.ended import Ended
from instep_sql.merge import prefixes
from instep_sql.stored import as_json, stored_places, stored_records
from instep_sql.unstorable import unreadable

__all__ = ["Composed", "compose", "release", "sweep"]

_COLUMNS: Final = (
    'part_key, entity_key, token, partition, "offset", appended_at_us, lineage, attempt, body'
)
_ADD: Final = f"""
    INSERT INTO instep_part (stream_no, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S608 — constants only
_STALE: Final = text("""
    SELECT DISTINCT e.id, e.key FROM instep_entity AS e
    JOIN instep_part AS p ON p.stream_no = e.stream_no AND p.entity_key = e.key
    WHERE e.stream_no = :no AND e.id > :cursor AND e.id <= :upto AND e.proven = 1
      AND p.attempt < :attempt AND p.part_key <> p.entity_key
""")


class Composed(msgspec.Struct, frozen=True):
    """Whole records, and the changes that could not be joined to anything."""

    records: list[Record]
    unresolved: list[Unreadable]


def compose(
    connection: Connection,
    dialect: Dialect,
    no: int,
    position: Position,
    records: Sequence[Record],
) -> Composed:
    """The whole records that these amount to, in order; the parts are brought up to date."""
    work = _Work(connection, dialect, no, position, records)
    composed: list[Record] = []
    unresolved: list[Unreadable] = []
    for record in records:
        try:
            whole = work.apply(record)
        except (UnresolvedError, RecursionError) as error:
            unresolved.append(unreadable(record, str(error)))
        else:
            if whole is not None:
                composed.append(whole)
    work.save()
    return Composed(composed, unresolved)


class _Work:
    """The entities that one batch touches, with their parts."""

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        no: int,
        position: Position,
        records: Sequence[Record],
    ) -> None:
        self._connection, self._dialect, self._no = connection, dialect, no
        self._position = position
        keys = {record.key for record in records}
        uuids = {uuid for record in records if (uuid := _uuid(record))}
        names = keys.union(uuids, *map(prefixes, keys))
        self._owner = self._find_owners(keys)
        self._entities: set[str] = set(self._owner.values())
        self._key_of: dict[str, str] = {}
        for stored in stored_places(connection, dialect, no, names):
            self._entities.add(stored.record.key)
            if stored.record.uuid:
                self._key_of[stored.record.uuid] = stored.record.key
        self._ended = {one.key: one for one in ended.find(connection, dialect, no, keys)}
        self._new_ends: dict[str, Ended] = {}
        targets = {key for record in records if (key := self._target(record)) is not None}
        self._touched = load(connection, dialect, no, targets)

    def _find_owners(self, keys: Collection[str]) -> dict[str, str]:
        query = text(
            "SELECT part_key, entity_key FROM instep_part "  # noqa: S608 — constants only
            f"WHERE stream_no = :no AND part_key IN {self._dialect.members('keys')}"
        )
        rows = self._connection.execute(query, {"no": self._no, "keys": as_json(keys)})
        return {row.part_key: row.entity_key for row in rows}

    def _target(self, record: Record) -> str | None:
        """The key of the entity a record speaks of; None for one that is not known yet."""
        key = record.key
        if key in self._entities:
            return key
        if key in self._owner:
            return self._owner[key]
        uuid = _uuid(record)
        if uuid:
            return self._key_of.get(uuid, uuid if uuid in self._entities else None)
        return next((prefix for prefix in prefixes(key) if prefix in self._entities), None)

    def apply(self, record: Record) -> Record | None:
        target = self._target(record)
        if record.ends:
            return self._end(record, target)
        if target is None:
            target = record.key
        entity = self._touched.get(target)
        if entity is None:
            entity = self._touched[target] = Composition(target, [])
        whole = entity.state(record, self._position)
        self._entities.add(target)
        self._owner[record.key] = target
        if uuid := _uuid(record):
            self._key_of.setdefault(uuid, target)
        return whole

    def _end(self, record: Record, target: str | None) -> Record | None:
        entity = None if target is None else self._touched.get(target)
        if target is None or entity is None or not entity.parts:
            return record
        if record.key == target or record.kind is Kind.CREATE_UPDATE:
            whole = entity.end(record, self._position)
            if whole is not None:
                self._entities.discard(target)
        else:
            before = self._ended.get(record.key)
            whole = entity.end_part(
                record, self._position, ended_before=self._still(before, entity)
            )
        if whole is not None:
            self._owner.pop(record.key, None)
            end = Ended(
                record.key,
                "",
                self._position.lineage,
                self._position.attempt,
                record.appended_at_us,
            )
            self._ended[record.key] = self._new_ends[record.key] = end
        return whole

    def _still(self, before: Ended | None, entity: Composition) -> bool:
        """Whether an end seen before still holds: the base was not stated again after it."""
        if before is None or before.attempt < self._position.attempt:
            return False
        base = entity.parts.get(entity.key)
        return base is None or base.record.appended_at_us <= before.appended_at_us

    def save(self) -> None:
        save(self._connection, self._dialect, self._no, self._touched)
        ended.add(self._connection, self._dialect, self._no, self._new_ends.values())


def release(connection: Connection, dialect: Dialect, no: int, records: Sequence[Record]) -> None:
    """Let the rows of these composed records be written whatever their place in the log.

    Rule 3 was applied part by part; the place of the whole goes back when its newest part ends. A
    lineage that no log has makes the rows comparable with nothing.
    """
    statement = text(
        "UPDATE instep_entity SET lineage = -1 "  # noqa: S608 — constants only
        f"WHERE stream_no = :no AND key IN {dialect.members('keys')}"
    )
    keys = as_json({record.key for record in records})
    connection.execute(statement, {"no": no, "keys": keys})


def load(
    connection: Connection, dialect: Dialect, no: int, keys: Collection[str]
) -> dict[str, Composition]:
    """These entities with their parts. One that was stated whole so far has its body for a base."""
    query = text(
        f"SELECT {_COLUMNS} FROM instep_part "  # noqa: S608 — constants only
        f"WHERE stream_no = :no AND entity_key IN {dialect.members('keys')} ORDER BY id"
    )
    parts: dict[str, list[Part]] = {key: [] for key in keys}
    for row in connection.execute(query, {"no": no, "keys": as_json(keys)}):
        record = Record(
            "",
            row.part_key,
            Kind.CREATE_UPDATE,
            row.token,
            row.appended_at_us,
            row.partition,
            row.offset,
            body=row.body,
        )
        parts[row.entity_key].append(Part(record, row.lineage, row.attempt))
    bare = [key for key, own in parts.items() if not own]
    for stored in stored_records(connection, dialect, no, bare):
        parts[stored.record.key].append(Part(stored.record, stored.lineage, 0))
    return {key: Composition(key, own) for key, own in parts.items()}


def save(
    connection: Connection, dialect: Dialect, no: int, entities: dict[str, Composition]
) -> None:
    _forget(connection, dialect, no, entities)
    rows = [
        (
            no,
            part.record.key,
            entity.key,
            part.record.token,
            part.record.partition,
            part.record.offset,
            part.record.appended_at_us,
            part.lineage,
            part.attempt,
            part.record.body,
        )
        for entity in entities.values()
        for part in entity.parts.values()
    ]
    dialect.many(connection, _ADD, rows)


def _forget(connection: Connection, dialect: Dialect, no: int, keys: Collection[str]) -> None:
    removal = text(
        "DELETE FROM instep_part "  # noqa: S608 — constants only
        f"WHERE stream_no = :no AND entity_key IN {dialect.members('keys')}"
    )
    connection.execute(removal, {"no": no, "keys": as_json(keys)})


def sweep(
    connection: Connection,
    dialect: Dialect,
    no: int,
    swept_keys: Collection[str],
    window: dict[str, Any],
) -> dict[int, bytes]:
    """Drop the parts of swept entities, and the unmarked changes of those that stay in this window.

    Returns the bodies these have then, by the ids of their rows.
    """
    if swept_keys:
        _forget(connection, dialect, no, swept_keys)
    stale = {row.key: row.id for row in connection.execute(_STALE, window)}
    entities = load(connection, dialect, no, stale)
    for entity in entities.values():
        entity.prune(window["attempt"])
    save(connection, dialect, no, entities)
    return {stale[key]: entity.body() for key, entity in entities.items()}


def _uuid(record: Record) -> str:
    """The uuid a statement names its entity by, from the body where the record was not given it."""
    if record.uuid or not record.body:
        return record.uuid
    try:
        uuid = decode_object(record.body).get("uuid")
    except UnresolvedError:
        return ""
    return uuid if isinstance(uuid, str) else ""
