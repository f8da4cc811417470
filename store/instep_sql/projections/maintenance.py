"""Creates the tables of projections, and keeps them in step with the entities."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, Table, bindparam, func, inspect, select, text
from sqlalchemy.exc import (
    CompileError,
    DataError,
    DBAPIError,
    IdentifierError,
    IntegrityError,
    SQLAlchemyError,
    StatementError,
)

from instep.errors import ConfigurationError
from instep.model.storable import without_nul
from instep.ports.derivation import ProjectedEntity
from instep_sql.derived.followers import (
    Follower,
    changed_entities,
    mark_all_changed,
    set_followers,
    streams_behind,
)
from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.definitions import define, definition_of, definitions
from instep_sql.engine.dialect import ColumnRows, Dialect
from instep_sql.names import check_name
from instep_sql.projections import foreign_keys, own_tables
from instep_sql.projections.fast_columns import ColumnarEntities, fast_columns
from instep_sql.projections.projection import (
    ENTITY_ID,
    Projection,
    ValueRefusedError,
)

__all__ = ["follow", "insert", "insert_each", "is_plain", "keep", "rebuild"]

_decode: Final = msgspec.json.Decoder().decode
_REASON_CHARACTERS: Final = 500
_PREFIX: Final = "table:"
_MIGRATED: Final = "migrated:"
"""Begins the definition of a table that the user's migrations have made: it is never altered."""
_MOST_COLUMNS: Final = 400
"""A statement has the columns of many rows as parameters, and their number is limited."""
_STREAM: Final = text("SELECT consumer, stream FROM instep_stream WHERE id = :no")
_NOTE_CHILD: Final = text("""
    INSERT INTO instep_unprojected (stream_no, name, entity_id)
    SELECT stream_no, :child, entity_id FROM instep_unprojected
    WHERE stream_no = :no AND name = :name ON CONFLICT DO NOTHING
""")
_FORGET_ERRORS: Final = text("DELETE FROM instep_projection_error WHERE name = :name")
_KEEP: Final = text("""
    INSERT INTO instep_projection_error (entity_id, name, stream_no, reason, since_us)
    VALUES (:id, :name, :no, :reason, :now_us)
""")


def keep(
    connection: Connection, dialect: Dialect, projections: Sequence[Projection], now_us: int
) -> None:
    """Create or build again what the declared projections need, and project what a process without
    them has left. Projections that are not declared here stay as they are.

    Raises `ConfigurationError` if a table exists that has rows of someone else, or that is not what
    the projection needs.
    """
    if not projections:
        return
    wanted: dict[str, str] = {}
    for one in projections:
        # PostgreSQL would cut it off, and say nothing.
        for name in (one.name, *one.table.columns.keys()):
            limit_bytes = connection.dialect.max_identifier_length
            check_name(name, "a table or column", dialect.where, "projections", limit_bytes)
        with _understood(dialect, one):
            wanted[one.name] = one.definition(connection.dialect)
    if _changed(connection, dialect, projections, wanted):
        dialect.lock_for_migration(connection)
        changed = _changed(connection, dialect, projections, wanted)
        # The triggers of before delete from the tables that are replaced.
        set_followers(connection, dialect, (), [one.name for one in changed])
        # No table goes before those that refer to it.
        kept = {one for one in reversed(changed) if _make_room(connection, dialect, one)}
        for one in changed:
            _define(connection, dialect, one, wanted[one.name], migrated=one in kept)
        set_followers(connection, dialect, list(map(_follower_of, changed)), ())
    known = definitions(connection)
    tables = [name.removeprefix(_PREFIX) for name in known if name.startswith(_PREFIX)]
    foreign_keys.check(connection, dialect, projections, tables)
    _follow_behind(connection, dialect, projections, now_us)


def _follow_behind(
    connection: Connection, dialect: Dialect, projections: Sequence[Projection], now_us: int
) -> None:
    for no in sorted({no for one in projections for no in streams_behind(connection, one.name)}):
        follow(connection, dialect, no, projections, now_us)


