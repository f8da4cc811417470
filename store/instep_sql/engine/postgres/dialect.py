"""PostgreSQL: its connections and its SQL on the hot path.

Measured with records of 1.3 KB: a large batch is written fastest by a binary COPY into a temporary
table and one merge from there, a small batch by one statement with arrays. The synchronous driver
in the worker thread takes at most a tenth longer than the fastest asynchronous driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import psycopg
from sqlalchemy import URL, Connection, Engine, text

from instep.errors import SinkError
from instep.model.ordering import SQL_PLACE, Place, supersedes_sql
from instep_sql.engine.access import grant
from instep_sql.engine.bulk_writes import (
    IGNORE_EXISTING,
    StoredTable,
    insert_sql,
    quoted,
    upsert_sql,
)
from instep_sql.engine.dialect import (
    AttemptMark,
    ChangeRow,
    CommitNotifications,
    EndRow,
    EntityRow,
    FailureKind,
    StatedRow,
    StoredRow,
    Updates,
    columns_of,
    execute_parsed,
    shared_values,
)
from instep_sql.engine.journal_insert import APPEND_COLUMNS, append_sql
from instep_sql.engine.postgres import errors
from instep_sql.engine.postgres.connection import (
    connect_arguments,
    own_settings,
    place,
    schema_name,
    settings,
)
from instep_sql.engine.postgres.notifications import PostgresNotifications
from instep_sql.engine.postgres.session import is_pooled, session_engine
from instep_sql.engine.postgres.triggers import create_sql, drop_sql
from instep_sql.engine.triggers import Trigger
from instep_sql.options import Journal, SqlOptions

__all__ = ["Postgres"]

# psycopg logs it beside the error that it raises, which is handled: a row that a table refuses.
logging.getLogger("psycopg").addFilter(
    lambda record: not str(record.msg).startswith("error ignored terminating")
)

_COPY_FROM_RECORDS: Final = 1_000

_TYPES: Final = {int: "int8", float: "float8", bool: "bool", str: "text", bytes: "bytea"}
_SHOWN: Final = {
    "time": "timestamptz 'epoch' + ({0}) * interval '1 microsecond'",
    "flag": "({0}) <> 0",
    "json": "instep_json({0})",
}
_MARK: Final = "stream_no, lineage, attempt"
_ENTITY: Final = {
    "key": "text",
    "class": "text",
    "token": "text",
    "partition": "text",
    '"offset"': "int8",
    "appended_at_us": "int8",
    "uuid": "text",
    "envelope": "bytea",
    "body": "bytea",
}
_CHANGE: Final = {
    "stream_no": "int4",
    "committed_at_us": "int8",
    "key": "text",
    "class": "text",
    "change": "text",
    "kind": "int2",
    "token": "text",
    "appended_at_us": "int8",
    "envelope": "bytea",
    "body": "bytea",
    "previous": "bytea",
}
_END: Final = {
    "stream_no": "int4",
    "key": "text",
    "lineage": "int4",
    "known": "int8",
    "partition": "text",
    '"offset"': "int8",
    "appended_at_us": "int8",
}


def _columns(of: dict[str, str]) -> str:
    return ", ".join(of)


def _arrays(of: dict[str, str]) -> str:
    """SQL for rows whose columns are passed as arrays."""
    arrays = ", ".join(f"%b::{kind}[]" for kind in of.values())
    return f"unnest({arrays}) AS given ({_columns(of)})"


# The incoming rows of a transaction; gone when it ends.
_INCOMING: Final = f"""
CREATE TEMPORARY TABLE IF NOT EXISTS instep_incoming (
  {", ".join(f"{name} {kind}" for name, kind in _ENTITY.items())}
) ON COMMIT DELETE ROWS
"""
_COPY_INCOMING: Final = "COPY instep_incoming ({}) FROM STDIN (FORMAT BINARY)"
_STATED: Final = {"key": "text", "envelope": "bytea", "body": "bytea"}
_COMPARE: Final = f"""
SELECT '', stored.key, 1, stored.token, stored.appended_at_us, stored.partition, stored."offset",
       stored.class, stored.lineage, stored.envelope = given.envelope, stored.body = given.body
