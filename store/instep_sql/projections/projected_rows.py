"""Projects the entities of a stream that have changed, and writes their rows.

Nearly all rows of a page are read and written at once. Where one of them cannot be, each is read by
itself, and the reason of each entity that its table cannot hold is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Table, bindparam, text
from sqlalchemy import Dialect as SqlDialect
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError

from instep.model.storable import without_nul
from instep.ports.derivation import ProjectedEntity
from instep_sql.derived.entities import changed_entities
from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.dialect import ColumnRows, Dialect
from instep_sql.engine.stream_scope import StreamScope
from instep_sql.projections.fast_columns import ColumnarEntities, fast_columns
from instep_sql.projections.foreign_keys import children_of
from instep_sql.projections.projection import ENTITY_ID, Projection, ValueRefusedError

__all__ = ["insert", "insert_each", "is_plain", "project"]

_decode: Final = msgspec.json.Decoder().decode
_REASON_CHARACTERS: Final = 500
_MOST_COLUMNS: Final = 400
"""A statement has the columns of many rows as parameters, and their number is limited."""
_STREAM: Final = text("SELECT consumer, stream FROM instep_stream WHERE id = :no")
_NOTE_CHILD: Final = text("""
    INSERT INTO instep_unprojected (stream_no, name, entity_id)
    SELECT stream_no, :child, entity_id FROM instep_unprojected
    WHERE stream_no = :no AND name = :name ON CONFLICT DO NOTHING
""")
_KEEP: Final = text("""
    INSERT INTO instep_projection_error (entity_id, name, stream_no, reason, since_us)
    VALUES (:id, :name, :no, :reason, :now_us)