def _changed(
    connection: Connection,
    dialect: Dialect,
    projections: Sequence[Projection],
    wanted: Mapping[str, str],
) -> list[Projection]:
    """Those whose rows do not come from this definition, or that refer to one of these."""
    kept = definitions(connection)
    changed: list[Projection] = []
    for one in projections:
        current = kept.get(_PREFIX + one.name, "")
        same = current.removeprefix(_MIGRATED) == wanted[one.name]
        if current.startswith(_MIGRATED):
            own_tables.check(connection, dialect, one)
            # An empty table may have been made anew.
            same = same and own_tables.has_rows(connection, one)
        if not same or any(before.name in one.parents for before in changed):
            changed.append(one)
    return changed


def _follower_of(projection: Projection) -> Follower:
    name = str(projection.name)  # SQLAlchemy has a type of its own for it
    return Follower(name, tuple(sorted(projection.classes)), (name,))


def rebuild(
    connection: Connection, dialect: Dialect, projections: Sequence[Projection], now_us: int
) -> dict[str, int]:
    """Fill the tables again from the stored entities. Returns the number of rows of each."""
    for one in reversed(projections):
        connection.execute(one.table.delete())
        connection.execute(_FORGET_ERRORS, {"name": one.name})
        mark_all_changed(connection, _follower_of(one))
    _follow_behind(connection, dialect, projections, now_us)
    return {
        str(one.name): connection.execute(select(func.count()).select_from(one.table)).scalar_one()
        for one in projections
    }


@contextmanager
def _understood(dialect: Dialect, projection: Projection) -> Iterator[None]:
    """Raise `ConfigurationError` where the database refuses such a table: names that are too long
    or taken by itself, too many columns, a type that it lacks.
    """
    try:
        yield
    except SQLAlchemyError as error:
        if not isinstance(error, CompileError | IdentifierError) and not dialect.cannot_mean(error):
            raise
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"the database refuses such a table: {reason}",
            where=f"{dialect.where}: the projection {projection.name!r}",
            hint="name its table and its columns otherwise, and look at their types",
            key="projections",
        ) from error


def _make_room(connection: Connection, dialect: Dialect, projection: Projection) -> bool:
    """Remove what is there of it. Returns whether its table is one of the user's migrations."""
    current = definition_of(connection, _PREFIX + projection.name)
    migrated = (current or "").startswith(_MIGRATED)
    if current is None and inspect(connection).has_table(projection.name):
        own_tables.check(connection, dialect, projection)
        if own_tables.has_rows(connection, projection):
            raise ConfigurationError(
                f"the table {projection.name!r} has rows that no projection has written",
                where=dialect.where,
                hint="name the projection otherwise, or empty the table",
            )
        migrated = True
    if migrated:
        connection.execute(projection.table.delete())
    else:
        with _understood(dialect, projection):
            projection.table.drop(connection, checkfirst=True)
    return migrated


def _define(
    connection: Connection,
    dialect: Dialect,
    projection: Projection,
    definition: str,
    *,
    migrated: bool,
) -> None:
    if not migrated:
        with _understood(dialect, projection):
            projection.table.create(connection)
    define(connection, _PREFIX + projection.name, (_MIGRATED if migrated else "") + definition)


def follow(
    connection: Connection,
    dialect: Dialect,
    no: int,
    projections: Collection[Projection],
    now_us: int,
) -> None:
    """Project the changed entities of a stream anew. `projections`: each after those that it refers
    to.
    """
    for projection in projections:
        # Their rows go with the row that they refer to.
        for child in foreign_keys.children_of(projection, projections):
            names = {"no": no, "name": projection.name, "child": child.name}
            connection.execute(_NOTE_CHILD, names)
        for rows in changed_entities(connection, no, projection.name):
            _project(connection, dialect, projection, no, rows, now_us)