FROM {_arrays(_STATED)} JOIN instep_entity AS stored ON stored.key = given.key
WHERE stored.stream_no = %s
"""
_COPY_CHANGES: Final = f"COPY instep_change ({_columns(_CHANGE)}) FROM STDIN (FORMAT BINARY)"
# Rows are numbered, so that they are appended in order.
_UPDATES: Final = f"""(
    SELECT %s::text AS partition, %s::text[] AS events, given.* FROM unnest(
        {", ".join(f"%b::{kind}[]" for kind in APPEND_COLUMNS.values())}
    ) WITH ORDINALITY AS given ({_columns(APPEND_COLUMNS)}, number)) AS stated"""

_STORED: Final = Place.of("stored", SQL_PLACE)
_MERGE: Final = f"""
INSERT INTO instep_entity AS stored ({_MARK}, {_columns(_ENTITY)}, proven)
SELECT {{mark}}, {{values}}, 1 FROM {{incoming}}
ON CONFLICT (stream_no, key) DO UPDATE SET
  lineage = excluded.lineage, attempt = excluded.attempt,
  {", ".join(f"{name} = excluded.{name}" for name in list(_ENTITY)[1:])}, proven = 1
WHERE NOT {supersedes_sql(_STORED, Place.of("excluded", SQL_PLACE))}
"""
_OF_CLASS: Final = """
  AND (stored.class = excluded.class OR '' IN (stored.class, excluded.class))
"""
_ENTITY_ARRAYS: Final = _arrays(_ENTITY)
_REMOVE: Final = f"""
DELETE FROM instep_entity AS stored USING {_arrays(_END)}
WHERE stored.stream_no = given.stream_no AND stored.key = given.key
  AND NOT {supersedes_sql(_STORED, Place.of("given", SQL_PLACE))}
"""

_MIGRATING: Final = text("SELECT pg_advisory_xact_lock(hashtext('instep migration'))")
_HAS_SCHEMA: Final = text("SELECT to_regnamespace(:name) IS NOT NULL")
# A row that was updated carries the transaction id of the update in xmax. A process that is stopped
# in the middle of a transaction keeps its locks on the server. A role may always end its own
# sessions.
_END_SILENT: Final = text("""
    SELECT pg_terminate_backend(holder.pid)
    FROM instep_lease AS lease JOIN pg_stat_activity AS holder ON holder.backend_xid = lease.xmax
    WHERE lease.consumer = :consumer AND holder.usename = current_user
      AND (holder.state LIKE 'idle in transaction%' OR holder.wait_event_type = 'Client')
      AND clock_timestamp() - holder.state_change > :silent_s * interval '1 second'
