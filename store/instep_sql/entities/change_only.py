"""Partial updates (CHANGE_ONLY streams): composes changes into whole records, from the parts kept
in `instep_part`.

Other streams never call this module. The composed records are handled like all others: journaled
and written by rule A3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, text

from instep.alignment.change_only import (
    EntityPart,
    PartialEntity,
    PartialUpdates,
    UnresolvedError,
    is_placed,
    names_of,
    with_place,
)
from instep.model.position import Position
from instep.model.records import Record, RecordType, Unreadable
from instep_sql.engine.bulk_writes import StoredTable, names, typed
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities.quarantine import to_unreadable
from instep_sql.entities.streams import StreamTransaction
from instep_sql.entities.uuid_case import other_spellings
from instep_sql.stored_entities import StoredRecord, find_headers, find_records

__all__ = [
    "ComposedRecords",
    "Lookup",
    "compose",
    "compose_records",
    "forget_parts",
    "move_parts",
    "rename_parts",
    "sweep",
]

_PARTS: Final = StoredTable(
    "instep_part",
    {
        **typed(int, "stream_no"),
        **typed(str, "part_key", "entity_key", "token", "partition"),
        **typed(int, "offset", "appended_at_us", "lineage", "attempt"),
        **typed(bytes, "body"),
    },
    key=("stream_no", "part_key"),
)
_RENAME: Final = text("""
    UPDATE instep_part SET entity_key = :new,
           part_key = CASE WHEN part_key = :old THEN :new ELSE part_key END
    WHERE stream_no = :no AND entity_key = :old
""")
_STALE: Final = text("""
    SELECT DISTINCT e.id, e.key FROM instep_entity AS e
    JOIN instep_part AS p ON p.stream_no = e.stream_no AND p.entity_key = e.key
    WHERE e.stream_no = :no AND e.id > :cursor AND e.id <= :upto AND e.proven = 1
      AND e.attempt >= :attempt AND p.attempt < :attempt AND p.part_key <> p.entity_key
