"""Alarms that stand, read by GET (tapi-fm of 2.4.1 and later): `active-condition` proves them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from instep_sql import SqlStore
from instep_tapi.derivations.alarms import alarms
from tests.instep_tapi.hostile_kit import Peer
from tests.instep_tapi.small_provider_kit import (
    CONTEXT,
    DEADLINE_S,
    SmallProvider,
    aligned_again,
    running,
    stated,
)

pytestmark = pytest.mark.asyncio

CONDITIONS = f"{CONTEXT}/tapi-fm:fault-management-context"


class AlarmProvider(SmallProvider):
    """A truncated stream of detectors, as 2.6.0 declares it, and `active-condition`."""

    def __init__(self, *conditions: Any, log: Any = (), edition: str = "2.6") -> None:
        super().__init__("CONDITION_DETECTOR", log=log)
        self.conditions: list[Any] | None = list(conditions)
        self.edition = edition
        self.asked = 0

    def streams(self, address: str) -> dict[str, Any]:
        found = super().streams(address)
        (kind,) = found["supported-stream-type"]
        if self.edition == "2.6":
            del kind["record-content"]
            kind |= {
                "stream-type-content": ["tapi-streaming:STREAMING_OBJECT_TYPE_CONDITION_DETECTOR"],
                "record-trigger": "tapi-streaming:RECORD_TRIGGER_ON_CHANGE",
            }
        return found

    async def serve(self, peer: Peer) -> None:
        if peer.target != CONDITIONS:
            await super().serve(peer)
            return
        self.asked += 1
        if self.conditions is None:
            await peer.answer(b"", status="404 Not Found")
        else:
            body = {"tapi-fm:fault-management-context": {"active-condition": self.conditions}}
            await peer.answer(json.dumps(body).encode())


def condition(uuid: str, state: str = "ACTIVE", severity: str = "MAJOR") -> Any:
    return {
        "uuid": uuid,
        "target-object-identifier": "n1",
        "target-object-type": "tapi-topology:TOPOLOGY_OBJECT_TYPE_NODE",
        "event-time-stamp": "2026-11-22T10:15:00Z",
        "detected-condition": {
            "detected-condition-name": "PHOTONIC_LAYER_DETECTED_CONDITION_NAME_LOS",
            "detected-condition-native-name": "Loss Of Signal",
            "detector-info": {"perceived-severity": severity},
            "simple-detector": {"simple-detector-state": f"tapi-fm:SIMPLE_DETECTOR_STATE_{state}"},
        },
    }


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 's.db'}", alarms=True, journal="bodies")
    yield opened
    await opened.close()


async def standing(store: SqlStore) -> dict[str, bool]:
    """The alarms that stand: key → whether it is proven."""
    return {one.key: not one.unproven async for one in store.reader.entities()}


async def test_v3_2_what_active_condition_states_stands_and_is_proven(store: SqlStore) -> None:
    provider = AlarmProvider(condition("ac1"), condition("ac2", "CLEAR"))
    async with running(provider, store) as consumer:
        assert await standing(store) == {"ac1": True}
        (one,) = [one async for one in alarms(store.reader)]
        assert (one.condition, one.severity, one.measured_uuid) == ("Loss Of Signal", "MAJOR", "n1")
        assert consumer.health().streams[0].unprovable == ()


async def test_v3_2_an_alarm_that_is_not_there_is_proven_absent(store: SqlStore) -> None:
    provider = AlarmProvider(condition("ac1"), condition("ac2"))
    async with running(provider, store) as consumer:
        provider.conditions = [condition("ac2")]
        consumer.realign("s")
        await aligned_again(consumer, 2)
        assert await standing(store) == {"ac2": True}


@pytest.mark.parametrize(("edition", "asks"), [("2.1.3", False), ("2.6", True)])
async def test_without_the_resource_alarms_stay_unproven(
    edition: str, asks: bool, store: SqlStore
) -> None:
    provider = AlarmProvider(edition=edition)
    if edition == "2.6":
        provider.conditions = None
    async with running(provider, store) as consumer:
        assert consumer.health().streams[0].unprovable == ("CONDITION_DETECTOR",)
        assert bool(provider.asked) is asks


async def test_v3_2_4_5_a_detector_and_its_active_condition_are_one_alarm(store: SqlStore) -> None:
    provider = AlarmProvider(condition("ac1"))
    async with running(provider, store) as consumer:
        detector = {"detector-uuid": "ac1", "detector-native-id": "fac-1"}
        stated_whole = {
            **detector,
            "tapi-fm:detected-condition": condition("")["detected-condition"],
        }
        provider.say(stated(1, "fac-1", "CONDITION_DETECTOR", stated_whole, second=3600))
        async with asyncio.timeout(DEADLINE_S):
            while await standing(store) != {"fac-1": True}:
                await asyncio.sleep(0.05)
        consumer.realign("s")
        await aligned_again(consumer, 2)
        assert await standing(store) == {"fac-1": True}
        provider.conditions = []
        provider.say(stated(2, "fac-1", kind="DELETE", second=3601))
        async with asyncio.timeout(DEADLINE_S):
            while await standing(store):
                await asyncio.sleep(0.05)


class PlainProvider(AlarmProvider):
    """Its paths have no modules."""

    async def serve(self, peer: Peer) -> None:
        plain = "/restconf/data/context"
        if peer.target.startswith(plain):
            member = peer.target.removeprefix(plain)
            member = member.replace("/stream-", "/tapi-streaming:stream-")
            peer.target = f"{CONTEXT}{member.replace('/fault-', '/tapi-fm:fault-')}"
        elif "Upgrade" not in peer.headers:
            await peer.answer(b"", status="404 Not Found")
            return
        await super().serve(peer)


async def test_v3_2_active_condition_is_found_where_paths_have_no_modules(store: SqlStore) -> None:
    async with running(PlainProvider(condition("ac1")), store) as consumer:
        assert await standing(store) == {"ac1": True}
        assert consumer.health().streams[0].unprovable == ()
