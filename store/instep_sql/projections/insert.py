"""Inserts rows of a projected table: many a statement, where SQLAlchemy adds nothing to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam

from instep_sql.engine.bulk_insert import insert_rows
from instep_sql.projections.projection import ValueRefusedError

__all__ = ["insert", "insert_columns", "insert_each", "is_plain"]

_MOST_COLUMNS: Final = 400
"""A statement has the columns of many rows as parameters, and their number is limited."""


def insert(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows that state the same columns, all or none within the caller's savepoint.

    Raises what `insert_each` raises, but `ValueRefusedError` for a value that the type of its
    column does not take.
    """
    if is_plain(connection, table):
        _insert(connection, table, {name: [row[name] for row in rows] for name in rows[0]})
    else:
        insert_each(connection, table, rows)


def insert_columns(
    connection: Connection, table: Table, columns: Mapping[str, Sequence[Any]]
) -> None:
    """The same of rows that are held column by column."""
    if is_plain(connection, table):
        _insert(connection, table, columns)
    else:
        rows = zip(*columns.values(), strict=True)
        insert_each(connection, table, [dict(zip(columns, row, strict=True)) for row in rows])


def _insert(connection: Connection, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
    dialect = connection.dialect
    quote = dialect.identifier_preparer
    try:
        bound = [
            values
            if (processor := table.c[name].type.dialect_impl(dialect).bind_processor(dialect))
            is None
            else list(map(processor, values))
            for name, values in columns.items()
        ]
    except Exception as error:
        raise ValueRefusedError(str(error)) from error
    into = f"{quote.format_table(table)} ({', '.join(map(quote.quote, columns))})"
    insert_rows(connection, into, list(zip(*bound, strict=True)))


def insert_each(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """The same for any database and any table: SQLAlchemy's statement, run for each row."""
    connection.execute(table.insert(), rows)


def is_plain(connection: Connection, table: Table) -> bool:
    """Whether the parameters are all that SQLAlchemy would make of a row: no expression around a
    value, no default computed in Python, no cast.
    """
    return (
        connection.dialect.name == "sqlite"
        and len(table.columns) <= _MOST_COLUMNS
        and all(
            column.default is None and column.type.bind_expression(bindparam("value")) is None
            for column in table.columns
        )
    )
