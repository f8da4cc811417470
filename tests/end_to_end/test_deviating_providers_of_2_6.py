"""Providers of TAPI 2.6.0 that deviate: aligned, or refused with a reason, and never misread
without a word.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from instep import Consumer
from instep.errors import NoStreamError
from instep_sql import SqlStore
from tests.end_to_end.test_change_records import committed
from tests.instep_tapi.small_provider_kit import (
    DEADLINE_S,
    SETTINGS,
    SmallProvider,
    running,
    serving,
    stated,
)

pytestmark = pytest.mark.asyncio

NODE = {"uuid": "n1", "operational-state": "ENABLED", "lifecycle-state": "INSTALLED", "name": []}
POINT = {"uuid": "p1", "operational-state": "ENABLED", "lifecycle-state": "INSTALLED"}
PARENT = ["topology-uuid:t", "node-uuid:n1"]


class Provider26(SmallProvider):
    """As 2.6.0 declares a stream; each part of it can be otherwise."""

    def __init__(
        self, *log: bytes, addresses: Any = ("{}",), classes: Any = (), **type_: Any
    ) -> None:
        super().__init__("NODE", log=log, storage="COMPACTED", records="CHANGE_ONLY")
        self.addresses = addresses
        self.type = {
            "stream-type-content": list(classes) or ["tapi-topology:TOPOLOGY_OBJECT_TYPE_NODE"],
            "record-trigger": "tapi-streaming:RECORD_TRIGGER_ON_CHANGE",
            "log-record-strategy": "tapi-streaming:LOG_RECORD_STRATEGY_CHANGE_ONLY",
            "log-storage-strategy": "tapi-streaming:LOG_STORAGE_STRATEGY_COMPACTED",
            **type_,
        }

    def streams(self, address: str) -> dict[str, Any]:
        found = super().streams(address)
        (kind,) = found["supported-stream-type"]
        (stream,) = found["available-stream"]
        del kind["record-content"]
        kind |= self.type
        stream["connection-address"] = [one.format(address) for one in self.addresses]
        return found


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 's.db'}", journal="bodies")
    yield opened
    await opened.close()


async def stored(store: SqlStore) -> dict[str, Any]:
    return {one.key: json.loads(one.body) async for one in store.reader.entities()}


async def deviations(store: SqlStore) -> dict[str, int]:
    (stream,) = await store.reader.streams()
    return stream.deviations


async def test_an_empty_list_of_addresses_is_refused_with_the_reason() -> None:
    async with serving(Provider26(addresses=())) as source:
        with pytest.raises(NoStreamError, match="it has no connection-address"):
            await source.discover()


async def test_beside_a_dead_address_the_living_one_is_read(store: SqlStore) -> None:
    provider = Provider26(
        stated(1, "n1", "NODE", NODE, "CREATE", []), addresses=("ws://127.0.0.1:1/s", "{}")
    )
    async with running(provider, store):
        assert await stored(store) == {"n1": NODE}


async def test_without_prefixes_it_is_the_same(store: SqlStore) -> None:
    provider = Provider26(
        stated(1, "n1", "NODE", NODE, "CREATE", []),
        stated(2, "n1", "NODE", {"uuid": "n1", "operational-state": "DISABLED"}, "CHANGE", []),
        classes=["TOPOLOGY_OBJECT_TYPE_NODE"],
        **{
            "record-trigger": "RECORD_TRIGGER_ON_CHANGE",
            "log-record-strategy": "LOG_RECORD_STRATEGY_CHANGE_ONLY",
            "log-storage-strategy": "LOG_STORAGE_STRATEGY_COMPACTED",
        },
    )
    async with running(provider, store):
        assert await stored(store) == {"n1": NODE | {"operational-state": "DISABLED"}}


@pytest.mark.parametrize("together", [True, False])
async def test_a_change_without_parent_address_leaves_the_entity_in_its_place(
    together: bool, store: SqlStore
) -> None:
    whole = stated(1, "p1", "NODE_EDGE_POINT", POINT, "CREATE", PARENT)
    state = {"uuid": "p1", "operational-state": "DISABLED"}
    change = stated(2, "p1", "NODE_EDGE_POINT", state, "CHANGE")
    provider = Provider26(
        *((whole, change) if together else (whole,)),
        classes=["tapi-topology:TOPOLOGY_OBJECT_TYPE_NODE_EDGE_POINT"],
    )
    async with running(provider, store):
        if not together:
            provider.say(change)
        await committed(store, change)
        (one,) = [each async for each in store.reader.entities()]
        assert json.loads(one.body) == POINT | state
        assert json.loads(one.envelope)["parent-address"] == PARENT
        assert (await deviations(store))["parent-address-missing"] == 1


async def test_parts_of_2_1_3_under_a_type_of_2_4_are_told(store: SqlStore) -> None:
    provider = Provider26(stated(1, "n1", "NODE", NODE, "CREATE_UPDATE", []))
    async with running(provider, store):
        part = {"operational-state": "DISABLED"}
        provider.say(stated(2, "n1", "NODE", part, "CREATE_UPDATE", []))
        await committed(store, provider.log[-1])
        assert (await deviations(store))["create-update-part"] == 1


async def test_parts_of_2_1_3_under_a_type_of_2_4_are_merged_where_that_is_configured(
    store: SqlStore,
) -> None:
    provider = Provider26(stated(1, "n1", "NODE", NODE, "CREATE_UPDATE", []))
    part = {"uuid": "n1", "operational-state": "DISABLED"}
    provider.log.append(stated(2, "n1", "NODE", part, "CREATE_UPDATE", []))
    async with (
        serving(provider, tapi="2.1.3") as source,
        Consumer("c", source, store, SETTINGS) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        await consumer.aligned()
        assert await stored(store) == {"n1": NODE | part}


@pytest.mark.parametrize("kind", ["CREATE", "UPDATE"])
async def test_a_record_type_of_2_4_is_taken_at_its_word(kind: str, store: SqlStore) -> None:
    provider = Provider26(stated(1, "n1", "NODE", NODE, "CREATE", []))
    async with running(provider, store):
        provider.say(stated(2, "n1", "NODE", {"uuid": "n1"}, kind, []))
        await committed(store, provider.log[-1])
        assert await stored(store) == {"n1": {"uuid": "n1"}}
        assert await deviations(store) == {}


async def test_v3_2_4_5_2_a_detector_state_of_no_edition_is_told(store: SqlStore) -> None:
    def alarm(number: int, state: str) -> bytes:
        condition = {"simple-detector": {"simple-detector-state": state}}
        detector = {"detector-native-id": "d1", "tapi-fm:detected-condition": condition}
        return stated(number, "d1", "CONDITION_DETECTOR", detector, "CREATE_UPDATE")

    provider = Provider26(
        alarm(1, "tapi-fm:SIMPLE_DETECTOR_STATE_ACTIVE"),
        classes=["tapi-streaming:STREAMING_OBJECT_TYPE_CONDITION_DETECTOR"],
        **{"log-record-strategy": "tapi-streaming:LOG_RECORD_STRATEGY_WHOLE_ENTITY"},
    )
    async with running(provider, store):
        for number, state in enumerate(("INTERMITTENT", "ACTIVE_NO_EXPLICIT_CLEAR"), 2):
            provider.say(alarm(number, f"tapi-fm:SIMPLE_DETECTOR_STATE_{state}"))
        await committed(store, provider.log[-1])
        assert "detector-state-unknown" not in await deviations(store)
        provider.say(alarm(4, "tapi-fm:SIMPLE_DETECTOR_STATE_SMOULDERING"))
        await committed(store, provider.log[-1])
        assert (await deviations(store))["detector-state-unknown"] == 1
        assert list(await stored(store)) == ["d1"]
