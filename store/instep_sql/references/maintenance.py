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

from instep_sql.engine.bulk_writes import StoredTable
from instep_sql.engine.definitions import REFERENCES, define, definition_of
from instep_sql.engine.dialect import Dialect
from instep_sql.references.stated import PLACE, REFERENCE, digest_of, stated
from instep_sql.references.triggers import triggers_of

__all__ = ["follow", "keep"]

_VERSION: Final = "1"
"""Of what is derived: another one builds the tables again when a store is opened."""
_TABLES: Final = ("instep_place", "instep_reference", "instep_stated", "instep_stale")
_ALL_STALE: Final = (
    "INSERT INTO instep_stale (stream_no, entity_id) SELECT stream_no, id FROM instep_entity"
)

_OF_COMMIT: Final = {"stream_no": int, "since_us": int}
_TEXTS: Final = {"name", "uuid", "role"}


def _table(name: str, *columns: str) -> StoredTable:
    of = {column: str if column in _TEXTS else int for column in ("entity_id", *columns)}
    return StoredTable(name, {**of, **_OF_COMMIT}, key=("entity_id", *columns))


_PLACES: Final = _table("instep_place", *PLACE)
_REFERENCES: Final = _table("instep_reference", *REFERENCE)
_STATED: Final = StoredTable("instep_stated", {"entity_id": int, "digest": int}, ("entity_id",))

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
    triggers = triggers_of(dialect)
    current = hashlib.sha256(repr((_VERSION, triggers)).encode()).hexdigest()
    definition = current if wanted else None
    if definition_of(connection, REFERENCES) == definition:
        return
    dialect.lock_for_migration(connection)
    if definition_of(connection, REFERENCES) == definition:
        return
    dialect.drop_triggers(connection, triggers)
    for table in _TABLES:
        connection.exec_driver_sql(f"DELETE FROM {table}")
    define(connection, REFERENCES, definition)
    if definition is not None:
        dialect.create_triggers(connection, triggers)
        connection.exec_driver_sql(_ALL_STALE)
        for no in connection.execute(_STREAMS).scalars().all():
            follow(connection, dialect, no, now_us)


def follow(connection: Connection, dialect: Dialect, no: int, now_us: int) -> None:
    """Derive what the changed entities of a stream state, and write the differences."""
    after = -1
    while True:
        query = _STALE.format(no, after, _PAGE_RECORDS)
        rows = connection.exec_driver_sql(query).all()
        if rows:
            _derive(connection, dialect, no, now_us, rows)
            after = rows[-1].id
        if len(rows) < _PAGE_RECORDS:
            break
    connection.execute(_DERIVED, {"no": no})


def _derive(
    connection: Connection, dialect: Dialect, no: int, now_us: int, rows: Sequence[Sequence[Any]]
) -> None:
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
    if former:
        places = _changed(connection, dialect, _PLACES, former, places)
        references = _changed(connection, dialect, _REFERENCES, former, references)
        dialect.delete_rows(connection, _STATED, [(id,) for id in former])
    dialect.insert_rows(connection, _STATED, digests)
    dialect.insert_rows(connection, _PLACES, places)
    dialect.insert_rows(connection, _REFERENCES, references)


def _changed(
    connection: Connection,
    dialect: Dialect,
    table: StoredTable,
    former: Sequence[int],
    rows: list[tuple[Any, ...]],
) -> list[tuple[Any, ...]]:
    """Remove what these entities no longer state. Returns the rows that are not stored yet."""
    ids = ", ".join(map(str, former))
    query = f"SELECT {', '.join(table.key)} FROM {table.name} WHERE entity_id IN ({ids})"
    stored = {tuple(row) for row in connection.exec_driver_sql(query)}
    size = len(table.key)
    gone = sorted(stored.difference(row[:size] for row in rows))
    dialect.delete_rows(connection, table, gone)
    return [row for row in rows if row[:size] not in stored]
