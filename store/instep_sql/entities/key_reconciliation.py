"""Joins a stream with its baseline: one entity is one row, whatever key each of them uses.

A stream's entity-key may differ from the uuid that a GET shows. The stream's key becomes the row's
key as soon as it is known, because a TOMBSTONE may carry nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, text

from instep.alignment.change_only import Tombstone
from instep.model.json_merge import prefixes
from instep.model.ordering import is_later
from instep.model.position import Position
from instep.model.records import Record
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities import change_only, tombstones
from instep_sql.entities.lookup import StoredRecord, find_headers
from instep_sql.entities.streams import StreamRow

__all__ = ["ReconciledRecords", "mark_proven", "reconcile_keys"]

_RENAME: Final = text("UPDATE instep_entity SET key = :new WHERE stream_no = :no AND key = :old")
_REMOVE: Final = text("DELETE FROM instep_entity WHERE stream_no = :no AND key = :key")


class ReconciledRecords(msgspec.Struct, frozen=True):
    """The records, under the keys of their rows, and the keys of ends that met no row."""

    records: list[Record]
    unresolved_keys: tuple[str, ...]


class _Rows:
    """The stored rows of the entities of a batch; updated as the batch is read."""

    def __init__(self, stored: Iterable[StoredRecord]) -> None:
        self.by_key: dict[str, StoredRecord] = {}
        self.key_of: dict[str, str] = {}
        for one in stored:
            self.by_key[one.record.key] = one
            if one.record.uuid:
                self.key_of[one.record.uuid] = one.record.key

    def rename(self, old: str, new: str) -> tuple[bool, str | None]:
        """Give the row `old` the key `new`. Returns whether it is renamed, and the key of the row
        to remove, if any. If both rows exist, only the newer one stays.
        """
        moving, there = self.by_key.pop(old, None), self.by_key.get(new)
        if moving is None:
            return False, None
        if there is None:
            self.by_key[new] = moving
            return True, None
        if is_later(moving, there):
            self.by_key[new] = moving
            return True, new
        return False, old


def reconcile_keys(
    connection: Connection,
    dialect: Dialect,
    stream: StreamRow,
    position: Position,
    records: Sequence[Record],
) -> ReconciledRecords:
    """Rename rows to the keys the stream uses, and records to the rows they belong to.

    Baseline rows of entities that have ended since are left out. Header-only ends without a row are
    not written; their keys are returned as unresolved, each once.
    """
    names = {record.key for record in records} | {record.uuid for record in records if record.uuid}
    names.update(*(prefixes(record.key) for record in records if not record.whole))
    rows = _Rows(find_headers(connection, dialect, stream.no, names))
    over = tombstones.find(connection, dialect, stream.no, names)
    ended_at = {one.key: one for one in over} | {one.uuid: one for one in over if one.uuid}

    known_keys = rows.by_key.keys() | {record.key for record in records}
    changes = {record.key for record in records if _is_change(record, known_keys)}
    keys = _keys_after(rows.key_of, [record for record in records if record.key not in changes])
    ends: dict[str, Tombstone] = {}
    for uuid, key in keys.items():
        old = rows.key_of.get(uuid)
        if old is not None and old != key:
            _rename(connection, dialect, stream, rows, old, key)
            if old != uuid:
                # The provider gave the entity another key: the end of the old key means nothing.
                ends[old] = Tombstone(old, "", position.lineage, position.attempt, 0)

    joined: list[Record] = []
    unresolved: dict[str, None] = {}
    alive = set(rows.by_key)
    uuid_of = {key: uuid for uuid, key in keys.items()}
    for record in records:
        if record.key in changes:
            joined.append(record)
            continue
        key = keys.get(record.uuid or record.key, record.key)
        if record.ends:
            known = key in alive or key in ended_at or record.key in ended_at or key in ends
            if not known and not record.uuid:
                unresolved[record.key] = None
            uuid = record.uuid or uuid_of.get(key, "")
            ends[key] = Tombstone(
                key, uuid, position.lineage, position.attempt, record.appended_at_us
            )
            alive.discard(key)
        elif not record.token and _overtaken(record, ended_at, position.lineage):
            continue
        else:
            alive.add(key)
        joined.append(record if key == record.key else replace(record, key=key))
    tombstones.add(connection, dialect, stream.no, ends.values())
    return ReconciledRecords(joined, tuple(unresolved))


def _keys_after(stored: dict[str, str], records: Sequence[Record]) -> dict[str, str]:
    """Map each uuid to the key that its row has after the batch: the stream's last key, else the
    stored key, else the baseline's.
    """
    keys = dict(stored)
    for record in records:
        if record.uuid:
            if record.token:
                keys[record.uuid] = record.key
            else:
                keys.setdefault(record.uuid, record.key)
    return keys


def _is_change(record: Record, known_keys: Collection[str]) -> bool:
    """Whether a CHANGE_ONLY record changes a part: its key lies below the key of its entity.

    No row has such a key; `instep_part` leads to the entity.
    """
    return not record.whole and any(
        prefix in known_keys or prefix == record.uuid for prefix in prefixes(record.key)
    )


def _overtaken(record: Record, ended_at: dict[str, Tombstone], lineage: int) -> bool:
    """Whether an end newer than the baseline was received: the GET showed an entity that ended
    afterwards.
    """
    end = ended_at.get(record.uuid) or ended_at.get(record.key)
    return end is not None and end.lineage == lineage and end.appended_at_us > record.appended_at_us


def _rename(
    connection: Connection,
    dialect: Dialect,
    stream: StreamRow,
    rows: _Rows,
    old: str,
    new: str,
) -> None:
    moves, obsolete = rows.rename(old, new)
    if obsolete is not None:
        connection.execute(_REMOVE, {"no": stream.no, "key": obsolete})
        if stream.change_only:
            change_only.forget_parts(connection, dialect, stream.no, [obsolete])
    if moves:
        connection.execute(_RENAME, {"no": stream.no, "old": old, "new": new})
        if stream.change_only:
            change_only.rename_parts(connection, stream.no, old, new)


def mark_proven(
    connection: Connection, dialect: Dialect, no: int, attempt: int, keys: Collection[str]
) -> None:
    """Mark the entities that the baseline shows, also where a newer record keeps its content."""
    connection.execute(
        text(
            "UPDATE instep_entity SET attempt = :attempt, proven = 1 "  # noqa: S608 — constants
            "WHERE stream_no = :no AND (attempt < :attempt OR proven = 0) "
            f"AND key IN {dialect.members('keys')}"
        ),
        {"no": no, "attempt": attempt, "keys": json_array(keys)},
    )
