"""The SQL store keeps the promises of a sink and of an inbox, on both databases."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from instep.ports import Sink
from instep.testing import (
    MESSAGE_STORE_PROMISES,
    SINK_PROMISES,
    check_message_store,
    check_sink,
)
from instep_sql import SqlStore

pytestmark = pytest.mark.asyncio


async def bodies(sink: Sink, stream: str) -> Mapping[str, bytes]:
    assert isinstance(sink, SqlStore)
    return {one.key: one.body async for one in sink.reader.entities(stream=stream)}


# Without a journal there are fewer statements, and none is another one.
@pytest.mark.parametrize(
    ("database", "journal"),
    [("sqlite", "off"), ("sqlite", "changes"), ("postgresql", "changes")],
    indirect=["database"],
)
@pytest.mark.parametrize("promise", SINK_PROMISES)
async def test_a_sink_keeps(database: str, journal: str, promise: str) -> None:
    def make(_: str) -> Sink:
        """A name is a consumer: one database serves all."""
        return SqlStore(database, journal=journal)

    await check_sink(make, entities=bodies, only=promise)


@pytest.mark.parametrize("promise", MESSAGE_STORE_PROMISES)
async def test_an_inbox_keeps(database: str, promise: str) -> None:
    await check_message_store(lambda _: SqlStore(database), only=promise)
