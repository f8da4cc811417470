"""The provider of TAPI 2.6 (TR-548 v3.2): its answers and records, judged by the YANG of 2.6.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from instep.errors import ConfigurationError
from instep_tapi.facts.names import LogRecordStrategy, LogStorageStrategy
from instep_tapi_provider import (
    DiscoveryStyle,
    IdentityStyle,
    Provider,
    ProviderSettings,
    RecordStyle,
    StreamSettings,
)
from instep_tapi_provider.topology import topology_context
from tests.instep_tapi_provider.client_kit import StreamClient, connected, kind, token
from tests.instep_tapi_provider.yang_kit import Yang, yang_of

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]

CONTEXT = "/restconf/data/tapi-common:context"
STREAMS = f"{CONTEXT}/tapi-streaming:stream-context"
WHOLE, PARTS = LogRecordStrategy.WHOLE_ENTITY_ON_CHANGE, LogRecordStrategy.CHANGE_ONLY


@pytest.fixture(scope="module")
def yang(shared_data: Path) -> Yang:
    return yang_of(shared_data / "tapi" / "yang-2.6.0")


def provider(
    identities: IdentityStyle = IdentityStyle.PREFIXED, *, protocol: str = "websockets", **log: Any
) -> Provider:
    """A small backbone of 2.6 with one stream of everything."""
    style = RecordStyle(identities=identities)
    settings = ProviderSettings(
        streams=(StreamSettings("all", style=style, **log),),
        discovery=DiscoveryStyle(style=style, protocol=protocol),
        compression=False,
    ).of_edition("2.6")
    return Provider(topology_context("sndlib/polska", services=3, tapi="2.6"), settings)


def link(served: Provider) -> str:
    return next(node.key for node in served.context.nodes.values() if node.cls == "LINK")


async def get(served: Provider, path: str) -> Any:
    async with aiohttp.ClientSession(served.url) as session, session.get(path) as response:
        assert response.status == 200, path
        return json.loads(await response.text())


async def read_all(served: Provider, client: StreamClient) -> list[dict[str, Any]]:
    return await client.records(len(served.stream("all").log))


@pytest.mark.parametrize("protocol", ["websockets", "sse"])
@pytest.mark.parametrize("records", [WHOLE, PARTS, LogRecordStrategy.WHOLE_ENTITY_PERIODIC])
@pytest.mark.parametrize(
    "log",
    [
        {},
        {"emulated": True},
        {"storage": LogStorageStrategy.TRUNCATED},
        {"storage": LogStorageStrategy.FULL_HISTORY},
    ],
)
async def test_what_is_discovered_is_valid(
    yang: Yang, log: dict[str, Any], records: LogRecordStrategy, protocol: str
) -> None:
    async with provider(**log, record_strategy=records, protocol=protocol) as served:
        answer = await get(served, STREAMS)
        # A resource is wrapped, to be a document of the tree.
        yang.check({"tapi-common:context": answer})


async def test_the_whole_context_is_valid_and_has_the_alarms_that_stand(yang: Yang) -> None:
    async with provider() as served:
        stays, cleared = (served.raise_alarm(link(served), "SPAN-LOSS", detector=n) for n in (1, 2))
        served.clear_alarm(cleared)
        context = await get(served, CONTEXT)
        fault_management = await get(served, f"{CONTEXT}/tapi-fm:fault-management-context")
        alone = await get(served, f"{CONTEXT}/tapi-topology:topology-context")
    yang.check(context)
    (one,) = fault_management["tapi-fm:fault-management-context"]["active-condition"]
    assert one["target-object-identifier"] == link(served)
    assert one["detected-condition"]["detected-condition-native-name"] == "Span Loss Out Of Range"
    assert stays in served.operator.alarms
    assert list(alone) == ["tapi-topology:topology-context"]


async def test_the_stream_monitor_is_valid_and_counts_where_3_18_has_it(yang: Yang) -> None:
    async with provider() as served, connected(served) as client:
        records = await read_all(served, client)
        answer = await get(served, f"{CONTEXT}/tapi-streaming:stream-admin-context")
        streams = await get(served, STREAMS)
    yang.check({"tapi-common:context": answer | streams})
    (monitor,) = answer["tapi-streaming:stream-admin-context"]["stream-monitor"]
    counts = monitor["dynamic-stream-data"]
    assert counts["id-of-last-record-written-to-log"] == token(records[-1])
    assert "id-of-last-record-written-to-log" not in monitor


@pytest.mark.parametrize("identities", [IdentityStyle.PREFIXED, IdentityStyle.NAME])
async def test_every_record_is_valid(yang: Yang, identities: IdentityStyle) -> None:
    async with provider(identities) as served, connected(served) as client:
        served.update(link(served), {"operational-state": "DISABLED"})
        alarm = served.raise_alarm(link(served))
        served.operator.change_alarm(alarm, acknowledged=True)
        served.clear_alarm(alarm)
        served.raise_alarms(30)
        served.delete(link(served))
        records = await read_all(served, client)
    assert {kind(one).removeprefix("tapi-streaming:RECORD_TYPE_") for one in records} == {
        *("CREATE", "UPDATE", "DELETE", "TOMBSTONE")
    }
    stated = {one["log-record-body"]["record-content"] for one in records if len(one) == 2}
    assert {
        "tapi-topology:TOPOLOGY_OBJECT_TYPE_NODE_EDGE_POINT",
        "tapi-common:OBJECT_TYPE_SERVICE_INTERFACE_POINT",
        "tapi-connectivity:CONNECTIVITY_OBJECT_TYPE_CONNECTION_END_POINT",
        "tapi-streaming:STREAMING_OBJECT_TYPE_CONDITION_DETECTOR",
        "tapi-streaming:STREAMING_OBJECT_TYPE_ANY_CLASS",
    } <= stated
    for one in records:
        yang.check_record(one)


async def test_5_2_changes_are_for_those_who_know_the_entity(yang: Yang) -> None:
    async with provider(IdentityStyle.NAME, record_strategy=PARTS) as served:
        async with connected(served) as client:
            before = await read_all(served, client)
            served.update(link(served), {"operational-state": "DISABLED"})
            (live,) = await client.records(1)
            served.update(link(served), {"name": [{"value-name": "a", "value": "b"}]})
            served.update(link(served), {"operational-state": None})
            named, removed = await client.records(2)
        async with connected(served, start_from=token(before[-1])) as client:
            resumed = await client.records(3)
        async with connected(served) as client:
            anew = await read_all(served, client)
    assert {kind(one) for one in before} == {"CREATE"}
    uuid = link(served)
    change = live["log-record-body"]["tapi-topology:link"]
    assert (kind(live), change) == ("CHANGE", {"uuid": uuid, "operational-state": "DISABLED"})
    # A list is stated whole, and a CHANGE states no removal.
    names = named["log-record-body"]["tapi-topology:link"]["name"]
    assert (kind(named), names) == ("CHANGE", [{"value-name": "a", "value": "b"}])
    assert kind(removed) == "UPDATE"
    assert "operational-state" not in removed["log-record-body"]["tapi-topology:link"]
    assert resumed == [live, named, removed]
    # Who begins at the oldest record may not have the entity.
    assert [kind(one) for one in anew[-3:]] == ["UPDATE"] * 3
    assert [token(one) for one in anew[-3:]] == [token(one) for one in resumed]
    for one in (live, named, removed, *anew[-3:]):
        yang.check_record(one)


async def test_5_2_a_client_that_fell_behind_the_compaction_delay_gets_no_change() -> None:
    late: dict[str, Any] = {"record_strategy": PARTS, "compaction_delay_s": 0.0}
    async with provider(IdentityStyle.NAME, **late) as served, connected(served) as client:
        await read_all(served, client)
        served.update(link(served), {"operational-state": "DISABLED"})
        (live,) = await client.records(1)
    assert kind(live) == "UPDATE"


async def test_streams_of_2_6_are_stated_as_v3_2_has_them() -> None:
    async with provider(IdentityStyle.NAME) as served:
        context = (await get(served, STREAMS))["tapi-streaming:stream-context"]
    stream, measurements = context["available-stream"]
    assert isinstance(stream["connection-address"], list)
    assert stream["connection-protocol"] == "CONNECTION_PROTOCOL_WEBSOCKETS"
    assert measurements["connection-protocol"] == "CONNECTION_PROTOCOL_GNMI"
    type_ = context["supported-stream-type"][0]
    assert type_["log-record-strategy"] == "LOG_RECORD_STRATEGY_WHOLE_ENTITY"
    assert type_["record-trigger"] == "RECORD_TRIGGER_ON_CHANGE"
    assert "tapi-topology:TOPOLOGY_OBJECT_TYPE_NODE" in type_["stream-type-content"]
    assert "record-content" not in type_


async def test_v3_2_3_10_an_information_record_is_valid_and_states_no_entity(yang: Yang) -> None:
    async with provider() as served, connected(served) as client:
        before = await read_all(served, client)
        served.inform("all", "maintenance", {"window": "tonight"})
        (informs,) = await client.records(1)
        assert len(served.entities("all")) == len(before)
        served.stream("all").audit()
        assert served.stream("all").log.newest is served.stream("all").log.latest("maintenance")
    assert kind(informs).endswith(":RECORD_TYPE_INFORMATION")
    info = informs["log-record-body"]["additional-event-info"]
    assert info == [{"value-name": "window", "value": "tonight"}]
    assert "record-content" not in informs["log-record-body"]
    yang.check_record(informs)


async def test_v3_2_3_10_information_records_come_periodically() -> None:
    async with provider(information_period_s=0.05) as served, connected(served) as client:
        await read_all(served, client)
        first, second = await client.records(2)
    keys = {one["log-record-header"]["entity-key"] for one in (first, second)}
    assert (keys, kind(second)) == ({"information-all"}, kind(first))


async def test_v3_2_3_10_an_information_record_has_a_key_of_its_own() -> None:
    async with provider() as served:
        with pytest.raises(ConfigurationError, match="is the key of an entity"):
            served.inform("all", link(served), {})
    with pytest.raises(ConfigurationError, match=r"2\.1\.3 has no information records"):
        Provider().inform("network", "a", {})
