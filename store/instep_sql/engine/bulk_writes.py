"""The tables into which many rows are written at once, and the SQL that all databases share for it.

The driver releases the interpreter's lock once per statement. With one statement per row, the
worker thread would wait for the lock at every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from sqlalchemy import Connection

__all__ = [
    "IGNORE_EXISTING",
    "StoredTable",
    "excluded",
    "insert_sql",
    "names",
    "quoted",
    "row_values",
    "typed",
    "upsert_sql",
]

IGNORE_EXISTING: Final = "ON CONFLICT DO NOTHING"


class StoredTable(msgspec.Struct, frozen=True, eq=False):
    """A table as far as `Dialect` writes rows of it. Define it once: its SQL is kept for it."""

    name: str
    columns: Mapping[str, type]
    """The columns of a row, in order, with the type of their values: int, float, bool, str or
    bytes; each may be None.
    """
    key: tuple[str, ...] = ()
    """The columns by which a row is found again: a primary key, or a unique constraint."""
    updated: Mapping[str, str] | None = None
    """What `Dialect.upsert_rows` sets where the row exists: column → SQL, in which
    `excluded.column` is the new value and `table.column` the stored one. None: all but the key.
    """
    updated_if: str = ""
    """SQL, likewise: only where it holds is an existing row updated."""
    shared: tuple[str, ...] = ()
    """Columns of which each nearly always has one value in all rows that are written at once: it
    can be sent once.
    """


def excluded(*columns: str) -> dict[str, str]:
    """Set these columns to their new values, in `StoredTable.updated`."""
    return {name: f"excluded.{quoted(name)}" for name in columns}


def typed(kind: type, *columns: str) -> dict[str, type]:
    """Columns with values of one type, as a part of `StoredTable.columns`."""
    return dict.fromkeys(columns, kind)


def insert_sql(table: StoredTable) -> str:
    """What stands before the rows of an INSERT."""
    return f"INSERT INTO {quoted(table.name)} ({names(table.columns)}) "


def upsert_sql(table: StoredTable) -> str:
    """What stands behind the rows of an INSERT that updates those which exist."""
    changed = table.updated
    if changed is None:
        changed = excluded(*(name for name in table.columns if name not in table.key))
    assigned = ", ".join(f"{quoted(name)} = {value}" for name, value in changed.items())
    action = f"UPDATE SET {assigned}" if assigned else "NOTHING"
    condition = f" WHERE {table.updated_if}" if table.updated_if else ""
    return f" ON CONFLICT ({names(table.key)}) DO {action}{condition}"


def names(columns: Iterable[str]) -> str:
    """A list of columns."""
    return ", ".join(map(quoted, columns))


def quoted(name: str) -> str:
    """The name of a table or column, whatever words SQL has."""
    return '"{}"'.format(name.replace('"', '""'))


def row_values(connection: Connection, columns: int, rows: int) -> str:
    """The VALUES list `(?, ?), (?, ?)` in the driver's parameter style."""
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    return ", ".join([f"({', '.join([mark] * columns)})"] * rows)
