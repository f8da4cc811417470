"""Checks that a derivation keeps the promises of its port, without a database.

Its tables are kept in lists here, as a store keeps them: what it derives must not depend on how the
records were cut into commits, nor on when they were.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, TypeAlias

import msgspec

from instep.model.records import Record
from instep.ports.derivation import (
    Changes,
    Column,
    ColumnType,
    EntityColumns,
    EntityDerivation,
    EntityTable,
    Row,
    StatementDerivation,
    Statements,
    StatementTable,
)
from instep.testing.promises import Contract, require

__all__ = ["DERIVATION_PROMISES", "check_derivation"]

_Derivation: TypeAlias = StatementDerivation | EntityDerivation
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_RESERVED: Final = frozenset({"id", "stream_no", "entity_id", "since_us"})
_TYPES: Final[dict[ColumnType, type]] = {ColumnType.TEXT: str, ColumnType.BYTES: bytes}
_MOST: Final = {ColumnType.FLAG: 1, ColumnType.INTEGER: 2**31 - 1, ColumnType.LONG: 2**63 - 1}
_contract: Final = Contract["_Subject"]("instep.ports.derivation")


class _Subject(msgspec.Struct):
    derivation: _Derivation
    records: Sequence[Record]


async def check_derivation(
    derivation: _Derivation, records: Sequence[Record] = (), *, only: str | None = None
) -> None:
    """Check the promises of `instep.ports.derivation`, or the one named `only`.

    `records` are records of the classes that it follows, in the order of their log, ends among
    them. Without any, only what it states of itself is checked. Raises `BrokenPromiseError`.
    """
    await _contract.check(lambda _: _Subject(derivation, records), only)


@_contract.promise("names, tables, keys, views and options fit each other")
async def _states_its_tables(subject: _Subject) -> None:
    one = subject.derivation
    require(bool(_NAME.fullmatch(one.name)), f"the name {one.name!r}")
    require(bool(one.version) and bool(one.words), "no version, or no words for errors")
    require(bool(one.tables), "no table")
    options = {field.name: field for field in msgspec.structs.fields(one.options)}
    require(one.name in options, f"no option {one.name!r} that turns it on")
    require(options[one.name].default is None, f"the option {one.name!r} is not None by default")
    for table in one.tables:
        names = [column.name for column in table.columns]
        shown = f"the table {table.name!r}"
        require(len(set(names)) == len(names), f"{shown} has a column twice")
        require(_RESERVED.isdisjoint(names), f"{shown} has a column of the store's")
        require(set(table.key) <= set(names) and bool(table.key), f"{shown} lacks its key")
        indexed = {name for index in table.indexes for name in index.columns} - _RESERVED
        require(indexed <= set(names), f"{shown} has an index of what is no column")
        _check_kind(table, {column.name: column for column in table.columns}, set(options))
    tables = {table.name for table in one.tables}
    require(all(view.table in tables for view in one.views), "a view of another table")
    for name, query in one.queries.items():
        require("{more}" in query.sql, f"the query {name!r} has no place for its conditions")


def _check_kind(
    table: StatementTable | EntityTable, columns: dict[str, Column], options: set[str]
) -> None:
    shown = f"the table {table.name!r}"
    if isinstance(table, EntityTable):
        require(not table.target or table.target in columns, f"{shown} lacks its target")
        return
    require(not table.retention or table.retention in options, f"{shown}: no option of retention")
    if table.latest:
        require({"key", table.latest} == set(table.key), f"{shown}: `latest` does not end its key")
    if table.open:
        require("key" in columns, f"{shown} has no key to find what a sweep ends")
        require(table.open in columns and columns[table.open].nullable, f"{shown} is never open")
    if table.replaced is not None:
        named = {table.replaced.rank, table.replaced.at, table.replaced.lineage}
        require(named <= columns.keys(), f"{shown} lacks what `replaced` compares")


@_contract.promise("rows are as their table has them, and updates of what stands")
async def _gives_rows_of_its_tables(subject: _Subject) -> None:
    _derived(subject, [subject.records])


@_contract.promise("the same records give the same rows: nothing is kept, no clock is asked")
async def _is_pure(subject: _Subject) -> None:
    once, again = (_derived(subject, [subject.records]) for _ in range(2))
    require(once == again, "another run gave other rows")


@_contract.promise("the rows do not depend on how the records were cut into commits")
async def _does_not_see_commits(subject: _Subject) -> None:
    at_once = _derived(subject, [subject.records])
    one_by_one = _derived(subject, [[record] for record in subject.records])
    require(at_once == one_by_one, f"{_difference(at_once, one_by_one)}")


@_contract.promise("what a sweep has ended is open no longer", "A5")
async def _ends_what_is_swept(subject: _Subject) -> None:
    one = subject.derivation
    if isinstance(one, EntityDerivation):
        return
    kept = _Kept(one)
    kept.apply(subject.records)
    for table in one.tables:
        if table.open:
            at_us = max((record.appended_at_us for record in subject.records), default=0)
            kept.change(one.doubt(table.name, kept.open_rows(table)))
            kept.change(one.end_swept(table.name, kept.open_rows(table), at_us))
            require(not kept.open_rows(table), f"{table.name!r} has open rows after a sweep")


DERIVATION_PROMISES: Final = _contract.names
"""The names of the promises, in the order in which they are checked."""

_Tables: TypeAlias = dict[str, list[Any]]


def _derived(subject: _Subject, commits: Sequence[Sequence[Record]]) -> _Tables:
    """The rows that these commits lead to, in the order of their keys."""
    one = subject.derivation
    if isinstance(one, EntityDerivation):
        return _derived_entities(one, subject.records, [len(commit) for commit in commits])
    kept = _Kept(one)
    for commit in commits:
        kept.apply(commit)
    return {name: sorted(map(repr, rows)) for name, rows in kept.tables().items()}


def _derived_entities(
    one: EntityDerivation, records: Sequence[Record], sizes: Sequence[int]
) -> _Tables:
    living = [
        record
        for record in records
        if not record.ends and (not one.classes or record.entity_class in one.classes)
    ]
    found: _Tables = {table.name: [] for table in one.tables}
    step = max(sizes, default=0) or 1
    for first in range(0, len(living), step):
        some = living[first : first + step]
        columns = EntityColumns(
            [record.key for record in some],
            [record.entity_class for record in some],
            [record.uuid for record in some],
            [bytes(record.envelope) for record in some],
            [bytes(record.body) for record in some],
        )
        stated = list(one.derive(columns))
        require(len(stated) == len(some), f"{len(stated)} entities of {len(some)}")
        for record, tables in zip(some, stated, strict=True):
            require(len(tables) == len(one.tables), "not one list of rows for each table")
            for table, rows in zip(one.tables, tables, strict=True):
                names = [column.name for column in table.columns]
                keys = [tuple(row[names.index(name)] for name in table.key) for row in rows]
                require(len(set(keys)) == len(keys), f"{table.name!r} has a key twice")
                for row in rows:
                    _check_row(table.columns, row, table.name)
                    found[table.name].append((record.key, record.token, *row))
    return found


class _Kept:
    """The tables of a derivation of statements, as a store keeps them: column → value, by id."""

    def __init__(self, derivation: StatementDerivation) -> None:
        self._derivation = derivation
        self._tables = {table.name: table for table in derivation.tables}
        self._rows: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in self._tables}
        self._ids = count(1)

    def tables(self) -> _Tables:
        return {
            name: [tuple(row.values()) for row in rows.values()]
            for name, rows in self._rows.items()
        }

    def open_rows(self, table: StatementTable) -> list[Row]:
        rows = self._rows[table.name].items()
        return [(id, *row.values()) for id, row in rows if row[table.open] is None]

    def apply(self, records: Sequence[Record]) -> None:
        one = self._derivation
        followed = [
            record
            for record in records
            if record.entity_class in (one.ends_as if record.ends else one.classes)
        ]
        keys = {record.key for record in followed}
        before = {table.name: self._standing(table, keys) for table in one.tables if table.latest}
        statements = Statements(followed, 1, 1, 0, one.options())
        self.change(one.derive(statements, before))

    def change(self, changes: Changes) -> None:
        for name, rows in changes.inserted.items():
            table = self._tables[name]
            for row in rows:
                _check_row(table.columns, row, name)
                self._insert(table, dict(zip(_names(table), row, strict=True)))
        for update in changes.updated:
            columns = {column.name: column for column in self._tables[update.table].columns}
            require(columns.keys() >= set(update.columns), f"{update.table!r}: unknown columns")
            for row in update.rows:
                *values, id = row
                _check_row([columns[name] for name in update.columns], values, update.table)
                require(id in self._rows[update.table], f"{update.table!r} has no row {id!r}")
                self._rows[update.table][id] |= dict(zip(update.columns, values, strict=True))

    def _insert(self, table: StatementTable, row: dict[str, Any]) -> None:
        rows = self._rows[table.name]
        same = [id for id, one in rows.items() if all(one[k] == row[k] for k in table.key)]
        if not same:
            rows[next(self._ids)] = row
            return
        replaced = table.replaced
        require(replaced is not None, f"{table.name!r} has a row of this key: {row!r}")
        assert replaced is not None
        old = rows[same[0]]
        rank, at, lineage = replaced.rank, replaced.at, replaced.lineage
        later = old[lineage] != row[lineage] or row[at] >= old[at]
        if row[rank] > old[rank] or (row[rank] == old[rank] and later):
            rows[same[0]] = row

    def _standing(self, table: StatementTable, keys: set[str]) -> list[Row]:
        standing: dict[str, tuple[int, dict[str, Any]]] = {}
        for id, row in self._rows[table.name].items():
            known = standing.get(row["key"])
            if row["key"] in keys and (known is None or row[table.latest] > known[1][table.latest]):
                standing[row["key"]] = id, row
        return [(id, *row.values()) for id, row in standing.values()]


def _names(table: StatementTable) -> list[str]:
    return [column.name for column in table.columns]


def _check_row(columns: Sequence[Column], row: Sequence[Any], table: str) -> None:
    require(len(row) == len(columns), f"{table!r}: {len(row)} values, not {len(columns)}")
    for column, value in zip(columns, row, strict=True):
        shown = f"{table!r}: {column.name} = {value!r}"
        if value is None:
            require(column.nullable, shown)
            continue
        require(isinstance(value, _TYPES.get(column.type, int)), shown)
        if column.type in _MOST:
            require(-_MOST[column.type] - 1 <= value <= _MOST[column.type], shown)
        if isinstance(value, str):
            require("\x00" not in value, f"{shown}: no database stores a NUL")


def _difference(one: _Tables, other: _Tables) -> str:
    for name, rows in one.items():
        for row, there in zip(rows, other[name], strict=False):
            if row != there:
                return f"{name!r}: {row!r} in one commit, {there!r} in many"
        if len(rows) != len(other[name]):
            return f"{name!r}: {len(rows)} rows in one commit, {len(other[name])} in many"
    return ""
