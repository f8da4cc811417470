"""Keys of ended entities, kept until the next sweep, and bounded in number.

Only streams that are joined with a baseline have rows here: an end without an entity leads to a new
baseline, once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep_sql.engine.bulk_writes import StoredTable, excluded, typed
from instep_sql.engine.dialect import Dialect, json_array

__all__ = ["Tombstone", "add", "find", "purge"]

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
    """One ended key; `uuid` is empty where the entity's is not known."""

    key: str
    uuid: str
    lineage: int
    attempt: int
    appended_at_us: int


def find(
    connection: Connection, dialect: Dialect, no: int, names: Collection[str]
) -> list[Tombstone]:
    """The ended entities among these keys or uuids."""
    columns = "key, uuid, lineage, attempt, appended_at_us"
    members = dialect.members("names")
    query = text(
        f"SELECT {columns} FROM instep_tombstone WHERE stream_no = :no AND key IN {members} "
        f"UNION SELECT {columns} FROM instep_tombstone WHERE stream_no = :no AND uuid IN {members}"
    )
    rows = connection.execute(query, {"no": no, "names": json_array(names)})
    return [Tombstone(*row) for row in rows]


def add(connection: Connection, dialect: Dialect, no: int, entries: Iterable[Tombstone]) -> None:
    """Store these, of which no key has two; over the bound, the oldest are removed."""
    rows = [(no, *msgspec.structs.astuple(entry)) for entry in entries]
    if rows:
        dialect.upsert_rows(connection, _ENDED, rows)
        connection.execute(_BOUND, {"keep": _KEPT_RECORDS})


def purge(connection: Connection, no: int, attempt: int) -> None:
    """Remove what ended before this attempt: its sweep has made these rows needless."""
    connection.execute(_PURGE, {"no": no, "attempt": attempt})