""")


def project(tx: StreamScope, projections: Collection[Projection]) -> None:
    """Project the changed entities of a stream anew. `projections`: each after those that it refers
    to.
    """
    for projection in projections:
        # Their rows go with the row that they refer to.
        for child in children_of(projection, projections):
            names = {"no": tx.no, "name": projection.name, "child": child.name}
            tx.connection.execute(_NOTE_CHILD, names)
        _project_changed(tx, projection)


def _project_changed(tx: StreamScope, projection: Projection) -> None:
    for rows in changed_entities(tx, projection.name):
        _remove_rows(tx.connection, projection, rows)
        by_class: dict[str, list[Sequence[Any]]] = {}
        for row in rows:
            if row[2] in projection.classes:
                by_class.setdefault(row[2], []).append(row)
        columns: list[Mapping[str, Sequence[Any]]] = []
        for entity_class, own in by_class.items():
            read = fast_columns(projection, entity_class, ColumnarEntities.of(own))
            if read is None:
                break
            columns.append(read)
        at_once = len(columns) == len(by_class)
        if not at_once or _try_insert(tx, projection.table, columns):
            _project_singly(tx, projection, rows)


def _remove_rows(
    connection: Connection, projection: Projection, rows: Sequence[Sequence[Any]]
) -> None:
    """Remove what the entities of these rows have stated, and why it was refused."""
    # Numbers in the SQL text: one statement, and a database sees how few they are.
    these = f"{ENTITY_ID} IN ({', '.join(str(row[0]) for row in rows)})"
    table = connection.dialect.identifier_preparer.format_table(projection.table)

    def has_any(of: str) -> bool:
        # New entities have the highest ids: there is nothing of them to remove.
        query = f"SELECT 1 FROM {of} WHERE {ENTITY_ID} >= {rows[0][0]} LIMIT 1"
        return connection.exec_driver_sql(query).first() is not None

    if has_any(table):
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE {these}")
    if has_any("instep_projection_error"):
        removal = f"DELETE FROM instep_projection_error WHERE name = :name AND {these}"
        connection.execute(text(removal), {"name": projection.name})


def _project_singly(tx: StreamScope, projection: Projection, rows: Sequence[Sequence[Any]]) -> None:
    connection = tx.connection
    consumer, stream = connection.execute(_STREAM, {"no": tx.no}).one()
    written: list[dict[str, Any]] = []
    errors: dict[int, str] = {}
    for row in map(tuple, rows):
        id, key, entity_class, uuid, body, envelope = row
        if entity_class not in projection.classes:
            continue
        try:
            entity = ProjectedEntity(
                consumer, stream, key, entity_class, uuid, _json(body), _json(envelope)
            )
            written += [{ENTITY_ID: id, **row} for row in projection.rows(entity)]
        except ValueRefusedError as refused:
            # What the short cut does not look at costs no row, whatever is beside it.
            read = fast_columns(projection, entity_class, ColumnarEntities.of([row]))
            if read is None:
                errors[id] = str(refused)
            else:
                stated = {name: value for name, (value,) in read.items() if value is not None}
                written.append(stated)
    refused_rows = _insert_what_is_held(tx, projection.table, written)
    if refused_rows and projection.has_many_rows:
        # All rows of an entity, or none.
        ids = ", ".join(map(str, refused_rows))
        table = connection.dialect.identifier_preparer.format_table(projection.table)
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE {ENTITY_ID} IN ({ids})")
    errors |= refused_rows
    if errors:
        connection.execute(
            _KEEP,
            [
                {
                    "id": id,
                    "name": projection.name,
                    "no": tx.no,
                    "reason": without_nul(reason)[:_REASON_CHARACTERS],
                    "now_us": tx.now_us,
                }
                for id, reason in errors.items()
            ],
        )


def _insert_what_is_held(
    tx: StreamScope, table: Table, rows: Sequence[dict[str, Any]]
) -> dict[int, str]:
    """Insert the rows that the table can hold. Returns the reason for each other entity."""
    refused: dict[int, str] = {}
    # Rows of one statement state the same columns; the others have their defaults.
    groups: dict[frozenset[str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(frozenset(row), []).append(row)
    for group in groups.values():
        columns = {name: [row[name] for row in group] for name in group[0]}
        reason = _try_insert(tx, table, [columns])
        if reason is None:
            continue
        if len(group) == 1:
            refused[group[0][ENTITY_ID]] = reason
            continue
        # Halves: a table of a thousand rows with a bad one is written in ten steps.
        middle = len(group) // 2
        for half in (group[:middle], group[middle:]):
            refused |= _insert_what_is_held(tx, table, half)
    return refused


def _try_insert(
    tx: StreamScope, table: Table, parts: Sequence[Mapping[str, Sequence[Any]]]
) -> str | None:
    """Insert the rows of these parts, all or none. Returns why the table cannot hold them; other
    errors are raised.
    """
    connection = tx.connection
    driver: Any = connection.dialect.loaded_dbapi
    try:
        with connection.begin_nested():
            for columns in parts:
                insert(connection, tx.dialect, table, columns)
    except ValueRefusedError as error:
        return str(error)
    except (driver.IntegrityError, driver.DataError) as error:
        return str(error).partition("\n")[0]
    except (IntegrityError, DataError) as error:
        return str(error.orig).partition("\n")[0]
    except DBAPIError:
        raise
    except StatementError as error:  # a value that the type of the column does not take
        return str(error.orig)
    return None


def insert(
    connection: Connection, dialect: Dialect, table: Table, columns: Mapping[str, Sequence[Any]]
) -> None:
    """Insert rows, given column by column, all or none within the caller's savepoint.

    Raises what `insert_each` raises, but `ValueRefusedError` for a value that the type of its
    column does not take, and an error of the driver without SQLAlchemy's around it.
    """
    of = connection.dialect
    stored = _plain_table(of, table, tuple(columns))
    if stored is None:
        insert_each(connection, table, columns)
        return
    try:
        bound = [
            values
            if (processor := table.c[name].type.dialect_impl(of).bind_processor(of)) is None
            else list(map(processor, values))
            for name, values in columns.items()
        ]
    except Exception as error:
        raise ValueRefusedError(str(error)) from error
    dialect.insert_rows(connection, stored, ColumnRows(*bound))


@lru_cache(maxsize=64)
def _plain_table(of: SqlDialect, table: Table, columns: tuple[str, ...]) -> StoredTable | None:
    """The table as the store's own way to insert rows sees it; None: it cannot, see `is_plain`."""
    return StoredTable(table.name, dict.fromkeys(columns, object)) if is_plain(of, table) else None


def insert_each(connection: Connection, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
    """The same for any database and any table: SQLAlchemy's statement, run for each row."""
    rows = zip(*columns.values(), strict=True)
    connection.execute(table.insert(), [dict(zip(columns, row, strict=True)) for row in rows])


def is_plain(of: SqlDialect, table: Table) -> bool:
    """Whether the parameters are all that SQLAlchemy would make of a row: no expression around a
    value, no default computed in Python, no cast.
    """
    return (
        table.schema is None
        and len(table.columns) <= _MOST_COLUMNS
        and all(
            column.default is None
            and column.type.bind_expression(bindparam("value")) is None
            and not column.type.dialect_impl(of).render_bind_cast
            for column in table.columns
        )
    )


def _json(stored: bytes) -> Any:
    try:
        return _decode(stored) if stored else None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueRefusedError(f"it is no JSON: {error}") from error
