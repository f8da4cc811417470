"""Many rows are written in order, in few statements, alike in each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from sqlalchemy import Connection, event

from instep_sql import SqlOptions
from instep_sql.engine.bulk_writes import StoredTable, excluded
from instep_sql.engine.dialect import Dialect
from instep_sql.engine.registry import dialect_of
from instep_sql.engine.triggers import Trigger, TriggerEvent

Rows = list[tuple[Any, ...]]

KEPT: Final = StoredTable(
    "kept",
    {"part": int, "order": str, "body": bytes, "share": float, "seen": int},
    key=("part", "order"),
)
_CREATE: Final = """
    CREATE TABLE kept (part INTEGER NOT NULL, "order" TEXT NOT NULL, body BYTEA,
                       share DOUBLE PRECISION, seen INTEGER, PRIMARY KEY (part, "order"))
"""
ROWS: Final[Rows] = [(at % 3, f"k{at}", b"%d" % at, at / 7, at) for at in range(5_000)]


@pytest.fixture
def dialect(database: str) -> Dialect:
    return dialect_of(SqlOptions(url=database))


@pytest.fixture
def connection(dialect: Dialect) -> Iterator[Connection]:
    engine = dialect.writer()
    with engine.connect() as connection:
        connection.exec_driver_sql(_CREATE)
        yield connection
    engine.dispose()


def stored(connection: Connection, table: str = "kept", order: str = "seen") -> Rows:
    query = f"SELECT * FROM {table} ORDER BY {order}"
    return [tuple(row) for row in connection.exec_driver_sql(query)]


@contextmanager
def counted(connection: Connection) -> Iterator[list[str]]:
    """The statements that are executed, where SQLAlchemy sees them."""
    seen: list[str] = []

    def note(*call: Any) -> None:
        seen.append(call[2])

    event.listen(connection.engine, "before_cursor_execute", note)
    yield seen
    event.remove(connection.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("count", [0, 1, 63, 5_000])
def test_few_statements_insert_all_rows(
    dialect: Dialect, connection: Connection, count: int
) -> None:
    with counted(connection) as statements:
        assert dialect.insert_rows(connection, KEPT, ROWS[:count]) == count
    assert len(statements) <= 11
    assert stored(connection) == ROWS[:count]


def test_rows_of_many_columns_are_within_the_parameters_of_a_statement(
    dialect: Dialect, connection: Connection
) -> None:
    wide = StoredTable("wide", {f"c{at}": int for at in range(400)})
    connection.exec_driver_sql(
        f"CREATE TABLE wide ({', '.join(f'c{at} INT' for at in range(400))})"
    )
    rows = [tuple(range(at, at + 400)) for at in range(300)]
    dialect.insert_rows(connection, wide, rows)
    assert stored(connection, "wide", "c0") == rows


def test_rows_get_their_numbers_in_order(dialect: Dialect, connection: Connection) -> None:
    numbered = StoredTable("numbered", {"name": str})
    serial = "INTEGER" if dialect.for_update == "" else "SERIAL"
    connection.exec_driver_sql(f"CREATE TABLE numbered (id {serial} PRIMARY KEY, name TEXT)")
    names = [(f"n{at * 7919 % 4_001}",) for at in range(4_001)]
    dialect.insert_rows(connection, numbered, names)
    assert [row[1:] for row in stored(connection, "numbered", "id")] == names


@pytest.mark.parametrize("count", [1, 2, 300])
@pytest.mark.parametrize("alike", [True, False])
def test_values_that_all_rows_share_are_stored_in_each(
    dialect: Dialect, connection: Connection, count: int, *, alike: bool
) -> None:
    table = StoredTable("kept", KEPT.columns, key=KEPT.key, shared=("part", "share"))
    rows: Rows = [(1, f"k{at}", b"%d" % at, None, at) for at in range(count)]
    if not alike:
        rows[-1] = (2, "last", None, 0.5, count)
    assert dialect.insert_rows(connection, table, rows) == count
    assert stored(connection) == rows
    again = [(*row[:2], b"again", *row[3:]) for row in rows]
    assert dialect.upsert_rows(connection, table, again) == count
    assert stored(connection) == again


def test_bytes_are_stored_whatever_holds_them(dialect: Dialect, connection: Connection) -> None:
    held = (b"a", bytearray(b"b"), b"", b"c" * 100_000, None, b"\0")
    rows: Rows = [(1, f"k{at}", one, 0.5, at) for at, one in enumerate(held)]
    dialect.insert_rows(connection, KEPT, rows)
    assert stored(connection) == rows


@pytest.mark.parametrize("column", range(2, 5))
def test_what_is_not_known_is_null(dialect: Dialect, connection: Connection, column: int) -> None:
    for part, known in ((1, False), (2, True)):
        rows: Rows = [(part, "a", b"x", 0.5, 1), (part, "b", b"y", 1.5, 2)]
        bare = [(*row[:column], None, *row[column + 1 :]) for row in rows]
        rows = [bare[0], rows[1]] if known else bare
        dialect.insert_rows(connection, KEPT, rows)
        assert stored(connection, "kept", 'part DESC, "order"')[:2] == rows


def test_what_exists_is_left_as_it_is(dialect: Dialect, connection: Connection) -> None:
    dialect.insert_rows(connection, KEPT, ROWS[:10])
    new = [(part, name, b"new", 1.0, -1) for part, name, *_ in ROWS[5:15]]
    with connection.begin_nested():
        assert dialect.insert_rows(connection, KEPT, [*new, new[9]], ignore_existing=True) == 5
    assert stored(connection, "kept", "seen, part")[5:] == ROWS[:10]


def test_what_exists_is_updated(dialect: Dialect, connection: Connection) -> None:
    dialect.insert_rows(connection, KEPT, ROWS[:10])
    new = [(part, name, b"new", None, seen) for part, name, _, _, seen in ROWS[5:15]]
    assert dialect.upsert_rows(connection, KEPT, new) == 10
    assert stored(connection) == ROWS[:5] + new


def test_what_exists_is_updated_as_the_table_says(dialect: Dialect, connection: Connection) -> None:
    table = StoredTable(
        KEPT.name,
        KEPT.columns,
        key=KEPT.key,
        updated={**excluded("body"), "seen": "kept.seen + excluded.seen"},
        updated_if="excluded.share >= kept.share",
    )
    dialect.upsert_rows(connection, table, [(1, "a", b"1", 0.5, 1), (1, "b", b"1", 0.5, 1)])
    more = [(1, "a", b"2", 0.7, 10), (1, "b", b"2", 0.3, 10)]
    assert dialect.upsert_rows(connection, table, more) == 1
    assert stored(connection) == [(1, "b", b"1", 0.5, 1), (1, "a", b"2", 0.5, 11)]


def test_a_table_of_keys_alone_has_nothing_to_update(
    dialect: Dialect, connection: Connection
) -> None:
    keys = StoredTable("kept", {"part": int, "order": str}, key=KEPT.key)
    assert dialect.upsert_rows(connection, keys, [(1, "a"), (1, "b")]) == 2
    assert dialect.upsert_rows(connection, keys, [(1, "b"), (1, "c")]) == 1


def test_rows_are_deleted_by_their_key_or_by_other_columns(
    dialect: Dialect, connection: Connection
) -> None:
    dialect.insert_rows(connection, KEPT, ROWS)
    gone = [(part, name) for part, name, *_ in ROWS[::2]]
    assert dialect.delete_rows(connection, KEPT, [*gone, (9, "k1")]) == 2_500
    assert stored(connection) == ROWS[1::2]
    assert dialect.delete_rows(connection, KEPT, [(1,), (2,)], ["part"]) == sum(
        part != 0 for part, *_ in ROWS[1::2]
    )
    assert {part for part, *_ in stored(connection)} == {0}
    assert dialect.delete_rows(connection, KEPT, []) == 0


def _noting(event: TriggerEvent, *rows: str) -> Trigger:
    return Trigger(
        name=f"kept_{event.lower()}",
        table="kept",
        event=event,
        columns=("part", "seen"),
        watched=("body", "part"),
        statements=tuple(
            f"INSERT INTO noted SELECT '{rows}', k.part, k.seen FROM {{{rows}}} AS k"
            " WHERE k.part <> 0 ON CONFLICT DO NOTHING"
            for rows in rows
        ),
    )


TRIGGERS: Final = (
    _noting(TriggerEvent.INSERT, "new"),
    _noting(TriggerEvent.UPDATE, "new", "old"),
    _noting(TriggerEvent.DELETE, "old"),
)


def _insert(dialect: Dialect, connection: Connection) -> None:
    dialect.insert_rows(connection, KEPT, [(0, "x", b"", 0.0, 90), (7, "y", b"", 0.0, 91)])


def _update(_dialect: Dialect, connection: Connection) -> None:
    connection.exec_driver_sql("UPDATE kept SET part = part + 1")


def _touch(_dialect: Dialect, connection: Connection) -> None:
    connection.exec_driver_sql("UPDATE kept SET part = part, share = 3")


def _delete(dialect: Dialect, connection: Connection) -> None:
    dialect.delete_rows(connection, KEPT, [(0,), (2,)], ["part"])


@pytest.mark.parametrize(
    ("write", "noted"),
    [
        (_insert, [("new", 7, 91)]),
        (
            _update,
            [("new", 1, 0), ("new", 2, 1), ("new", 3, 2), ("old", 1, 1), ("old", 2, 2)],
        ),
        (_touch, []),
        (_delete, [("old", 2, 2)]),
    ],
)
def test_triggers_see_the_rows_of_a_statement(
    dialect: Dialect,
    connection: Connection,
    write: Callable[[Dialect, Connection], None],
    noted: Rows,
) -> None:
    connection.exec_driver_sql(
        "CREATE TABLE noted (what TEXT, part INTEGER, seen INTEGER, PRIMARY KEY (what, part, seen))"
    )
    dialect.insert_rows(connection, KEPT, ROWS[:3])
    # Twice: what is dropped leaves nothing behind.
    for _ in range(2):
        dialect.drop_triggers(connection, TRIGGERS)
        dialect.create_triggers(connection, TRIGGERS)
    write(dialect, connection)
    assert stored(connection, "noted", "what, part, seen") == noted
    dialect.drop_triggers(connection, TRIGGERS)
    connection.exec_driver_sql("DELETE FROM kept")
    assert stored(connection, "noted", "what, part, seen") == noted
