"""Requests for single entities: what something unreadable may be about is asked for one by one
(A17), and `audit_share` has each entity its turn (A12).
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from instep import AlignmentSettings, Consumer, ConsumerEvent, ConsumerSettings
from instep.model.entities import StoredEntity
from instep_sql import SqlStore
from instep_sql.plugin import sink
from instep_tapi.facts.names import LogRecordStrategy, LogStorageStrategy
from instep_tapi.plugin import source
from tests.end_to_end.site_kit import QUICK, Site, network, provider, site, until

pytestmark = pytest.mark.asyncio

LOOKING = msgspec.structs.replace(
    QUICK,
    lookups_per_s=200.0,
    alignment=AlignmentSettings(quiet_s=0.3, unreached_quiet_s=1.0, empty_confirm_s=1.0),
)
NOT_ASKING = msgspec.structs.replace(QUICK, lookups_per_s=0.0)
SAMPLING = msgspec.structs.replace(LOOKING, audit_share=3600.0)
DEADLINE_S = 60.0
STORM_NODES = 4


@contextlib.asynccontextmanager
async def consuming(
    here: Site, settings: ConsumerSettings, **options: Any
) -> AsyncIterator[tuple[Consumer, list[ConsumerEvent]]]:
    """A consumer, and its events."""
    told: list[ConsumerEvent] = []

    async def follow() -> None:
        async for event in consumer.events():
            told.append(event)  # noqa: PERF401 - it is read meanwhile

    built = source.build({"endpoints": [here.provider.url]} | options, "test")
    consumer = Consumer("test", built, SqlStore(here.url), settings)
    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    async with consumer:
        await consumer.aligned(DEADLINE_S)
        yield consumer, told
    await asyncio.wait([following], timeout=1)
    following.cancel()


def wrong(told: list[ConsumerEvent]) -> str:
    return "\n".join(one.text for one in told if one.kind == "entities-wrong")


def change(folder: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "store.db", timeout=30)) as raw, raw:
        for statement in statements:
            raw.execute(statement)


EDIT = (
    "UPDATE instep_entity SET body = CAST(replace(CAST(body AS TEXT), 'ENABLED', 'LOST') AS BLOB)"
    " WHERE key = 'n7p2'"
)
GHOST = "UPDATE instep_entity SET key = 'ghost', uuid = 'ghost' WHERE key = 'n8p1'"


@pytest.mark.parametrize(
    "stream",
    [
        {},
        {"storage": LogStorageStrategy.TRUNCATED},
        {"record_strategy": LogRecordStrategy.CHANGE_ONLY},
    ],
    ids=["compacted", "truncated", "change-only"],
)
async def test_a12_a_row_changed_by_hand_is_named_by_gets_alone(
    stream: dict[str, Any], tmp_path: Path
) -> None:
    served = provider(network(10, 4), **stream)
    async with site(served, tmp_path) as here:
        # No second connection: what is named is named by single requests.
        here.provider.set_faults(refuse_second=503)
        async with consuming(here, SAMPLING) as (consumer, told):
            await here.provider.start_storm(50, STORM_NODES)
            await asyncio.sleep(3)
            assert wrong(told) == ""
            change(tmp_path, EDIT, GHOST)
            await until(lambda: "n7p2 (NODE_EDGE_POINT) is stale" in wrong(told), "named")
            await until(lambda: "ghost (NODE_EDGE_POINT) is bogus" in wrong(told), "named")
            assert consumer.health().streams[0].wrong == {"stale": 1, "bogus": 1}
            assert len(wrong(told).splitlines()) == 2
            await here.provider.stop_storm()


async def unproven(url: str) -> list[StoredEntity]:
    reader = sink.reader(url)
    try:
        return [one async for one in reader.entities(unproven=True)]
    finally:
        await reader.close()


async def test_a17_what_an_unreadable_record_may_be_about_is_asked_for_one_by_one(
    tmp_path: Path,
) -> None:
    served = provider(network(10, 4))
    async with site(served, tmp_path) as here:
        async with consuming(here, QUICK):
            pass
        # The log is rebuilt, parts of it cannot be read, and meanwhile some have changed or ended.
        here.provider.update("n3p1", {"operational-state": "DISABLED"})
        here.provider.delete("n9p3")
        here.provider.set_faults(forget_log=True, malformed_every=5)
        async with consuming(here, NOT_ASKING):
            before = await unproven(here.url)
            assert len(before) > 5
        async with consuming(here, LOOKING) as (consumer, told):
            await until(lambda: not consumer.health().streams[0].unproven, "all is proven")
            assert await unproven(here.url) == []
            await here.equal()
            assert wrong(told) == ""
