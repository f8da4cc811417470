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

_MOST_ROWS: Final = {"qmark": 1_024}
"""Of one statement, in SQLite: a power of 2, so that few statements are parsed …"""
_OTHERS_MOST_ROWS: Final = 64
"""… and in other databases."""
_MOST_PARAMETERS: Final = 32_000
"""Of a statement of SQLite."""


def insert_rows(
    connection: Connection, into: str, rows: Sequence[tuple[Any, ...]], then: str = ""
) -> None:
    """Run `INSERT INTO {into} VALUES … {then}` for the rows, in order, in as few statements as
    possible.
    """
    style = connection.dialect.paramstyle
    first, most = 0, _MOST_ROWS.get(style, _OTHERS_MOST_ROWS)
    while first < len(rows):
        columns = len(rows[first])
        size = min(most, 1 << (len(rows) - first).bit_length() - 1)
        while size > 1 and size * columns > _MOST_PARAMETERS:
            size //= 2
        some = rows[first : first + size]
        statement = _statement(style, into, columns, size, then)
        connection.exec_driver_sql(statement, tuple(chain.from_iterable(some)))
        first += size


def row_values(connection: Connection, columns: int, rows: int) -> str:
    """The VALUES list `(?, ?), (?, ?)` in the driver's parameter style."""
    return _marks(connection.dialect.paramstyle, columns, rows)


def _marks(style: str, columns: int, rows: int) -> str:
    mark = "?" if style == "qmark" else "%s"
    return ", ".join([f"({', '.join([mark] * columns)})"] * rows)


@lru_cache(maxsize=256)
def _statement(style: str, into: str, columns: int, rows: int, then: str) -> str:
    return f"INSERT INTO {into} VALUES {_marks(style, columns, rows)} {then}"  # noqa: S608 — constants only
