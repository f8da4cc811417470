"""What all rows of a batch have in common is bound once; the rows that come out are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, text

from instep_sql.engine.dialect import Updates
from instep_sql.engine.sqlite import Sqlite
from instep_sql.options import Journal, SqlOptions

_ENTITY: Final = 'key, class, token, partition, "offset", appended_at_us, uuid, envelope, body'
_CHANGE: Final = "key, class, change, kind, token, appended_at_us, envelope, body, previous"
_TABLES: Final = {
    "instep_entity": f"id INTEGER PRIMARY KEY, stream_no, lineage, attempt, {_ENTITY}, proven,"
    " UNIQUE (stream_no, key)",
    "instep_change": f"cursor INTEGER PRIMARY KEY, stream_no, committed_at_us, {_CHANGE}",
}
_classes = st.sampled_from(["NODE", "LINK"])
_texts = st.sampled_from(["", "a"])


@contextmanager
def _database() -> Iterator[tuple[Connection, Sqlite]]:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        for name, columns in _TABLES.items():
            connection.execute(text(f"CREATE TABLE {name} ({columns})"))
        yield connection, Sqlite(SqlOptions(url="sqlite://"))
    engine.dispose()


def _read(connection: Connection, what: str, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(text(f"SELECT {what} FROM {table}"))]


@given(st.lists(st.tuples(_classes, _texts, _texts), min_size=1, max_size=40))
def test_entities(facts: list[tuple[str, str, str]]) -> None:
    rows = [
        (f"k{at:02}", name, f"t{at}", partition, at, 100 + at, uuid, b"{}", b"%d" % at)
        for at, (name, partition, uuid) in enumerate(facts)
    ]
    with _database() as (connection, dialect):
        assert dialect.upsert_entities(connection, (7, 2, 3), rows) == len(rows)
        assert _read(connection, _ENTITY, "instep_entity") == rows
        marks = _read(connection, "stream_no, lineage, attempt, proven", "instep_entity")
        assert set(marks) == {(7, 2, 3, 1)}
        dialect.upsert_entities(connection, (7, 2, 4), rows[:1])
        assert _read(connection, "attempt", "instep_entity")[0] == (4,)


@given(
    st.lists(
        st.tuples(_classes, st.sampled_from(["created", "updated"]), st.integers(0, 1)),
        min_size=1,
        max_size=40,
    ),
    st.booleans(),
)
def test_changes(facts: list[tuple[str, str, int]], with_bodies: bool) -> None:
    rows: list[Any] = [
        (f"k{at:02}", name, change, kind, f"t{at}", at, b"{}", *((b"{}", None) * with_bodies))
        for at, (name, change, kind) in enumerate(facts)
    ]
    with _database() as (connection, dialect):
        dialect.add_changes(connection, 7, 1_000, rows)
        found = _read(connection, _CHANGE, "instep_change")
        bodies = () if with_bodies else (b"", None)
        assert found == [(*row, *bodies) for row in rows]
        marks = _read(connection, "stream_no, committed_at_us", "instep_change")
        assert set(marks) == {(7, 1_000)}


@pytest.mark.parametrize("classes", [["NODE", "NODE", "NODE"], ["NODE", "LINK", "NODE"]])
def test_updates_that_the_database_compares(classes: list[str]) -> None:
    stored = [
        (f"k{at}", name, f"t{at}", "0", at, 100, "", b"{}", b"old")
        for at, name in enumerate(classes)
    ]
    with _database() as (connection, dialect):
        dialect.upsert_entities(connection, (7, 1, 1), stored[:2])
        stated: list[Any] = [
            (f"k{at}", name, f"u{at}", 10 + at, 200, b"{}", b"old" if at == 0 else b"new")
            for at, name in enumerate(classes)
        ]
        updates = Updates(7, 1, "0", (), stated)
        assert dialect.add_differing(connection, updates, 1_000, Journal.PREVIOUS) == 2
        found = _read(connection, "key, class, change, token, body, previous", "instep_change")
        assert found == [
            ("k1", classes[1], "updated", "u1", b"new", b"old"),
            ("k2", classes[2], "created", "u2", b"new", None),
        ]
