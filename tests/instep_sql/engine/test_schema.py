"""Migrations: an older store is upgraded. A newer one, and one from before 0.1.0, are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from instep.errors import SinkError, StoreVersionError
from instep.model.freshness import FreshnessState, StreamReport
from instep_sql import SqlStore
from instep_sql.engine import schema
from instep_sql.engine.registry import dialect_of
from instep_sql.options import SqlOptions
from instep_sql.plugin import sink
from tests.instep_sql.engine.revisions_kit import HEAD, NEXT, write_revision
from tests.instep_sql.store_kit import create_update, stage, stream_info

pytestmark = pytest.mark.asyncio

VERSION = f"SELECT version_num FROM {schema.VERSION_TABLE}"


def execute(url: str, *statements: str) -> Sequence[tuple[object, ...]]:
    """Run the statements in one transaction. Returns the rows of the last."""
    engine = dialect_of(SqlOptions(url=url)).writer()
    rows: list[tuple[object, ...]] = []
    with engine.begin() as connection:
        for statement in statements:
            done = connection.exec_driver_sql(statement)
            rows = [tuple(row) for row in done] if done.returns_rows else []
    engine.dispose()
    return rows


def become_next(monkeypatch: pytest.MonkeyPatch, scripts: Path) -> None:
    monkeypatch.setattr(schema, "_SCRIPTS", str(scripts))
    monkeypatch.setattr(schema, "HEAD", NEXT)


async def test_the_newest_revision_is_the_one_named() -> None:
    config = Config()
    config.set_main_option("script_location", "instep_sql:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [schema.HEAD]
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)


async def test_a_store_of_an_older_version_is_upgraded_once_with_its_content(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(database) as at:
        await at.commit(create_update("a", 9))
        before = at.position
    assert execute(database, VERSION) == [(HEAD,)]
    become_next(monkeypatch, write_revision(tmp_path))
    # A revision that is run twice fails: its column is there.
    stores = [SqlStore(database) for _ in range(8)]
    await asyncio.gather(*[store.open(f"c{n}") for n, store in enumerate(stores)])
    await asyncio.gather(*[store.close() for store in stores])
    assert execute(database, VERSION) == [(NEXT,)]
    assert execute(database, "SELECT stream, made_up FROM instep_stream") == [("s1", "new")]
    async with stage(database) as at:
        assert at.position == before
        await at.commit(create_update("b", 10))
        assert list(await at.bodies()) == ["a", "b"]


async def test_a_revision_that_fails_leaves_the_store_as_it_was(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(database) as at:
        await at.commit(create_update("a", 9))
    with monkeypatch.context() as context:
        become_next(context, write_revision(tmp_path, then="op.execute('DROP TABLE not_there')"))
        async with SqlStore(database) as store:
            with pytest.raises(SinkError, match="not_there"):
                await store.open("east")
    async with stage(database) as at:
        assert list(await at.bodies()) == ["a"]
    assert execute(database, VERSION) == [(HEAD,)]


async def test_a_reader_does_not_migrate(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(database):
        pass
    become_next(monkeypatch, write_revision(tmp_path))
    reader = sink.reader(database)
    with pytest.raises(StoreVersionError, match=f"has schema version {HEAD}, this instep reads"):
        await reader.streams()
    await reader.close()
    assert execute(database, VERSION) == [(HEAD,)]


async def test_a_store_of_a_newer_version_is_refused_naming_both(database: str) -> None:
    async with SqlStore(database) as store:
        await store.open("east")
        where = store._dialect.where
    execute(database, f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'")
    async with SqlStore(database) as store:
        with pytest.raises(StoreVersionError, match="version 9999, this instep knows") as caught:
            await store.open("east")
    assert caught.value.data == {"found": "9999", "known": schema.HEAD}
    assert caught.value.where == where
    reader = sink.reader(database)
    with pytest.raises(StoreVersionError):
        await reader.streams()
    await reader.close()


@pytest.mark.parametrize("version", ["0001", "0019", None])
async def test_a_store_from_before_0_1_0_is_refused_and_left_alone(
    database: str, version: str | None
) -> None:
    execute(
        database,
        f"CREATE TABLE {schema.VERSION_TABLE} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
        *([f"INSERT INTO {schema.VERSION_TABLE} VALUES ('{version}')"] if version else ()),
        "CREATE TABLE instep_stream (id INTEGER PRIMARY KEY, consumer TEXT, stream TEXT)",
        "INSERT INTO instep_stream VALUES (1, 'east', 's1')",
    )
    refused = pytest.raises(StoreVersionError, match=r"made before 0\.1\.0.* — make it anew")
    async with SqlStore(database) as store:
        with refused as caught:
            await store.open("east")
    assert caught.value.data == {"found": version, "known": schema.HEAD}
    reader = sink.reader(database)
    with refused:
        await reader.streams()
    await reader.close()
    assert execute(database, VERSION) == ([(version,)] if version else [])
    assert execute(database, "SELECT * FROM instep_stream") == [(1, "east", "s1")]


async def test_one_process_makes_a_stream_that_another_makes_too(database: str) -> None:
    async with SqlStore(database) as one, SqlStore(database) as two:
        await one.open("east")
        await two.open("east")
        positions = await asyncio.gather(one.position(stream_info()), two.position(stream_info()))
        assert positions[0] == positions[1]
        assert len(await one.reader.streams()) == 1


async def test_many_open_a_new_database_at_once(database: str) -> None:
    schema_of = "?schema=made" if database.startswith("postgresql") else ""
    stores = [SqlStore(database + schema_of) for _ in range(8)]
    await asyncio.gather(*[store.open(f"c{n}") for n, store in enumerate(stores)])
    await asyncio.gather(*[store.position(stream_info()) for store in stores])
    assert len(await stores[0].reader.streams()) == 8
    await asyncio.gather(*[store.close() for store in stores])


async def test_a_store_of_0100_opens_with_its_journal_and_says_how_fresh_it_is(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr(schema, "HEAD", "0100")
        dialect = dialect_of(SqlOptions(url=database))
        engine = dialect.writer()
        with engine.begin() as connection:
            schema.migrate(connection, dialect)
        engine.dispose()
    execute(
        database,
        """
        INSERT INTO instep_stream (consumer, stream, position, token, appended_at_us, phase,
                                   attempt, ordinal, records, info, deviations, journal,
                                   updated_at_us, kind)
        VALUES ('east', 's1', '{"phase":"aligned","ordinal":1}', 't1', 1, 'aligned', 1, 1, 1,
                '{}', '{}', 'changes', 1, 'stream')
        """,
        """
        INSERT INTO instep_change (stream_no, key, class, change, token, appended_at_us,
                                   committed_at_us, body)
        SELECT id, 'a', 'NODE', 'created', 't1', 1, 1, '' FROM instep_stream
        """,
    )
    assert execute(database, VERSION) == [("0100",)]
    async with stage(database, journal="changes") as at:
        (change,) = await at.changes()
        assert (change.cursor, change.key) == (1, "a")
        assert change.epoch
        (found,) = await at.store.reader.freshness()
        assert found.state is FreshnessState.STALE
        said = StreamReport(stream="s1", connected=True, caught_up=True)
        await at.store.report([said], 10.0)
        (found,) = await at.store.reader.freshness()
        assert found.report == said
        assert found.state is FreshnessState.ALIGNED
        await at.commit(create_update("b", 2))
        after = [one async for one in at.store.changes(1, epoch=change.epoch)]
        assert [one.key for one in after] == ["b"]
    assert execute(database, VERSION) == [(HEAD,)]
