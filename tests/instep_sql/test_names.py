"""Names that a database refuses are refused as configuration, by the option that they are from."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import ARRAY, BigInteger, Column, MetaData, Table, Text

from instep.errors import ConfigurationError
from instep_sql import Projection, SqlStore
from instep_sql.names import LONGEST_CONSUMER_BYTES, LONGEST_STREAM_BYTES
from tests.instep_sql.store_kit import create_update, stage, stream_info

# No text that repeats: PostgreSQL compresses it.
LETTERS = "".join(random.Random(7).choices(string.ascii_letters + "äöü", k=9_000))
REFUSED = {"nul": "a\0b", "surrogate": "a\udc80b", "long": LETTERS}


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED)
@pytest.mark.asyncio
async def test_a_name_is_refused_by_its_option(database: str, name: str) -> None:
    async with SqlStore(database) as store:
        with pytest.raises(ConfigurationError, match="as the name of a consumer") as caught:
            await store.open(name)
        assert caught.value.data["key"] == "name"
        assert "name'" in caught.value.hint
        await store.open("east")
        with pytest.raises(ConfigurationError, match="as the name of a stream") as caught:
            await store.position(stream_info(name))
        assert caught.value.data["key"] == "streams"
        if name != LETTERS:
            with pytest.raises(ConfigurationError, match="name of a consumer"):
                _ = [one async for one in store.reader.entities(consumer=name)]
            with pytest.raises(ConfigurationError, match="name of a stream"):
                _ = [one async for one in store.reader.entities(stream=name)]
        with pytest.raises(ConfigurationError) as caught:
            SqlStore(database, holder=name, lease_s=5.0)
        assert "holder" in str(caught.value)


@pytest.mark.asyncio
async def test_the_longest_names_are_kept(database: str) -> None:
    async with SqlStore(database) as store:
        await store.open(LETTERS.encode()[:LONGEST_CONSUMER_BYTES].decode(errors="ignore"))
        stream = LETTERS.encode()[-LONGEST_STREAM_BYTES:].decode(errors="ignore")
        await store.position(stream_info(stream))
        await store.messages().open("spoken", handled=False)
        assert [info.id for info in await store.known_streams()] == [stream]


@pytest.mark.parametrize("name", ["nul", "surrogate"])
@pytest.mark.parametrize("key", ["url", "readers", "alarm_names"])
def test_other_options_are_refused_likewise(key: str, name: str) -> None:
    bad = REFUSED[name]
    values: dict[str, Any] = {
        "url": f"sqlite:///{bad}",
        "readers": [bad],
        "alarm_names": {"LOS": bad},
    }
    with pytest.raises(ConfigurationError) as caught:
        SqlStore(**{"url": "sqlite://", key: values[key]})
    assert caught.value.data["key"] == key


def projection(
    name: str = "port", column: str = "state", of: str = "NODE", more: Sequence[Column[Any]] = ()
) -> Projection:
    key, value = Column("entity_id", BigInteger, primary_key=True), Column(column, Text())
    return Projection(Table(name, MetaData(), key, value, *more), {of: {column: "/x"}})


def columns(*names: str) -> list[Column[Any]]:
    return [Column(name, Text()) for name in names]


@pytest.mark.parametrize("given", [{"name": "a\0b"}, {"column": "a\udc80"}, {"of": "a\0"}])
def test_a_projection_that_no_database_can_have_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="as the name of a") as caught:
        projection(**given)
    assert caught.value.data["key"] == "projections"


REFUSED_TABLES: dict[str, list[dict[str, Any]]] = {
    "postgresql": [
        {"name": "x" * 64},
        {"column": "x" * 64},
        {"column": "ctid"},
        {"more": columns(*(f"c{n}" for n in range(1_700)))},
    ],
    "sqlite": [
        {"name": "sqlite_port"},
        {"more": columns("State")},
        {"more": [Column("words", ARRAY(Text()))]},
        {"more": columns(*(f"c{n}" for n in range(2_100)))},
    ],
}


@pytest.mark.asyncio
async def test_a_projection_that_this_database_cannot_have_is_refused(database: str) -> None:
    for given in REFUSED_TABLES[database.partition(":")[0]]:
        made = projection(**given)
        async with SqlStore(database, projections=[made]) as store:
            with pytest.raises(ConfigurationError, match=r"such a table|name of a table") as caught:
                await store.open("east")
            assert caught.value.data["key"] == "projections"
    async with stage(database, projections=[projection()]) as at:
        await at.commit(create_update("a", 1))
