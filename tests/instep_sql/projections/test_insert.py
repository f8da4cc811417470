"""Rows that are inserted at once are those that SQLAlchemy inserts one by one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    DateTime,
    Float,
    Integer,
    MetaData,
    Numeric,
    Table,
    Text,
    create_engine,
    select,
    text,
)

from instep_sql import SqlOptions
from instep_sql.engine.registry import dialect_of
from instep_sql.projections.projected_rows import insert, insert_each, is_plain
from instep_sql.projections.projection import ValueRefusedError

SQLITE = dialect_of(SqlOptions(url="sqlite://"))


def table(name: str, *more: Column[Any]) -> Table:
    return Table(
        name,
        MetaData(),
        Column("entity_id", BigInteger, primary_key=True),
        Column("a text", Text),
        Column("flag", Boolean),
        Column("count", Integer, CheckConstraint("count >= 0")),
        Column("share", Float),
        Column("order", Numeric(10, 3)),
        Column("at", DateTime),
        Column("detail", JSON),
        Column("given", Text, server_default=text("'by the database'")),
        *more,
    )


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "entity_id": at,
            "a text": f"text {at}" if at % 3 else None,
            "flag": bool(at % 2),
            "count": at,
            "share": at / 7,
            "order": Decimal(at) / 8,
            "at": datetime(2024, 1, 1, at % 24, tzinfo=UTC).replace(tzinfo=None),
            "detail": [{"at": at}, None] if at % 5 else {},
        }
        for at in range(count)
    ]


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.connect() as one:
        yield one
    engine.dispose()


@pytest.mark.parametrize("count", [1, 64, 200])
def test_rows_at_once_are_rows_one_by_one(connection: Connection, count: int) -> None:
    at_once, one_by_one = table("at once"), table("one by one")
    for each in (at_once, one_by_one):
        each.create(connection)
    assert is_plain(connection.dialect, at_once)

    insert(connection, SQLITE, at_once, columns(rows(count)))
    insert_each(connection, one_by_one, columns(rows(count)))

    stored = [connection.execute(select(each)).all() for each in (at_once, one_by_one)]
    assert stored[0] == stored[1]
    assert len(stored[0]) == count
    raw = [
        connection.exec_driver_sql(f'SELECT * FROM "{each.name}"').all()
        for each in (at_once, one_by_one)
    ]
    assert raw[0] == raw[1]


def test_a_default_that_python_computes_is_computed(connection: Connection) -> None:
    with_default = table("with_default", Column("made", Text, default=lambda: "by python"))
    with_default.create(connection)

    insert(connection, SQLITE, with_default, columns(rows(2)))

    assert not is_plain(connection.dialect, with_default)
    assert connection.execute(select(with_default.c.made)).scalars().all() == ["by python"] * 2


def test_a_refused_row_refuses_all(connection: Connection) -> None:
    one = table("one")
    one.create(connection)

    for refused, error in (
        ({"count": -1}, sqlite3.IntegrityError),
        ({"detail": {1, 2}}, ValueRefusedError),
    ):
        last = {**rows(1)[0], "entity_id": 100, **refused}
        with pytest.raises(error), connection.begin_nested():
            insert(connection, SQLITE, one, columns([*rows(100), last]))
        assert connection.execute(select(one)).all() == []
