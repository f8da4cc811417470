"""Turns the tables of places and references on and off, and keeps them in step with the entities.

Triggers note each entity that a statement has changed, whatever wrote, renamed or repaired it; the
commit then derives what those entities state and writes the differences. Triggers also remove what
an entity stated that has ended. Without the triggers nobody pays for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, text

from instep_sql.engine.bulk_insert import insert_rows
from instep_sql.engine.definitions import REFERENCES, define, definition_of
from instep_sql.engine.dialect import Dialect
from instep_sql.references import postgres, sqlite
from instep_sql.references.stated import PLACE, REFERENCE, digest_of, stated

__all__ = ["follow", "keep"]

_VERSION: Final = "1"
"""Of what is derived: another one builds the tables again when a store is opened."""
_TABLES: Final = ("instep_place", "instep_reference", "instep_stated", "instep_stale")
_ALL_STALE: Final = (
    "INSERT INTO instep_stale (stream_no, entity_id) SELECT stream_no, id FROM instep_entity"
)

_PAGE_RECORDS: Final = 1_000
_STALE: Final = """
    SELECT e.id, e.uuid, e.envelope, e.body, d.digest
    FROM (SELECT entity_id FROM instep_stale WHERE stream_no = {:d} AND entity_id > {:d}
          ORDER BY entity_id LIMIT {:d}) AS c
    JOIN instep_entity AS e ON e.id = c.entity_id
    LEFT JOIN instep_stated AS d ON d.entity_id = e.id
    ORDER BY e.id
"""
_DERIVED: Final = text("DELETE FROM instep_stale WHERE stream_no = :no")
_STREAMS: Final = text("SELECT DISTINCT stream_no FROM instep_stale")


def keep(connection: Connection, dialect: Dialect, *, wanted: bool, now_us: int) -> None:
    """Keep places and references from now on, or no longer; does nothing if that is so already.

    They are built from the stored entities when they are turned on, and built again after an
    upgrade that derives them otherwise.
    """
    sql = sqlite if connection.dialect.name == "sqlite" else postgres
    current = hashlib.sha256("".join((_VERSION, *sql.CREATE)).encode()).hexdigest()
    definition = current if wanted else None
    if definition_of(connection, REFERENCES) == definition:
        return
    dialect.lock_for_migration(connection)
    if definition_of(connection, REFERENCES) == definition:
        return
    for statement in (*sql.DROP, *(f"DELETE FROM {table}" for table in _TABLES)):  # noqa: S608
        connection.exec_driver_sql(statement)
    define(connection, REFERENCES, definition)
    if definition is not None:
        for statement in (*sql.CREATE, _ALL_STALE):
            connection.exec_driver_sql(statement)
        for no in connection.execute(_STREAMS).scalars().all():
            follow(connection, no, now_us)


def follow(connection: Connection, no: int, now_us: int) -> None:
    """Derive what the changed entities of a stream state, and write the differences."""
    after = -1
    while True:
        query = _STALE.format(no, after, _PAGE_RECORDS)
        rows = connection.exec_driver_sql(query).all()
        if rows:
            _derive(connection, no, now_us, rows)
            after = rows[-1].id
        if len(rows) < _PAGE_RECORDS:
            break
    connection.execute(_DERIVED, {"no": no})


def _derive(connection: Connection, no: int, now_us: int, rows: Sequence[Sequence[Any]]) -> None:
    places: list[tuple[Any, ...]] = []
    references: list[tuple[Any, ...]] = []
    digests, former = [], []
    for id, uuid, envelope, body, digest in rows:
        own_places, own_references = stated(uuid, envelope, body)
        current = digest_of(own_places, own_references)
        if current == digest:
            continue
        if digest is not None:
            former.append(id)
        digests.append((id, current))
        places += [(id, *one, no, now_us) for one in own_places]
        references += [(id, *one, no, now_us) for one in own_references]
    named_places, named_references = ("entity_id", *PLACE), ("entity_id", *REFERENCE)
    if former:
        places = _changed(connection, "instep_place", named_places, former, places)
        references = _changed(connection, "instep_reference", named_references, former, references)
        _remove(connection, "instep_stated", ("entity_id",), [(id,) for id in former])
    _insert(connection, "instep_stated", ("entity_id", "digest"), digests)
    of_commit = ("stream_no", "since_us")
    _insert(connection, "instep_place", named_places + of_commit, places)
    _insert(connection, "instep_reference", named_references + of_commit, references)


def _changed(
    connection: Connection,
    table: str,
    columns: tuple[str, ...],
    former: Sequence[int],
    rows: list[tuple[Any, ...]],
) -> list[tuple[Any, ...]]:
    """Remove what these entities no longer state. Returns the rows that are not stored yet."""
    ids = ", ".join(map(str, former))
    query = f"SELECT {', '.join(columns)} FROM {table} WHERE entity_id IN ({ids})"  # noqa: S608
    stored = {tuple(row) for row in connection.exec_driver_sql(query)}
    size = len(columns)
    _remove(connection, table, columns, sorted(stored.difference(row[:size] for row in rows)))
    return [row for row in rows if row[:size] not in stored]


_TYPES: Final = {"name": "text", "uuid": "text", "role": "text"}


def _parameters(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> Any:
    """Parameters for many rows: one list a row, or in PostgreSQL one array a column."""
    if connection.dialect.name == "sqlite":
        return list(rows)
    return tuple(list(column) for column in zip(*rows, strict=True))


def _arrays(columns: tuple[str, ...]) -> str:
    arrays = ", ".join(f"%s::{_TYPES.get(name, 'int8')}[]" for name in columns)
    return f"unnest({arrays}) AS given ({', '.join(columns)})"


def _insert(
    connection: Connection, table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
) -> None:
    if not rows:
        return
    into = f"{table} ({', '.join(columns)})"
    if connection.dialect.name == "sqlite":
        insert_rows(connection, into, rows)
        return
    statement = f"INSERT INTO {into} SELECT * FROM {_arrays(columns)}"  # noqa: S608 — constants only
    connection.exec_driver_sql(statement, _parameters(connection, rows))


def _remove(
    connection: Connection, table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
) -> None:
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        same = " AND ".join(f"{name} = ?" for name in columns)
        statement = f"DELETE FROM {table} WHERE {same}"  # noqa: S608 — constants only
    else:
        same = " AND ".join(f"stored.{name} = given.{name}" for name in columns)
        statement = f"DELETE FROM {table} AS stored USING {_arrays(columns)} WHERE {same}"  # noqa: S608
    connection.exec_driver_sql(statement, _parameters(connection, rows))
