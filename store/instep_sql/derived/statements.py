"""Derives rows from the records of a commit, and from what a sweep has ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, TextClause, text

from instep.model.columns import RecordColumns
from instep.model.position import Position
from instep.model.records import Record
from instep.ports.derivation import Changes, Row, StatementDerivation, Statements, StatementTable
from instep_sql.derived.tables import stored_table
from instep_sql.engine.bulk_writes import quoted
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.engine.stream_scope import StreamScope
from instep_sql.stored_entities import rows_of_classes, stored_record

__all__ = [
    "ConfiguredDerivation",
    "apply_records",
    "derive_stored",
    "end_swept",
    "rename_key",
    "trim_tables",
]

_PAGE_RECORDS: Final = 1_000
_TRIM_RECORDS: Final = 1_000


class ConfiguredDerivation(NamedTuple):
    """A derivation that the store keeps, and its options as the consumer has them."""

    derivation: StatementDerivation
    options: Any


def apply_records(
    tx: StreamScope,
    kept: Iterable[ConfiguredDerivation],
    records: Sequence[Record],
    position: Position,
    info: str,
) -> None:
    """Let each derivation follow these records of a stream, read under the lineage and the attempt
    of `position`. `info` is the stored description of the stream.
    """
    for derivation, options in kept:
        followed = _followed(derivation, records)
        if followed:
            declared = json.loads(info)
            statements = Statements(
                followed,
                position.lineage,
                position.attempt,
                tx.now_us + declared.get("clock_offset_us", 0),
                options,
                declared.get("compaction_delay_s"),
            )
            _derive(tx, derivation, statements)


def derive_stored(
    connection: Connection,
    dialect: Dialect,
    derivation: StatementDerivation,
    options: Any,
    now_us: int,
) -> None:
    """Derive what the stored entities state last: what was before is not known."""
    for row in rows_of_classes(connection, derivation.classes):
        statements = Statements(
            [stored_record(row)], row.lineage, row.attempt, now_us, options, stored=True
        )
        _derive(StreamScope(connection, dialect, row.stream_no, now_us), derivation, statements)


def _followed(derivation: StatementDerivation, records: Sequence[Record]) -> Sequence[Record]:
    """The records of its classes, and the ends that may be of one."""
    classes, ends_as = derivation.classes, derivation.ends_as
    if not isinstance(records, RecordColumns):
        return [
            record
            for record in records
            if record.entity_class in (ends_as if record.ends else classes)
        ]
    named = set(records.classes)
    if named <= classes and (named <= ends_as or True not in records.ends):
        return records
    if named.isdisjoint(classes | ends_as):
        return ()
    indexes = [
        index
        for index, (name, ends) in enumerate(zip(records.classes, records.ends, strict=True))
        if name in (ends_as if ends else classes)
    ]
    return records.picked(indexes) if indexes else ()


def _derive(tx: StreamScope, derivation: StatementDerivation, statements: Statements) -> None:
    before: dict[str, Sequence[Row]] = {}
    if latest := [table for table in derivation.tables if table.latest]:
        records = statements.records
        columns = records if isinstance(records, RecordColumns) else None
        keys = json_array(set(columns.keys if columns else [one.key for one in records]))
        for table in latest:
            query = _latest(table, tx.dialect.members("keys"))
            before[table.name] = _rows(tx, query, keys=keys)
    _write(tx, derivation, derivation.derive(statements, before))


def _write(tx: StreamScope, derivation: StatementDerivation, changes: Changes) -> None:
    tables = {one.name: one for one in derivation.tables}
    for name, rows in changes.inserted.items():
        if rows:
            table = tables[name]
            write = tx.dialect.insert_rows if table.replaced is None else tx.dialect.upsert_rows
            write(tx.connection, stored_table(table), [(tx.no, *row) for row in rows])
    for update in changes.updated:
        if update.rows:
            statement = _update(update.table, update.columns)
            tx.dialect.execute_many(tx.connection, statement, update.rows)


def end_swept(
    tx: StreamScope,
    kept: Iterable[ConfiguredDerivation],
    keys: Sequence[str],
    at_us: int,
    *,
    done: bool,
) -> None:
    """Tell what lasts of the entities that a step of a sweep has removed: they were gone when the
    attempt began, at `at_us`. What the sweep leaves unproven may have ended, too.
    """
    for derivation, _ in kept:
        for table in derivation.tables:
            if not table.open:
                continue
            if keys:
                query = _open(table, f"r.key IN {tx.dialect.members('keys')}")
                rows = _rows(tx, query, keys=json_array(keys))
                _write(tx, derivation, derivation.end_swept(table.name, rows, at_us))
            if done:
                # Also what a process without the derivation has ended.
                for page in _open_pages(tx, table, _WITHOUT_ENTITY):
                    _write(tx, derivation, derivation.end_swept(table.name, page, at_us))
                for page in _open_pages(tx, table, _UNPROVEN):
                    _write(tx, derivation, derivation.doubt(table.name, page))


_WITHOUT_ENTITY: Final = """
    NOT EXISTS (SELECT 1 FROM instep_entity AS e WHERE e.stream_no = r.stream_no AND e.key = r.key)