""")


Lookup = Callable[[Connection, Dialect, int, Collection[str]], list[StoredRecord]]
"""Finds the stored entities whose keys or uuids are given."""


class ComposedRecords(msgspec.Struct, frozen=True):
    """Whole records, and the changes that could not be assigned to an entity."""

    records: list[Record]
    unresolved: list[Unreadable]
    stated_by: list[Record]
    """For each whole record, the record that it was composed for."""
    unknown: list[Record] = []
    """CHANGEs of entities that are neither stored nor known to have ended."""


def compose_records(
    tx: StreamTransaction, position: Position, records: Sequence[Record]
) -> ComposedRecords:
    """Compose whole records of the changes in a batch, and let them be written."""
    stream = tx.stream
    stream.change_only = True

    def found(
        connection: Connection, dialect: Dialect, no: int, names: Collection[str]
    ) -> list[StoredRecord]:
        spelled = {*names, *other_spellings(connection, dialect, stream, names)}
        return find_headers(connection, dialect, no, spelled)

    composed = compose(
        tx.connection, tx.dialect, stream.no, position, records, found, knows_all=stream.baseline
    )
    composed = replace(composed, records=_placed(tx, composed))
    _allow_overwrite(tx, composed.records)
    return composed


def _placed(tx: StreamTransaction, composed: ComposedRecords) -> list[Record]:
    """The whole records. An entity stays in its place where a CHANGE of it states none."""
    pairs = [
        (whole, by.kind is RecordType.CHANGE and not is_placed(by.envelope))
        for whole, by in zip(composed.records, composed.stated_by, strict=True)
    ]
    keys = {whole.key for whole, unplaced in pairs if unplaced}
    if not keys:
        return composed.records
    found = find_records(tx.connection, tx.dialect, tx.no, keys)
    envelopes = {one.record.key: one.record.envelope for one in found}
    placed: list[Record] = []
    for whole, unplaced in pairs:
        one = whole
        if unplaced and not whole.ends:
            before = envelopes.get(whole.key, b"")
            one = replace(whole, envelope=with_place(whole.envelope, before))
        envelopes[one.key] = one.envelope
        placed.append(one)
    return placed


def compose(
    connection: Connection,
    dialect: Dialect,
    no: int,
    position: Position,
    records: Sequence[Record],
    lookup: Lookup,
    *,
    knows_all: bool = False,
) -> ComposedRecords:
    """Compose the whole records that these changes lead to, in order, and update the stored parts.
    `knows_all`: see `PartialUpdates`.
    """
    work = _load(connection, dialect, no, records, lookup)
    work.knows_all = knows_all
    composed: list[Record] = []
    stated_by: list[Record] = []
    unresolved: list[Unreadable] = []
    for record in records:
        try:
            whole = work.apply(record, position)
        except (UnresolvedError, RecursionError) as error:
            unresolved.append(to_unreadable(record, str(error)))
        else:
            if whole is not None:
                composed.append(whole)
                stated_by.append(record)
    save(connection, dialect, no, {key: work.touched[key] for key in work.changed})
    unknown = [record for changes in work.unknown.values() for record in changes]
    return ComposedRecords(composed, unresolved, stated_by, unknown)


def _load(
    connection: Connection, dialect: Dialect, no: int, records: Sequence[Record], lookup: Lookup
) -> PartialUpdates:
    """Load the stored parts of the entities that a batch changes."""
    work = PartialUpdates()
    keys = {record.key for record in records}
    work.owner = _find_owners(connection, dialect, no, keys)
    work.entities.update(work.owner.values())
    for stored in lookup(connection, dialect, no, names_of(records)):
        work.add(stored.record.key, stored.record.entity_class, stored.record.uuid)
    work.touched = load(connection, dialect, no, work.entities)
    return work


def _find_owners(
    connection: Connection, dialect: Dialect, no: int, keys: Collection[str]
) -> dict[str, str]:
    query = text(
        "SELECT part_key, entity_key FROM instep_part "
        f"WHERE stream_no = :no AND part_key IN {dialect.members('keys')} AND length(body) > 0"
    )
    rows = connection.execute(query, {"no": no, "keys": json_array(keys)})
    return {row.part_key: row.entity_key for row in rows}


def _allow_overwrite(tx: StreamTransaction, records: Sequence[Record]) -> None:
    """Make the rows of these composed records writable whatever their place in the log.

    Rule A3 was applied part by part, and the place of the whole goes back when its newest part
    ends. The rows get a lineage that no log has, so rule A3 compares them with nothing.
    """
    statement = text(
        "UPDATE instep_entity SET lineage = -1 "
        f"WHERE stream_no = :no AND key IN {tx.dialect.members('keys')}"
    )
    keys = json_array({record.key for record in records})
    tx.connection.execute(statement, {"no": tx.no, "keys": keys})


def load(
    connection: Connection, dialect: Dialect, no: int, keys: Collection[str]
) -> dict[str, PartialEntity]:
    """Load these entities with their parts. For an entity that has only whole records so far, the
    stored body is the base.
    """
    query = text(
        f"SELECT {names(_PARTS.columns)} FROM instep_part "
        f"WHERE stream_no = :no AND entity_key IN {dialect.members('keys')} ORDER BY id"
    )
    parts: dict[str, list[EntityPart]] = {key: [] for key in keys}
    for row in connection.execute(query, {"no": no, "keys": json_array(keys)}):
        record = Record(
            "",
            row.part_key,
            RecordType.CREATE_UPDATE,
            row.token,
            row.appended_at_us,
            row.partition,
            row.offset,
            body=row.body,
            ends=not row.body,
        )
        parts[row.entity_key].append(EntityPart(record, row.lineage, row.attempt))
    bare = [key for key, own in parts.items() if not own]
    for stored in find_records(connection, dialect, no, bare):
        parts[stored.record.key].append(EntityPart(stored.record, stored.lineage, 0))
    return {key: PartialEntity(key, own) for key, own in parts.items()}


def save(
    connection: Connection, dialect: Dialect, no: int, entities: dict[str, PartialEntity]
) -> None:
    forget_parts(connection, dialect, no, entities)
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
    # The key of a part that has ended in one entity may state another one now.
    rows.sort(key=lambda row: bool(row[-1]))
    latest = {row[1]: row for row in rows}
    dialect.upsert_rows(connection, _PARTS, list(latest.values()))


def move_parts(
    connection: Connection,
    dialect: Dialect,
    position: Position,
    keys: Collection[str],
    *,
    source: int,
    target: int,
) -> None:
    """Move the parts of these entities from one stream number (`source`) to another (`target`)."""
    values: dict[str, Any] = {"keys": json_array(keys), "source": source, "target": target}
    members = dialect.members("keys")
    # The target may hold parts of another entity under one of these names: they are removed too.
    removal = text(f"""
        DELETE FROM instep_part
        WHERE stream_no = :target AND (entity_key IN {members} OR part_key IN (
            SELECT part_key FROM instep_part WHERE stream_no = :source AND entity_key IN {members}))
    """)
    connection.execute(removal, values)
    moving = text(f"""
        UPDATE instep_part SET stream_no = :target, lineage = :lineage, attempt = :attempt
        WHERE stream_no = :source AND entity_key IN {members}
    """)
    values |= {"lineage": position.lineage, "attempt": position.attempt}
    connection.execute(moving, values)


def rename_parts(connection: Connection, no: int, old: str, new: str) -> None:
    """Rename the parts of the entity `old` to `new`, the entity's own part included."""
    connection.execute(_RENAME, {"no": no, "old": old, "new": new})


def forget_parts(connection: Connection, dialect: Dialect, no: int, keys: Collection[str]) -> None:
    """Remove the parts of these entities."""
    removal = text(
        f"DELETE FROM instep_part WHERE stream_no = :no AND entity_key IN {dialect.members('keys')}"
    )
    connection.execute(removal, {"no": no, "keys": json_array(keys)})


def sweep(
    connection: Connection,
    dialect: Dialect,
    no: int,
    swept_keys: Collection[str],
    window: dict[str, Any],
) -> dict[int, bytes]:
    """Remove the parts of swept entities, and the unmarked parts of the remaining entities of the
    window.
    """
    if swept_keys:
        forget_parts(connection, dialect, no, swept_keys)
    stale = {row.key: row.id for row in connection.execute(_STALE, window)}
    entities = load(connection, dialect, no, stale)
    for entity in entities.values():
        entity.prune(window["attempt"])
    save(connection, dialect, no, entities)
    return {stale[key]: entity.body() for key, entity in entities.items()}
