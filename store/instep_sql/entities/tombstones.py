"""The rows of `instep_tombstone`: which keys of a stream have ended since its last sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep.model.position import Position
from instep.model.records import Record
from instep_sql.engine.bulk_writes import StoredTable, excluded, typed
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities.streams import StreamTransaction

__all__ = ["Tombstone", "add_tombstones", "find_tombstones", "purge_tombstones", "remember_ends"]

_ENDED: Final = StoredTable(
    "instep_tombstone",
    {
        **typed(int, "stream_no"),
        **typed(str, "key", "uuid"),
        **typed(int, "lineage", "attempt", "appended_at_us"),
    },
    key=("stream_no", "key"),
    updated={
        "uuid": "CASE WHEN excluded.uuid = '' THEN instep_tombstone.uuid ELSE excluded.uuid END",
        **excluded("lineage", "attempt", "appended_at_us"),
    },
)
_KEPT_RECORDS: Final = 100_000
_BOUND: Final = text(
    "DELETE FROM instep_tombstone WHERE id <= (SELECT max(id) FROM instep_tombstone) - :keep"
)
_PURGE: Final = text("DELETE FROM instep_tombstone WHERE stream_no = :no AND attempt < :attempt")


class Tombstone(msgspec.Struct, frozen=True, gc=False):
    """One ended key; `uuid` is empty where the entity's is not known.

    It is kept until the next sweep, and their number is bounded: an end without an entity leads to
    a new baseline, once.
    """

    key: str
    uuid: str
    lineage: int
    attempt: int
    appended_at_us: int


def find_tombstones(
    connection: Connection, dialect: Dialect, no: int, names: Collection[str]
) -> list[Tombstone]:
    """The ended entities among these keys or uuids."""
    columns = "key, uuid, lineage, attempt, appended_at_us"
    members = dialect.members("names")
    query = (
        f"SELECT {columns} FROM instep_tombstone WHERE stream_no = :no AND key IN {members} "
        f"UNION SELECT {columns} FROM instep_tombstone WHERE stream_no = :no AND uuid IN {members}"
    )
    rows = dialect.execute(connection, query, {"no": no, "names": json_array(names)})
    return [Tombstone(*row) for row in rows]


def add_tombstones(tx: StreamTransaction, entries: Iterable[Tombstone]) -> None:
    """Store these, of which no key has two; over the bound, the oldest are removed."""
    rows = [(tx.no, *msgspec.structs.astuple(entry)) for entry in entries]
    if rows:
        tx.dialect.upsert_rows(tx.connection, _ENDED, rows)
        tx.connection.execute(_BOUND, {"keep": _KEPT_RECORDS})


def remember_ends(tx: StreamTransaction, position: Position, records: Iterable[Record]) -> None:
    """Remember what ends in a stream that states changes: a CHANGE behind it changes nothing."""
    ends = {
        one.key: Tombstone(
            one.key, one.uuid, position.lineage, position.attempt, one.appended_at_us
        )
        for one in records
        if one.ends
    }
    add_tombstones(tx, ends.values())


def purge_tombstones(tx: StreamTransaction, attempt: int) -> None:
    """Remove what ended before this attempt: its sweep has made these rows needless."""
    tx.connection.execute(_PURGE, {"no": tx.no, "attempt": attempt})
