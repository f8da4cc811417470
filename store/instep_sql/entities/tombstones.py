"""Keys that have ended, kept until the next sweep and within a bound.

Only streams that need the memory have rows here: those joined with a baseline (an end that meets no
entity is then news, once) and those stated change by change (the TOMBSTONE that follows a DELETE is
no news).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep.alignment.change_only import Tombstone
from instep_sql.engine.dialect import Dialect, json_array

__all__ = ["add", "find", "purge"]

_ADD: Final = """
    INSERT INTO instep_ended (stream_no, key, uuid, lineage, attempt, appended_at_us)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (stream_no, key) DO UPDATE SET
      uuid = CASE WHEN excluded.uuid = '' THEN instep_ended.uuid ELSE excluded.uuid END,
      lineage = excluded.lineage, attempt = excluded.attempt,
      appended_at_us = excluded.appended_at_us
"""
_KEPT_RECORDS: Final = 100_000
_BOUND: Final = text(
    "DELETE FROM instep_ended WHERE id <= (SELECT max(id) FROM instep_ended) - :keep"
)
_PURGE: Final = text("DELETE FROM instep_ended WHERE stream_no = :no AND attempt < :attempt")


def find(
    connection: Connection, dialect: Dialect, no: int, names: Collection[str]
) -> list[Tombstone]:
    """Those of these keys or uuids that have ended."""
    columns = "key, uuid, lineage, attempt, appended_at_us"
    members = dialect.members("names")
    query = text(
        f"SELECT {columns} FROM instep_ended WHERE stream_no = :no AND key IN {members} "  # noqa: S608
        f"UNION SELECT {columns} FROM instep_ended WHERE stream_no = :no AND uuid IN {members}"
    )
    rows = connection.execute(query, {"no": no, "names": json_array(names)})
    return [Tombstone(*row) for row in rows]


def add(connection: Connection, dialect: Dialect, no: int, entries: Iterable[Tombstone]) -> None:
    """Remember these; the oldest are forgotten over the bound."""
    rows = [(no, *msgspec.structs.astuple(entry)) for entry in entries]
    if rows:
        dialect.execute_many(connection, _ADD, rows)
        connection.execute(_BOUND, {"keep": _KEPT_RECORDS})


def purge(connection: Connection, no: int, attempt: int) -> None:
    """Forget what ended before this attempt: the sweep has closed the matter."""
    connection.execute(_PURGE, {"no": no, "attempt": attempt})