""")
_SILENT_SHARE: Final = 1 / 4
_LOCK_SHARE: Final = 1 / 12


class Postgres:
    """The dialect of PostgreSQL 13 and later, over psycopg."""

    in_memory = False
    errors: tuple[type[Exception], ...] = (psycopg.Error,)
    for_update = "FOR UPDATE"
    newest_cursor = "SELECT cursor FROM instep_change_last"
    now_us = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    short_integers = True

    def __init__(self, options: SqlOptions) -> None:
        self._options = options
        url = options.place
        # Built from its parts: `set` cannot remove a password.
        shown = URL.create("postgresql", url.username, None, url.host, url.port, url.database)
        self.where = shown.render_as_string()

    def writer(self) -> Engine:
        return self._engine(own_table=_INCOMING)

    def reader(self) -> Engine:
        return self._engine(read_only=True)

    def begin(self, connection: Connection) -> Callable[[], None]:
        return connection.begin().commit

    def notifications(self) -> CommitNotifications:
        return PostgresNotifications(self.reader)

    def _engine(self, *, own_table: str = "", read_only: bool = False) -> Engine:
        return session_engine(
            place(self._options),
            connect_arguments(self._options),
            settings=settings(self._options, read_only=read_only),
            own_settings=own_settings(),
            statement_timeout_s=self._options.statement_timeout_s,
            own_table=own_table,
            read_only=read_only,
            where=self.where,
        )

    def translate(self, error: BaseException, failure_kind: FailureKind) -> SinkError:
        return errors.translate(error, self.where, failure_kind)

    def failure_kind(self, error: BaseException, connection: Connection | None) -> FailureKind:
        return errors.failure_kind(error, connection)

    def no_store_hint(self, _connection: Connection) -> str:
        return "look at the URL"

    def cannot_mean(self, error: BaseException) -> bool:
        return errors.cannot_mean(error)

    def lock_for_migration(self, connection: Connection) -> None:
        connection.execute(_MIGRATING)
        schema = schema_name(self._options)
        # Checked first: a user who may not create schemas may use an existing one.
        if schema and not connection.execute(_HAS_SCHEMA, {"name": f'"{schema}"'}).scalar_one():
            connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')

    def end_silent_holder(self, connection: Connection, consumer: str, lease_s: float) -> None:
        lock_ms = max(1, int(lease_s * _LOCK_SHARE * 1_000))
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {lock_ms}")
        silent_s = lease_s * _SILENT_SHARE
        connection.execute(_END_SILENT, {"consumer": consumer, "silent_s": silent_s})

    def members(self, parameter: str) -> str:
        return f"(SELECT jsonb_array_elements_text(CAST(:{parameter} AS jsonb)))"

    def shown(self, expression: str, shown_as: str) -> str:
        return _SHOWN.get(shown_as, "{0}").format(expression)

    def begins_with(self, column: str, parameter: str) -> str:
        return f"starts_with({column}, :{parameter})"

    def update_statistics(self, connection: Connection, table: str) -> None:
        connection.exec_driver_sql(f"ANALYZE {table}")

    def grant_reading(
        self, connection: Connection, roles: Sequence[str], tables: Sequence[str]
    ) -> None:
        grant(connection, roles, tables, self.where)

    def create_triggers(self, connection: Connection, triggers: Sequence[Trigger]) -> None:
        for statement in chain.from_iterable(map(create_sql, triggers)):
            connection.exec_driver_sql(statement)

    def drop_triggers(self, connection: Connection, triggers: Sequence[Trigger]) -> None:
        for statement in chain.from_iterable(map(drop_sql, triggers)):
            connection.exec_driver_sql(statement)

    def insert_rows(
        self,
        connection: Connection,
        table: StoredTable,
        rows: Sequence[tuple[Any, ...]],
        *,
        ignore_existing: bool = False,
    ) -> int:
        return _run_arrays(connection, _insert_rows(table, ignore_existing=ignore_existing), rows)

    def upsert_rows(
        self, connection: Connection, table: StoredTable, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        return _run_arrays(connection, _upsert_rows(table), rows)

    def delete_rows(
        self,
        connection: Connection,
        table: StoredTable,
        rows: Sequence[tuple[Any, ...]],
        columns: Sequence[str] = (),
    ) -> int:
        return _run_arrays(connection, _delete_rows(table, tuple(columns or table.key)), rows)

    def upsert_entities(
        self,
        connection: Connection,
        mark: AttemptMark,
        rows: Sequence[EntityRow],
        *,
        keys_are_uuids: bool = False,  # noqa: ARG002 — it compares the values that it indexes
        of_class: bool = False,
    ) -> int:
        merging = _MERGE + _OF_CLASS if of_class else _MERGE
        numbers = "{:d}, {:d}, {:d}".format(*mark)
        if len(rows) < _COPY_FROM_RECORDS or is_pooled(connection.info):
            merge = merging.format(mark=numbers, values=_columns(_ENTITY), incoming=_ENTITY_ARRAYS)
            return _run_arrays(connection, merge, rows)
        columns = dict(zip(_ENTITY, columns_of(rows), strict=True))
        shared = shared_values(columns)
        own = {name: kind for name, kind in _ENTITY.items() if name not in shared}
        own_rows = zip(*[columns[name] for name in own], strict=True)
        cursor = _cursor(connection)
        _copy(cursor, _COPY_INCOMING.format(_columns(own)), own, own_rows)
        values = ", ".join("%s::text" if name in shared else name for name in _ENTITY)
        merge = merging.format(mark=numbers, values=values, incoming="instep_incoming")
        return cursor.execute(merge.encode(), list(shared.values())).rowcount

    def end_entities(self, connection: Connection, rows: Sequence[EndRow]) -> int:
        return _run_arrays(connection, _REMOVE, rows)

    def compare(
        self, connection: Connection, no: int, rows: Sequence[StatedRow]
    ) -> Sequence[StoredRow]:
        if not rows:
            return []
        arrays = [list(column) for column in zip(*rows, strict=True)]
        found = _cursor(connection).execute(_COMPARE.encode(), [*arrays, no])
        return [StoredRow(*row) for row in found]

    def add_changes(
        self, connection: Connection, no: int, now_us: int, rows: Sequence[ChangeRow]
    ) -> None:
        if rows:
            bodies = (b"", None) if len(rows[0]) + 2 < len(_CHANGE) else ()
            change_rows = ((no, now_us, *row, *bodies) for row in rows)
            _copy(_cursor(connection), _COPY_CHANGES, _CHANGE, change_rows)

    def add_differing(
        self, connection: Connection, updates: Updates, now_us: int, mode: Journal
    ) -> int:
        statement = append_sql(
            updates.stream_no,
            updates.lineage,
            _UPDATES,
            now_us="%s::int8",
            of_events="stated.class = ANY (stated.events)",
            body="''::bytea" if mode is Journal.CHANGES else "stated.body",
            previous="stored.body" if mode is Journal.PREVIOUS else "NULL",
        )
        arrays = map(list, columns_of(updates.rows))
        values = [now_us, updates.partition, list(updates.event_classes), *arrays]
        return (
            _cursor(connection).execute((statement + " ORDER BY number").encode(), values).rowcount
        )

    def execute(
        self, connection: Connection, statement: str, values: Mapping[str, Any]
    ) -> Sequence[Sequence[Any]]:
        return execute_parsed(connection, statement, values)

    def execute_many(
        self, connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]
    ) -> int:
        if not rows:
            return 0
        return connection.exec_driver_sql(statement.replace("?", "%s"), list(rows)).rowcount


@lru_cache(maxsize=256)
def _insert_rows(table: StoredTable, *, ignore_existing: bool) -> str:
    then = f" {IGNORE_EXISTING}" if ignore_existing else ""
    return f"{insert_sql(table)}SELECT * FROM {_given(table, table.columns)}{then}"


@lru_cache(maxsize=256)
def _upsert_rows(table: StoredTable) -> str:
    return _insert_rows(table, ignore_existing=False) + upsert_sql(table)


@lru_cache(maxsize=256)
def _delete_rows(table: StoredTable, columns: tuple[str, ...]) -> str:
    same = " AND ".join(f"stored.{quoted(name)} = given.{quoted(name)}" for name in columns)
    given = _given(table, columns)
    return f"DELETE FROM {quoted(table.name)} AS stored USING {given} WHERE {same}"


def _given(table: StoredTable, columns: Iterable[str]) -> str:
    return _arrays({quoted(name): _TYPES[table.columns[name]] for name in columns})


def _cursor(connection: Connection) -> psycopg.Cursor[Any]:
    """The driver's own cursor, in the transaction of the connection."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    return raw.cursor()


def _run_arrays(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
    if not rows:
        return 0
    # One list per column, as unnest expects.
    arrays = [list(column) for column in columns_of(rows)]
    return _cursor(connection).execute(statement.encode(), arrays).rowcount


def _copy(
    cursor: psycopg.Cursor[Any], statement: str, of: dict[str, str], rows: Iterable[Any]
) -> None:
    with cursor.copy(statement.encode()) as copy:
        copy.set_types(list(of.values()))
        for row in rows:
            copy.write_row(row)
