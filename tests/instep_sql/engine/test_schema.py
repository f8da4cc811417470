"""Migrations: a store made by an older version opens, one of a newer version is refused."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import msgspec
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from instep.alignment.stream_identity import match_streams
from instep.errors import StoreVersionError
from instep_sql import SqlStore
from instep_sql.engine import schema
from instep_sql.plugin import sink
from tests.instep.model.test_streams import OLD
from tests.instep_sql.engine.old_stores_kit import STREAM_1, make
from tests.instep_sql.store_kit import CHANGE_ONLY, create_update, stage, stream_info

pytestmark = pytest.mark.asyncio


def scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", "instep_sql:migrations")
    return ScriptDirectory.from_config(config)


async def test_the_newest_revision_is_the_one_named() -> None:
    assert scripts().get_heads() == [schema.HEAD]
    revisions = [script.revision for script in scripts().walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004", "0005"])
async def test_a_store_of_an_older_version_opens_with_its_content(
    database: str, revision: str
) -> None:
    make(database, revision, STREAM_1)
    async with stage(database, CHANGE_ONLY) as at:
        assert (at.position.token, at.position.ordinal) == ("t9", 4)
        assert await at.bodies() == {"a": b"1"}
        await at.commit(create_update("b", 10, whole=False))
        assert list(await at.entities()) == ["a", "b"]


async def test_a_reader_does_not_migrate(tmp_path: Path) -> None:
    make(f"sqlite:///{tmp_path}/old.db", "0001")
    reader = sink.reader(f"sqlite:///{tmp_path}/old.db")
    with pytest.raises(StoreVersionError, match="has schema version 0001, this instep reads"):
        await reader.streams()
    await reader.close()


async def test_a_store_of_a_newer_version_is_refused_naming_both(database: str) -> None:
    async with SqlStore(database) as store:
        await store.open("east")
        newer = f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'"
        await store._database.run(lambda connection: connection.exec_driver_sql(newer))
        where = store._dialect.where
    async with SqlStore(database) as store:
        with pytest.raises(StoreVersionError, match="version 9999, this instep knows") as caught:
            await store.open("east")
    assert caught.value.data == {"found": "9999", "known": schema.HEAD}
    assert caught.value.where == where
    reader = sink.reader(database)
    with pytest.raises(StoreVersionError):
        await reader.streams()
    await reader.close()


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


async def test_a_stream_in_the_old_spelling_is_known_and_composed(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    make(f"sqlite:///{path}", "0002")
    old = OLD | {"record_strategy": "CHANGE_ONLY"}
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO instep_stream VALUES (1, 'east', 'network', '{}', NULL, 0, 'unaligned', 0,"
            " 0, 0, ?, '{}', 'off', 0)",
            (json.dumps(old),),
        )
    async with SqlStore(f"sqlite:///{path}") as store:
        await store.open("east")
        [known] = await store.known_streams()
        assert known.partial_updates
        # Another instance of the provider gives it another name.
        offered = msgspec.structs.replace(known, id="n2", uuid="2", endpoint="https://b")
        [found] = match_streams([known], [offered])
        assert found.id == "network"
        [status] = await store.reader.streams()
        assert status.info["partial_updates"] is True
        assert "record_strategy" not in status.info
        row = await store._database.run(lambda one: store._row(one, "network"))
        assert row.change_only
