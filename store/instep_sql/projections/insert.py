"""Inserts rows of a projected table: many a statement, where SQLAlchemy adds nothing to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam

from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.dialect import ColumnRows, Dialect
from instep_sql.projections.projection import ValueRefusedError

__all__ = ["insert", "insert_columns", "insert_each", "is_plain"]

_MOST_COLUMNS: Final = 400
"""A statement has the columns of many rows as parameters, and their number is limited."""


def insert(
    connection: Connection, dialect: Dialect, table: Table, rows: Sequence[dict[str, Any]]
) -> None:
    """Insert rows that state the same columns, all or none within the caller's savepoint.

    Raises what `insert_each` raises, but `ValueRefusedError` for a value that the type of its
    column does not take, and an error of the driver without SQLAlchemy's around it.
    """
    if is_plain(connection, table):
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        _insert(connection, dialect, table, columns)
    else:
        insert_each(connection, table, rows)


def insert_columns(
    connection: Connection, dialect: Dialect, table: Table, columns: Mapping[str, Sequence[Any]]
) -> None:
    """The same of rows that are held column by column."""
    if is_plain(connection, table):
        _insert(connection, dialect, table, columns)
    else:
        rows = zip(*columns.values(), strict=True)
        insert_each(connection, table, [dict(zip(columns, row, strict=True)) for row in rows])


def _insert(
    connection: Connection, dialect: Dialect, table: Table, columns: Mapping[str, Sequence[Any]]
) -> None:
    of = connection.dialect
    try:
        bound = [
            values
            if (processor := table.c[name].type.dialect_impl(of).bind_processor(of)) is None
            else list(map(processor, values))
            for name, values in columns.items()
        ]
    except Exception as error:
        raise ValueRefusedError(str(error)) from error
    dialect.insert_rows(connection, _stored(table, tuple(columns)), ColumnRows(*bound))


@lru_cache(maxsize=64)
def _stored(table: Table, columns: tuple[str, ...]) -> StoredTable:
    return StoredTable(table.name, dict.fromkeys(columns, object))


def insert_each(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """The same for any database and any table: SQLAlchemy's statement, run for each row."""
    connection.execute(table.insert(), rows)


def is_plain(connection: Connection, table: Table) -> bool:
    """Whether the parameters are all that SQLAlchemy would make of a row: no expression around a
    value, no default computed in Python, no cast.
    """
    return (
        table.schema is None
        and len(table.columns) <= _MOST_COLUMNS
        and all(
            column.default is None
            and column.type.bind_expression(bindparam("value")) is None
            and not column.type.dialect_impl(connection.dialect).render_bind_cast
            for column in table.columns
        )
    )
