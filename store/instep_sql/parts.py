"""CHANGE_ONLY streams: turns changes into whole statements over the parts kept in `instep_part`.

Other streams never come here. What leaves here goes the way of every record: folded, told, written
by rule A3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from instep.composing import Composing, names_of
from instep.composition import Composition, Part, UnresolvedError
from instep.position import Position
from instep.records import Kind, Record, Unreadable
from instep_sql import ended
from instep_sql.dialect import Dialect
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
    work = _load(connection, dialect, no, records, places)
    composed: list[Record] = []
    stated_by: list[Record] = []
    unresolved: list[Unreadable] = []
    for record in records:
        try:
            whole = work.apply(record, position)
        except (UnresolvedError, RecursionError) as error:
            unresolved.append(unreadable(record, str(error)))
        else:
            if whole is not None:
                composed.append(whole)
                stated_by.append(record)
    save(connection, dialect, no, work.touched)
    ended.add(connection, dialect, no, work.new_ends.values())
    return Composed(composed, unresolved, stated_by)


def _load(
    connection: Connection, dialect: Dialect, no: int, records: Sequence[Record], places: Places
) -> Composing:
    """What is stored of the entities that a batch touches."""
    work = Composing()
    keys = {record.key for record in records}
    work.owner = _find_owners(connection, dialect, no, keys)
    work.entities.update(work.owner.values())
    for stored in places(connection, dialect, no, names_of(records)):
        work.entities.add(stored.record.key)
        work.class_of[stored.record.key] = stored.record.entity_class
        if stored.record.uuid:
            work.key_of[stored.record.uuid] = stored.record.key
    work.ended = {one.key: one for one in ended.find(connection, dialect, no, keys)}
    targets = {key for record in records if (key := work.target(record)) is not None}
    work.touched = load(connection, dialect, no, targets)
    return work


def _find_owners(
    connection: Connection, dialect: Dialect, no: int, keys: Collection[str]
) -> dict[str, str]:
    query = text(
        "SELECT part_key, entity_key FROM instep_part "  # noqa: S608 — constants only
        f"WHERE stream_no = :no AND part_key IN {dialect.members('keys')}"
    )
    rows = connection.execute(query, {"no": no, "keys": as_json(keys)})
    return {row.part_key: row.entity_key for row in rows}


def release(connection: Connection, dialect: Dialect, no: int, records: Sequence[Record]) -> None:
    """Let the rows of these composed records be written whatever their place in the log.

    Rule A3 was applied part by part; the place of the whole goes back when its newest part ends. A
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