"""
_UNPROVEN: Final = "r.key IN (SELECT key FROM instep_entity WHERE stream_no = :no AND proven = 0)"


def _open_pages(tx: StreamScope, table: StatementTable, condition: str) -> Iterator[Sequence[Row]]:
    query = _open(table, f"r.id > :after AND {condition}", limit=_PAGE_RECORDS)
    after = -1
    while True:
        rows = _rows(tx, query, after=after)
        if rows:
            yield rows
        if len(rows) < _PAGE_RECORDS:
            return
        after = rows[-1][0]


def rename_key(tx: StreamScope, kept: Iterable[ConfiguredDerivation], old: str, new: str) -> None:
    """Give what stands of an entity its other key, unless something stands of that one."""
    for derivation, _ in kept:
        for table in derivation.tables:
            if table.latest:
                tx.connection.execute(_rename(table.name), {"no": tx.no, "old": old, "new": new})


def trim_tables(
    tx: StreamScope, kept: Iterable[ConfiguredDerivation], options: msgspec.Struct, appended: int
) -> None:
    """Remove the oldest rows that exceed the retention: a bounded number, but more than a commit
    appends.
    """
    for derivation, _ in kept:
        for table in derivation.tables:
            if table.retention:
                limit = table.most_rows * appended + _TRIM_RECORDS
                keep = getattr(options, table.retention)
                statement = _trim(table, tx.dialect.skip_locked)
                tx.connection.execute(statement, {"keep": keep, "limit": limit})


def _rows(tx: StreamScope, query: TextClause, **values: Any) -> Sequence[Row]:
    found: Sequence[Any] = tx.connection.execute(query, {"no": tx.no, **values}).all()
    return found


def _columns(table: StatementTable) -> str:
    return ", ".join(("r.id", *(f"r.{quoted(one.name)}" for one in table.columns)))


@lru_cache(maxsize=64)
def _latest(table: StatementTable, members: str) -> TextClause:
    """The row that stands of each key: of those with its key, the one with the highest number."""
    name, latest = quoted(table.name), quoted(table.latest)
    return text(f"""
        SELECT {_columns(table)} FROM {name} AS r
        WHERE r.stream_no = :no AND r.key IN {members} AND r.{latest} = (
            SELECT max(b.{latest}) FROM {name} AS b
            WHERE b.stream_no = r.stream_no AND b.key = r.key)
    """)


@lru_cache(maxsize=64)
def _open(table: StatementTable, condition: str, limit: int | None = None) -> TextClause:
    page = "" if limit is None else f"ORDER BY r.id LIMIT {limit}"
    return text(f"""
        SELECT {_columns(table)} FROM {quoted(table.name)} AS r
        WHERE r.stream_no = :no AND r.{quoted(table.open)} IS NULL AND {condition} {page}
    """)


@lru_cache(maxsize=64)
def _update(table: str, columns: tuple[str, ...]) -> str:
    assigned = ", ".join(f"{quoted(name)} = ?" for name in columns)
    return f"UPDATE {quoted(table)} SET {assigned} WHERE id = ?"


@lru_cache(maxsize=64)
def _rename(table: str) -> TextClause:
    name = quoted(table)
    return text(f"""
        UPDATE {name} SET key = :new WHERE stream_no = :no AND key = :old
          AND NOT EXISTS (SELECT 1 FROM {name} WHERE stream_no = :no AND key = :new)
    """)


@lru_cache(maxsize=64)
def _trim(table: StatementTable, unlocked: str) -> TextClause:
    name = quoted(table.name)
    ended = f"AND {quoted(table.open)} IS NOT NULL" if table.open else ""
    return text(f"""
        DELETE FROM {name} WHERE id IN (
            SELECT id FROM {name} WHERE id <= (SELECT max(id) FROM {name}) - :keep {ended}
            ORDER BY id LIMIT :limit {unlocked})
    """)
