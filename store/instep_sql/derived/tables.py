"""The tables and views of a derivation, as SQL has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.types import TypeEngine

from instep.config.derivations import Derived
from instep.ports.derivation import ColumnType, EntityTable, StatementTable, View
from instep_sql.engine.bulk_writes import StoredTable, excluded, quoted
from instep_sql.engine.dialect import Dialect

__all__ = ["create_tables", "create_views", "drop_views", "layout_of", "stored_table"]

_ID: Final = BigInteger().with_variant(Integer, "sqlite")
_TYPES: Final[dict[ColumnType, TypeEngine[Any]]] = {
    ColumnType.TEXT: Text(),
    ColumnType.INTEGER: Integer(),
    ColumnType.LONG: BigInteger(),
    ColumnType.FLAG: SmallInteger(),
    ColumnType.BYTES: LargeBinary(),
}
_PYTHON: Final[dict[ColumnType, type]] = {ColumnType.TEXT: str, ColumnType.BYTES: bytes}


@lru_cache(maxsize=64)
def stored_table(table: StatementTable | EntityTable) -> StoredTable:
    """The table as rows are written into it: its stream or entity first, then its own columns."""
    columns = {one.name: _PYTHON.get(one.type, int) for one in table.columns}
    if isinstance(table, EntityTable):
        owned = {"entity_id": int, **columns, "stream_no": int, "since_us": int}
        of_commit = ("stream_no", "since_us")
        return StoredTable(table.name, owned, ("entity_id", *table.key), shared=of_commit)
    key = ("stream_no", *table.key)
    stored = {"stream_no": int, **columns}
    if table.replaced is None:
        return StoredTable(table.name, stored, key)
    new, old = ("excluded.{}".format, f"{quoted(table.name)}.{{}}".format)
    rank, at, lineage = (quoted(name) for name in (*_fields(table),))
    condition = (
        f"{new(rank)} > {old(rank)} OR {new(rank)} = {old(rank)} AND "
        f"({new(lineage)} <> {old(lineage)} OR {new(at)} >= {old(at)})"
    )
    changed = excluded(*(one for one in stored if one not in key))
    return StoredTable(table.name, stored, key, changed, condition)


def _fields(table: StatementTable) -> tuple[str, str, str]:
    replaced = table.replaced
    assert replaced is not None
    return replaced.rank, replaced.at, replaced.lineage


def create_tables(connection: Connection, derivation: Derived) -> None:
    """Create them, and no view of them."""
    for table in derivation.tables:
        _sql_table(table).create(connection)


def create_views(connection: Connection, dialect: Dialect, derivation: Derived) -> None:
    """Create them, over tables that exist."""
    for view in derivation.views:
        connection.execute(text(_view(dialect, derivation, view)))


def drop_views(connection: Connection, views: Iterable[str]) -> None:
    """Drop those that exist."""
    for name in views:
        connection.execute(text(f"DROP VIEW IF EXISTS {quoted(name)}"))


def layout_of(connection: Connection, dialect: Dialect, derivation: Derived) -> str:
    """A digest of the tables and views: another one makes them anew."""
    parts = [_view(dialect, derivation, view) for view in derivation.views]
    for table in map(_sql_table, derivation.tables):
        parts.append(str(CreateTable(table).compile(dialect=connection.dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        parts += [str(CreateIndex(one).compile(dialect=connection.dialect)) for one in indexes]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@lru_cache(maxsize=64)
def _sql_table(table: StatementTable | EntityTable) -> Table:
    own = [Column(one.name, _TYPES[one.type], nullable=one.nullable) for one in table.columns]
    indexes = [
        Index(
            one.name,
            *one.columns,
            sqlite_where=text(f"{one.where_null} IS NULL") if one.where_null else None,
            postgresql_where=text(f"{one.where_null} IS NULL") if one.where_null else None,
        )
        for one in table.indexes
    ]
    if isinstance(table, EntityTable):
        return Table(
            table.name,
            MetaData(),
            Column("entity_id", _ID, nullable=False),
            *own,
            Column("stream_no", Integer, nullable=False),
            Column("since_us", BigInteger, nullable=False),
            PrimaryKeyConstraint("entity_id", *table.key),
            *indexes,
            sqlite_with_rowid=False,
        )
    return Table(
        table.name,
        MetaData(),
        Column("id", _ID, primary_key=True),
        Column("stream_no", Integer, nullable=False),
        *own,
        UniqueConstraint("stream_no", *table.key),
        *indexes,
    )


def _view(dialect: Dialect, derivation: Derived, view: View) -> str:
    (table,) = (one for one in derivation.tables if one.name == view.table)
    shown = ", ".join(
        f"{dialect.shown(one.expression, one.shown_as)} AS {quoted(one.name)}"
        for one in view.columns
    )
    entity = " JOIN instep_entity AS e ON e.id = r.entity_id" * isinstance(table, EntityTable)
    where = f" WHERE {view.where}" * bool(view.where)
    return (
        f"CREATE VIEW {quoted(view.name)} AS SELECT s.consumer, s.stream, {shown} "
        f"FROM {quoted(view.table)} AS r JOIN instep_stream AS s ON s.id = r.stream_no"
        f"{entity} {view.join}{where}"
    )