def _project(
    connection: Connection,
    dialect: Dialect,
    projection: Projection,
    no: int,
    rows: Sequence[Row[Any]],
    now_us: int,
) -> None:
    # Numbers in the SQL text: one statement, and a database sees how few they are.
    these = f"{ENTITY_ID} IN ({', '.join(str(row[0]) for row in rows)})"
    table = connection.dialect.identifier_preparer.format_table(projection.table)
    if _has_any_from(connection, table, rows[0][0]):
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE {these}")
    if _has_any_from(connection, "instep_projection_error", rows[0][0]):
        connection.execute(
            text(f"DELETE FROM instep_projection_error WHERE name = :name AND {these}"),
            {"name": projection.name},
        )
    if _write_fast(connection, dialect, projection, rows):
        return
    consumer, stream = connection.execute(_STREAM, {"no": no}).one()
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
    refused_rows = _insert(connection, dialect, projection, written)
    if refused_rows and projection.has_many_rows:
        # All rows of an entity, or none.
        ids = ", ".join(map(str, refused_rows))
        connection.exec_driver_sql(f"DELETE FROM {table} WHERE {ENTITY_ID} IN ({ids})")
    errors |= refused_rows
    if errors:
        connection.execute(
            _KEEP,
            [
                {
                    "id": id,
                    "name": projection.name,
                    "no": no,
                    "reason": without_nul(reason)[:_REASON_CHARACTERS],
                    "now_us": now_us,
                }
                for id, reason in errors.items()
            ],
        )


def _has_any_from(connection: Connection, table: str, id: int) -> bool:
    """Whether it has a row of an entity from this one on. New entities have the highest ids: there
    is nothing of them to remove.
    """
    query = f"SELECT 1 FROM {table} WHERE {ENTITY_ID} >= {id} LIMIT 1"
    return connection.exec_driver_sql(query).first() is not None


def _write_fast(
    connection: Connection,
    dialect: Dialect,
    projection: Projection,
    rows: Sequence[Sequence[Any]],
) -> bool:
    """Write the rows of all these entities at once. False: nothing is written, and each has to be
    read by itself.
    """
    by_class: dict[str, list[Sequence[Any]]] = {}
    for row in rows:
        by_class.setdefault(row[2], []).append(row)
    columns: list[dict[str, Sequence[Any]]] = []
    for entity_class, own in by_class.items():
        if entity_class in projection.classes:
            read = fast_columns(projection, entity_class, ColumnarEntities.of(own))
            if read is None:
                return False
            columns.append(read)

    def insert_all() -> None:
        for of_class in columns:
            _insert_columns(connection, dialect, projection.table, of_class)

    return _refusal(connection, insert_all) is None


def _insert(
    connection: Connection,
    dialect: Dialect,
    projection: Projection,
    rows: Sequence[dict[str, Any]],
) -> dict[int, str]:
    """Insert the rows that the table can hold. Returns the reason for each other entity."""
    refused: dict[int, str] = {}
    # Rows of one statement state the same columns; the others have their defaults.
    groups: dict[frozenset[str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(frozenset(row), []).append(row)
    for group in groups.values():
        insert_all = partial(insert, connection, dialect, projection.table, group)
        reason = _refusal(connection, insert_all)
        if reason is None:
            continue
        if len(group) == 1:
            refused[group[0][ENTITY_ID]] = reason
            continue
        # Halves: a table of a thousand rows with a bad one is written in ten steps.
        middle = len(group) // 2
        for half in (group[:middle], group[middle:]):
            refused |= _insert(connection, dialect, projection, half)
    return refused


def _refusal(connection: Connection, insert_all: Callable[[], None]) -> str | None:
    """Insert the rows, all or none. Returns why the table cannot hold them; other errors are
    raised.
    """
    driver: Any = connection.dialect.loaded_dbapi
    try:
        with connection.begin_nested():
            insert_all()
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
    connection: Connection, dialect: Dialect, table: Table, rows: Sequence[dict[str, Any]]
) -> None:
    """Insert rows that state the same columns, all or none within the caller's savepoint.

    Raises what `insert_each` raises, but `ValueRefusedError` for a value that the type of its
    column does not take, and an error of the driver without SQLAlchemy's around it.
    """
    if is_plain(connection, table):
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        _insert_many(connection, dialect, table, columns)
    else:
        insert_each(connection, table, rows)


def _insert_columns(
    connection: Connection, dialect: Dialect, table: Table, columns: Mapping[str, Sequence[Any]]
) -> None:
    """The same of rows that are held column by column."""
    if is_plain(connection, table):
        _insert_many(connection, dialect, table, columns)
    else:
        rows = zip(*columns.values(), strict=True)
        insert_each(connection, table, [dict(zip(columns, row, strict=True)) for row in rows])


def _insert_many(
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


def _json(stored: bytes) -> Any:
    try:
        return _decode(stored) if stored else None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueRefusedError(f"it is no JSON: {error}") from error
