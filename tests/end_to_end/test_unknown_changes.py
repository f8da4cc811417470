"""A CHANGE of an entity that is not stored (TR-548 v3.2, 5.2): "the client should initiate a
realignment by initiating a request with no token", and no row is made of the CHANGE.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from instep import Consumer, ConsumerSettings
from instep.alignment.settings import AlignmentSettings
from instep_sql import SqlStore
from tests.end_to_end.test_change_records import A, committed
from tests.instep_tapi.small_provider_kit import (
    DEADLINE_S,
    SmallProvider,
    aligned_again,
    context_of,
    running,
    stated,
)

pytestmark = pytest.mark.asyncio

NODE_2 = {"uuid": "n2", "operational-state": "ENABLED"}
STATE = {"uuid": "n1", "operational-state": "DISABLED"}
DEVIATION = "change-without-entity"


def settings(rebaseline_min_s: float = 0.0) -> ConsumerSettings:
    alignment = AlignmentSettings(
        quiet_s=0.2,
        unreached_quiet_s=0.4,
        empty_confirm_s=0.6,
        rebaseline_min_s=rebaseline_min_s,
    )
    return ConsumerSettings(
        alignment=alignment, poll_state_s=0.1, reconnect_initial_s=0.02, healthy_after_s=0.01
    )


def provider_of(storage: str, *log: bytes) -> SmallProvider:
    """A log that holds n2, or a GET that shows it."""
    stated_2 = stated(1, "n2", "NODE", NODE_2, parent=[])
    held = (stated_2, *log) if storage == "COMPACTED" else log
    provider = SmallProvider("NODE", log=held, storage=storage, records="CHANGE_ONLY")
    shows(provider, NODE_2)
    return provider


def shows(provider: SmallProvider, *nodes: Any) -> None:
    topology = {"topology": [{"uuid": "t", "node": list(nodes)}]}
    provider.context = context_of({"tapi-topology:topology-context": topology})


def change(number: int, body: Any = STATE, key: str = "n1", kind: str = "CHANGE") -> bytes:
    return stated(number, key, "NODE", body, kind, [])


def delete(number: int, key: str = "n1") -> bytes:
    return stated(number, key, kind="DELETE")


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 's.db'}", journal="bodies")
    yield opened
    await opened.close()


async def stored(store: SqlStore) -> dict[str, Any]:
    return {one.key: json.loads(one.body) async for one in store.reader.entities()}


async def journal(store: SqlStore) -> list[tuple[str, str]]:
    """What subscribers are told."""
    return [(one.change.name, one.key) async for one in store.reader.changes()]


async def quarantined(store: SqlStore) -> int:
    return len([one async for one in store.reader.quarantine()])


async def deviations(store: SqlStore) -> dict[str, int]:
    (stream,) = await store.reader.streams()
    return stream.deviations


async def rests(consumer: Consumer, provider: SmallProvider) -> int:
    """The openings, once there are no more for a while."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            before = len(provider.opened_at)
            await asyncio.sleep(0.5)
            if len(provider.opened_at) == before and consumer.health().aligned:
                return before


@pytest.mark.parametrize("storage", ["COMPACTED", "TRUNCATED"])
async def test_v3_2_5_2_a_change_of_what_is_not_stored_realigns_once_and_makes_no_row(
    storage: str, store: SqlStore
) -> None:
    provider = provider_of(storage)
    async with running(provider, store, settings()) as consumer:
        provider.say(change(2))
        await aligned_again(consumer, 2)
        assert await rests(consumer, provider) == 2
        assert DEVIATION in await deviations(store)
        assert await quarantined(store) == 1
        provider.say(change(3, STATE | {"x": 1}))
        await committed(store, provider.log[-1])
        assert await rests(consumer, provider) == 2
        assert await stored(store) == {"n2": NODE_2}
        assert await quarantined(store) == 2
        assert await journal(store) == [("CREATED", "n2")]


@pytest.mark.parametrize("storage", ["COMPACTED", "TRUNCATED"])
async def test_v3_2_5_2_the_realignment_finds_the_entity(storage: str, store: SqlStore) -> None:
    provider = provider_of(storage)
    async with running(provider, store, settings()) as consumer:
        whole = A | STATE
        later = [*provider.log, change(2, whole, kind="UPDATE")]
        shows(provider, NODE_2, whole)
        provider.say(change(3))
        if storage == "COMPACTED":
            provider.log = [*later, change(3)]
        await aligned_again(consumer, 2)
        assert await rests(consumer, provider) == 2
        assert await stored(store) == {"n1": whole, "n2": NODE_2}
        assert await quarantined(store) == 0
        assert DEVIATION not in await deviations(store)
        assert await journal(store) == [("CREATED", "n2"), ("CREATED", "n1")]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("storage", ["COMPACTED", "TRUNCATED"])
async def test_v3_2_5_2_a_change_behind_the_delete_of_its_key_is_none(
    storage: str, together: bool, store: SqlStore
) -> None:
    provider = provider_of(storage)
    async with running(provider, store, settings()) as consumer:
        provider.say(change(2, A, kind="CREATE"))
        await committed(store, provider.log[-1])
        provider.say(delete(3))
        if not together:
            await committed(store, provider.log[-1])
        provider.say(change(4))
        await committed(store, provider.log[-1])
        assert await rests(consumer, provider) == 1
        assert await stored(store) == {"n2": NODE_2}
        assert await quarantined(store) == 0
        assert await deviations(store) == {}


@pytest.mark.parametrize("storage", ["COMPACTED", "TRUNCATED"])
async def test_v3_2_5_2_a_change_that_is_held_before_its_delete_asks_for_nothing(
    storage: str, store: SqlStore
) -> None:
    provider = provider_of(storage, change(2), delete(3))
    provider.refuses_latest = "501 Not Implemented"
    async with running(provider, store, settings()) as consumer:
        await committed(store, provider.log[-1])
        opened = await rests(consumer, provider)
        assert await rests(consumer, provider) == opened
        assert await stored(store) == {"n2": NODE_2}
        assert await quarantined(store) == 0
        assert await deviations(store) == {}


async def test_v3_2_5_2_others_wait_for_their_realignment(tmp_path: Path) -> None:
    provider, url = provider_of("COMPACTED"), f"sqlite:///{tmp_path / 's.db'}"
    store = SqlStore(url)
    async with running(provider, store, settings(rebaseline_min_s=600)) as consumer:
        for n in range(2, 6):
            provider.say(change(n, key=f"n{n * 10}", body={"uuid": f"n{n * 10}"}))
        await committed(store, provider.log[-1])
        assert await rests(consumer, provider) == 1
        assert await quarantined(store) == 4
    # Durable: another process knows that it is owed.
    store = SqlStore(url)
    async with running(provider, store, settings()) as consumer:
        await aligned_again(consumer, 2)
        await rests(consumer, provider)
        assert consumer.health().streams[0].attempt == 2
        assert await stored(store) == {"n2": NODE_2}


@pytest.mark.parametrize("storage", ["COMPACTED", "TRUNCATED"])
async def test_v3_2_3_10_an_information_record_does_not_make_it_known(
    storage: str, store: SqlStore
) -> None:
    provider = provider_of(storage)
    async with running(provider, store, settings()) as consumer:
        provider.say(change(2), change(3, {"uuid": "n1"}, kind="INFORMATION"))
        await aligned_again(consumer, 2)
        assert await rests(consumer, provider) == 2
        assert DEVIATION in await deviations(store)
        assert await quarantined(store) == 1
        assert await stored(store) == {"n2": NODE_2}
