"""Derives rows from the entities that have changed, and writes the differences."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, Text, text

from instep.ports.derivation import EntityColumns, EntityDerivation, EntityTable, Row
from instep_sql.derived.followers import STATED, Follower, ReferenceColumn
from instep_sql.derived.tables import stored_table
from instep_sql.engine.bulk_writes import StoredTable, quoted
from instep_sql.engine.dialect import ColumnRows, Dialect, columns_of
from instep_sql.engine.stream_scope import StreamScope

__all__ = [
    "changed_entities",
    "derive_entities",
    "follower_of",
    "forget_stated",
    "make_stated",
]

_encode: Final = msgspec.msgpack.Encoder().encode
_STATED: Final = StoredTable(
    STATED,
    {"name": str, "entity_id": int, "digest": int},
    ("name", "entity_id"),
    shared=("name",),
)
_STATED_TABLE: Final = Table(
    STATED,
    MetaData(),
    Column("entity_id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("digest", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
_PAGE_RECORDS: Final = 1_000
_NEXT: Final = """
    SELECT e.id, e.key, e.class, e.uuid, e.body, e.envelope {more}
    FROM (SELECT entity_id FROM instep_unprojected
          WHERE stream_no = :no AND name = :name AND entity_id > :after
          ORDER BY entity_id LIMIT :limit) AS u
    JOIN instep_entity AS e ON e.id = u.entity_id {join}
    ORDER BY e.id
"""
_CHANGED: Final = text(_NEXT.format(more="", join=""))
_WITH_DIGEST: Final = text(
    _NEXT.format(
        more=", d.digest",
        join=f"LEFT JOIN {STATED} AS d ON d.entity_id = e.id AND d.name = :name",
    )
)
_DONE: Final = text("DELETE FROM instep_unprojected WHERE stream_no = :no AND name = :name")


def make_stated(connection: Connection) -> None:
    """Create the table of digests, if it does not exist."""
    _STATED_TABLE.create(connection, checkfirst=True)


def forget_stated(connection: Connection, name: str) -> None:
    """Derive each entity anew when it is looked at."""
    connection.execute(_STATED_TABLE.delete().where(_STATED_TABLE.c.name == name))


def follower_of(derivation: EntityDerivation) -> Follower:
    """What follows the entities for a derivation."""
    targets = tuple(
        ReferenceColumn(one.name, ("entity_id", *one.key), one.target)
        for one in derivation.tables
        if one.target
    )
    tables = (STATED, *(one.name for one in derivation.tables))
    return Follower(derivation.name, tuple(sorted(derivation.classes)), tables, targets)


def changed_entities(
    tx: StreamScope, name: str, *, digests: bool = False
) -> Iterator[Sequence[Any]]:
    """Pages of the changed entities of a stream; with `digests` each with what it stated, too.
    Once they are read, none counts as changed.
    """
    query = _WITH_DIGEST if digests else _CHANGED
    which: dict[str, Any] = {"no": tx.no, "name": name}
    after = -1
    while True:
        rows = tx.connection.execute(query, {**which, "after": after, "limit": _PAGE_RECORDS}).all()
        if rows:
            yield rows
            after = rows[-1].id
        if len(rows) < _PAGE_RECORDS:
            break
    if after >= 0:
        tx.connection.execute(_DONE, which)


def derive_entities(tx: StreamScope, derivation: EntityDerivation) -> None:
    """Derive what the changed entities of a stream state."""
    connection, dialect = tx.connection, tx.dialect
    for rows in changed_entities(tx, derivation.name, digests=True):
        ids, keys, classes, uuids, bodies, envelopes, digests = columns_of(rows)
        stated = derivation.derive(EntityColumns(keys, classes, uuids, envelopes, bodies))
        other_class: list[list[Any]] = [[] for _ in derivation.tables]
        # Of each table, its rows and of which entity each is: what an entity states is not held.
        rows_of: list[list[Row]] = [[] for _ in derivation.tables]
        ids_of: list[list[int]] = [[] for _ in derivation.tables]
        changed: list[int] = []
        current_digests: list[int] = []
        former: list[int] = []
        for id, entity_class, before, own in zip(ids, classes, digests, stated, strict=True):
            derived = own
            if derivation.classes and entity_class not in derivation.classes:
                derived = other_class  # it has been of one that is followed
            # A number of 64 bits for all that it states, signed as databases have them.
            digest = hashlib.blake2b(_encode(derived), digest_size=8).digest()
            current = int.from_bytes(digest, "big", signed=True)
            if current == before:
                continue
            if before is not None:
                former.append(id)
            changed.append(id)
            current_digests.append(current)
            for at, stated_rows in enumerate(derived):
                rows_of[at] += stated_rows
                ids_of[at] += [id] * len(stated_rows)
        names = [derivation.name] * len(changed)
        if former:
            dialect.delete_rows(connection, _STATED, [(derivation.name, id) for id in former])
        dialect.insert_rows(connection, _STATED, ColumnRows(names, changed, current_digests))
        for table, own_rows, own_ids in zip(derivation.tables, rows_of, ids_of, strict=True):
            added: Sequence[tuple[Any, ...]] = ()
            if own_rows:
                no_and_now = [[one] * len(own_rows) for one in (tx.no, tx.now_us)]
                added = ColumnRows(own_ids, *columns_of(own_rows), *no_and_now)
            if former:
                added = _replace(connection, dialect, table, former, added)
            if added:
                dialect.insert_rows(connection, stored_table(table), added)


def _replace(
    connection: Connection,
    dialect: Dialect,
    table: EntityTable,
    former: Sequence[int],
    rows: Sequence[tuple[Any, ...]],
) -> list[tuple[Any, ...]]:
    """Remove what these entities no longer state. Returns the rows that are not stored yet."""
    columns = ("entity_id", *(one.name for one in table.columns))
    ids = ", ".join(map(str, former))
    named = ", ".join(map(quoted, columns))
    query = f"SELECT {named} FROM {quoted(table.name)} WHERE entity_id IN ({ids})"
    stored = {tuple(row) for row in connection.exec_driver_sql(query)}
    size = len(columns)
    gone = sorted(stored.difference(row[:size] for row in rows))
    if gone:
        dialect.delete_rows(connection, stored_table(table), gone, columns)
    return [row for row in rows if row[:size] not in stored]
