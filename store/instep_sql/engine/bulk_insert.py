"""Writes many rows with few statements.

The driver releases the interpreter's lock once per statement. With one statement per row, the
worker thread would wait for the lock at every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection

__all__ = ["insert_rows", "row_values"]

_MOST_ROWS: Final = 64
"""Of one statement: a database accepts some ten thousand parameters."""
_SQLITE_MOST_ROWS: Final = 1_024
_SQLITE_MOST_PARAMETERS: Final = 32_000


def insert_rows(
    connection: Connection, into: str, rows: Sequence[tuple[Any, ...]], then: str = ""
) -> None:
    """Run `INSERT INTO {into} VALUES … {then}` for the rows, in order, in as few statements as
    possible.
    """
    style, first = connection.dialect.paramstyle, 0
    while first < len(rows):
        columns, left = len(rows[first]), len(rows) - first
        size = _sqlite_size(left, columns) if style == "qmark" else min(left, _MOST_ROWS)
        some = rows[first : first + size]
        statement = _statement(style, into, columns, size, then)
        connection.exec_driver_sql(statement, tuple(chain.from_iterable(some)))
        first += size


def _sqlite_size(rows: int, columns: int) -> int:
    """How many rows go into the next statement: a power of 2. SQLite is near, and parses each text
    once; to a server, each statement is a round trip.
    """
    most = max(1, min(rows, _SQLITE_MOST_ROWS, _SQLITE_MOST_PARAMETERS // columns))
    return 1 << (most.bit_length() - 1)


def row_values(connection: Connection, columns: int, rows: int) -> str:
    """The VALUES list `(?, ?), (?, ?)` in the driver's parameter style."""
    return _marks(connection.dialect.paramstyle, columns, rows)


def _marks(style: str, columns: int, rows: int) -> str:
    mark = "?" if style == "qmark" else "%s"
    return ", ".join([f"({', '.join([mark] * columns)})"] * rows)


@lru_cache(maxsize=256)
def _statement(style: str, into: str, columns: int, rows: int, then: str) -> str:
    return f"INSERT INTO {into} VALUES {_marks(style, columns, rows)} {then}"  # noqa: S608 — constants only
