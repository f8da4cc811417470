"""CHANGE_ONLY streams: turns changes into whole statements over the parts kept in `instep_part`.

Other streams never come here. What leaves here goes the way of every record: folded, told, written
by rule 3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, text

from instep.position import Position
from instep.records import Kind, Record, Unreadable
from instep_sql import ended
from instep_sql.composition import Composition, Part, UnresolvedError, decode_object
from instep_sql.dialect import Dialect
from instep_sql.ended import Ended
from instep_sql.merge import prefixes
from instep_sql.stored import Stored, as_json, stored_places, stored_records
from instep_sql.unstorable import unreadable

__all__ = ["Composed", "Places", "compose", "forget", "move", "release", "sweep"]

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


Places = Callable[[Connection, Dialect, int, Collection[str]], list[Stored]]
"""Finds the entities of these keys or uuids."""


class Composed(msgspec.Struct, frozen=True):
    """Whole records, and the changes that could not be joined to anything."""

    records: list[Record]
    unresolved: list[Unreadable]
    stated_by: list[Record]
    """Of each whole record, the statement that it comes from."""


def compose(
    connection: Connection,
    dialect: Dialect,
    no: int,
    position: Position,
    records: Sequence[Record],
    places: Places = stored_places,
) -> Composed:
    """The whole records that these amount to, in order; the parts are brought up to date."""
    work = _Work(connection, dialect, no, position, records, places)
    composed: list[Record] = []
    stated_by: list[Record] = []
    unresolved: list[Unreadable] = []
    for record in records:
        try:
            whole = work.apply(record)
        except (UnresolvedError, RecursionError) as error:
            unresolved.append(unreadable(record, str(error)))
        else:
            if whole is not None:
                composed.append(whole)
                stated_by.append(record)
    work.save()
    return Composed(composed, unresolved, stated_by)


class _Work:
    """The entities that one batch touches, with their parts."""

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        no: int,
        position: Position,
        records: Sequence[Record],
        places: Places,
    ) -> None:
        self._connection, self._dialect, self._no = connection, dialect, no
        self._position = position
        keys = {record.key for record in records}
        uuids = {uuid for record in records if (uuid := _uuid(record))}
        names = keys.union(uuids, *map(prefixes, keys))
        self._owner = self._find_owners(keys)
        self._entities: set[str] = set(self._owner.values())
        self._key_of: dict[str, str] = {}
        self._class_of: dict[str, str] = {}
        for stored in places(connection, dialect, no, names):
            self._entities.add(stored.record.key)
            self._class_of[stored.record.key] = stored.record.entity_class
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
            known = self._key_of.get(uuid, uuid)
            return known if known in self._entities else None
        return next((prefix for prefix in prefixes(key) if prefix in self._entities), None)

    def apply(self, record: Record) -> Record | None:
        whole = self._applied(record)
        if whole is not None and not whole.entity_class:
            # The end of a part may be a header alone.
            return replace(whole, entity_class=self._class_of.get(whole.key, ""))
        return whole

    def _applied(self, record: Record) -> Record | None:
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
        if (uuid := _uuid(record)) and self._key_of.get(uuid) not in self._entities:
            self._key_of[uuid] = target
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
    forget(connection, dialect, no, entities)
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


def move(
    connection: Connection,
    dialect: Dialect,
    position: Position,
    keys: Collection[str],
    *,
    source: int,
    target: int,
) -> None:
    """Let the parts of these entities be those of another stream."""
    values: dict[str, Any] = {"keys": as_json(keys), "source": source, "target": target}
    members = dialect.members("keys")
    # Also what another entity of the target holds under one of these names.
    removal = text(f"""
        DELETE FROM instep_part
        WHERE stream_no = :target AND (entity_key IN {members} OR part_key IN (
            SELECT part_key FROM instep_part WHERE stream_no = :source AND entity_key IN {members}))
    """)  # noqa: S608 — constants only
    connection.execute(removal, values)
    moving = text(f"""
        UPDATE instep_part SET stream_no = :target, lineage = :lineage, attempt = :attempt
        WHERE stream_no = :source AND entity_key IN {members}
    """)  # noqa: S608 — constants only
    values |= {"lineage": position.lineage, "attempt": position.attempt}
    connection.execute(moving, values)


def forget(connection: Connection, dialect: Dialect, no: int, keys: Collection[str]) -> None:
    """Remove the parts of these entities."""
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
        forget(connection, dialect, no, swept_keys)
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
