"""What readers of a store get: the index, the rights, and the views they read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import inspect, text

from instep.errors import ConfigurationError
from instep_sql import SqlOptions, SqlStore
from instep_sql.engine.access import CLASS_INDEX, PUBLIC_VIEWS
from instep_sql.engine.registry import dialect_of
from tests.instep_sql.store_kit import create_update, end_record, stage
from tests.postgres_kit import Server

NUL = rb'{"a":"\u0000","b":"\\u0000"}'


def indexes(url: str) -> set[str | None]:
    engine = dialect_of(SqlOptions(url=url)).writer()
    try:
        return {one["name"] for one in inspect(engine).get_indexes("instep_entity")}
    finally:
        engine.dispose()


async def opened(url: str, **options: Any) -> None:
    async with SqlStore(url, **options) as store:
        await store.open("east")


@pytest.fixture
def reader(postgres: Server, postgres_database: str) -> Iterator[str]:
    """The URL of the database as a role that owns nothing."""
    postgres.execute("CREATE ROLE reader LOGIN")
    yield postgres_database.replace("postgres@", "reader@")
    postgres.execute("DROP OWNED BY reader", postgres_database)
    postgres.execute("DROP ROLE reader")


@pytest.mark.asyncio
async def test_the_class_index_is_made_kept_and_dropped(database: str) -> None:
    await opened(database)
    assert CLASS_INDEX not in indexes(database)
    await opened(database, class_index=True)
    assert CLASS_INDEX in indexes(database)
    await opened(database)
    assert CLASS_INDEX in indexes(database)
    await opened(database, class_index=False)
    assert CLASS_INDEX not in indexes(database)


@pytest.mark.asyncio
async def test_readers_may_read_the_views_and_nothing_else(
    postgres_database: str, reader: str
) -> None:
    for schema in ("instep", None):
        options: dict[str, Any] = {"schema": schema, "projections": ["node"], "readers": ["reader"]}
        await opened(postgres_database, **options)
        with psycopg.connect(reader, autocommit=True) as connection:
            connection.execute(f"SET search_path = {schema or 'public'}")
            for view in (*PUBLIC_VIEWS, "node"):
                connection.execute(f"SELECT * FROM {view}")
            for refused in (
                "SELECT * FROM instep_entity",
                "DELETE FROM node",
                "UPDATE instep_streams SET phase = 'aligned'",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(refused)
    # A second opening finds that nothing is lacking.
    await opened(postgres_database, readers=["reader"])


@pytest.mark.asyncio
async def test_a_reader_that_does_not_exist_is_named(postgres_database: str) -> None:
    with pytest.raises(ConfigurationError, match="there is no role 'nobody\"there'") as caught:
        await opened(postgres_database, readers=['nobody"there'])
    assert 'CREATE ROLE "nobody""there"' in caught.value.hint


@pytest.mark.asyncio
async def test_the_views_show_json_times_and_truth_values(postgres_database: str) -> None:
    bodies = {"n": NUL, "o": b'{"name":[{"value":"x"}]}', "p": b"no json", "q": b"\xff"}
    async with stage(postgres_database, journal="previous") as at:
        await at.commit(
            *(create_update(key, n, body) for n, (key, body) in enumerate(bodies.items(), 1))
        )
        await at.commit(end_record("o", 9))
    with psycopg.connect(postgres_database) as connection:
        found = connection.execute("SELECT key, body FROM instep_entities WHERE proven").fetchall()
        assert dict(found) == {"n": {"a": "\ufffd", "b": "\\u0000"}, "p": None, "q": None}
        [deleted] = connection.execute(
            "SELECT kind, previous #>> '{name,0,value}' FROM instep_changes"
            " WHERE change = 'deleted'"
        ).fetchall()
        assert deleted == ("DELETE", "x")
        [stream] = connection.execute(
            "SELECT consumer, stream, phase FROM instep_streams"
        ).fetchall()
        assert stream[1] == "s1"


@pytest.mark.asyncio
async def test_the_journal_is_read_alike_in_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with stage(url, journal="bodies") as at:
        await at.commit(create_update("a", 1_700_000_000_123_456, b'{"n":1}'))
    engine = dialect_of(SqlOptions(url=url)).writer()
    with engine.connect() as connection:
        query = "SELECT key, kind, appended_at, body ->> '$.n', envelope FROM instep_changes"
        [row] = connection.execute(text(query)).all()
        assert tuple(row[:4]) == ("a", "CREATE_UPDATE", "2023-11-14T22:13:20.123456Z", 1)
        assert connection.execute(text("SELECT count(*) FROM instep_streams")).scalar_one() == 1
    engine.dispose()


@pytest.mark.asyncio
async def test_bodies_are_read_in_a_query_that_could_be_parallel(postgres_database: str) -> None:
    async with stage(postgres_database) as at:
        await at.commit(*(create_update(f"k{n}", n) for n in range(1, 50)))
    with psycopg.connect(postgres_database) as connection:
        forced = "debug_parallel_query" if connection.info.server_version >= 160_000 else None
        connection.execute(f"SET {forced or 'force_parallel_mode'} = on")
        for setting in (
            "parallel_setup_cost",
            "parallel_tuple_cost",
            "min_parallel_table_scan_size",
        ):
            connection.execute(f"SET {setting} = 0")
        [count] = connection.execute("SELECT count(body) FROM instep_entities").fetchone() or ()
    assert count == 49


@pytest.mark.asyncio
async def test_a_commit_with_changes_notifies_listeners(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as listener:
        listener.execute("LISTEN instep_changes")
        async with stage(postgres_database, journal="changes") as at:
            await at.commit(create_update("a", 1))
            await at.commit()  # the position alone
            await at.commit(create_update("a", 2))
        heard = [one.payload for one in listener.notifies(timeout=30, stop_after=2)]
        assert heard == ["public", "public"]
        assert not list(listener.notifies(timeout=0.1))
        # By the time that it is heard, the change is there.
        [newest] = listener.execute("SELECT max(cursor) FROM instep_changes").fetchone() or ()
        assert newest == 2
