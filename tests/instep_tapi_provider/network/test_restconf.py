"""RESTCONF: host-meta, discovery in the spellings of the field, resources, and refusals."""

import json
from typing import Any

import aiohttp
import pytest

from instep_tapi.facts.names import LogStorageStrategy
from instep_tapi_provider import (
    Aliases,
    Context,
    DiscoveryStyle,
    Faults,
    IdentityStyle,
    Provider,
    ProviderSettings,
    RecordStyle,
    StreamSettings,
)
from instep_tapi_provider.clock import ScaledClock
from tests.instep_tapi_provider.client_kit import connected, network, stream_url

CONTEXT = "/restconf/data/tapi-common:context"
STREAMS = f"{CONTEXT}/tapi-streaming:stream-context"


async def get(provider: Provider, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession(provider.url) as session, session.get(path) as response:
        text = await response.text()
        return response.status, json.loads(text) if "json" in response.content_type else text


@pytest.mark.asyncio
async def test_the_date_of_an_answer_is_that_of_the_provider_s_clock() -> None:
    wrong = ScaledClock(now=lambda: 1_000_000_000.0)
    async with (
        Provider(network(), ProviderSettings(), clock=wrong) as provider,
        aiohttp.ClientSession(provider.url) as session,
        session.get(STREAMS) as response,
    ):
        assert response.headers["Date"] == "Sun, 09 Sep 2001 01:46:40 GMT"


async def discovered(settings: ProviderSettings) -> Any:
    async with Provider(network(), settings) as provider:
        path = f"{settings.root}/data/tapi-common:context/tapi-streaming:stream-context"
        status, body = await get(provider, path)
        assert status == 200
        return body


@pytest.mark.asyncio
async def test_host_meta_names_the_root() -> None:
    async with Provider(settings=ProviderSettings(root="/tapi")) as provider:
        status, text = await get(provider, "/.well-known/host-meta")
        assert status == 200
        assert '<Link rel="restconf" href="/tapi"/>' in text
    hidden = ProviderSettings(discovery=DiscoveryStyle(host_meta=False))
    async with Provider(settings=hidden) as provider:
        assert (await get(provider, "/.well-known/host-meta"))[0] == 404


@pytest.mark.asyncio
@pytest.mark.parametrize("root", ["/restconf", "/tapi", "", "/rests"])
async def test_roots_of_the_field(root: str) -> None:
    async with Provider(network(), ProviderSettings(root=root)) as provider:
        status, body = await get(provider, f"{root}/data/tapi-common:context")
        assert status == 200
        assert body["tapi-common:context"]["uuid"] == "ctx"
        async with connected(provider, "network") as client:
            await client.frame()


@pytest.mark.asyncio
async def test_3_7_streams_are_declared_with_all_that_is_mandatory() -> None:
    streams = (
        StreamSettings("network"),
        StreamSettings(
            "old", frozenset({"NODE"}), storage=LogStorageStrategy.TRUNCATED, retention_s=24 * 3600
        ),
        StreamSettings("emulated", frozenset({"LINK"}), emulated=True, retention_s=3600),
    )
    body = (await discovered(ProviderSettings(streams=streams)))["tapi-streaming:stream-context"]
    for available in body["available-stream"]:
        assert available["connection-protocol"] == "websockets"
        assert available["stream-state"] == "STREAM_STATE_ACTIVE"
        assert available["connection-address"].startswith("ws://127.0.0.1:")
    compacted, truncated, emulated = body["supported-stream-type"]
    assert (
        compacted["uuid"]
        == (body["available-stream"][0]["supported-stream-type"]["supported-stream-type-uuid"])
    )
    assert compacted["record-retention"] == "FOREVER"
    assert compacted["log-storage-strategy"] == "LOG_STORAGE_STRATEGY_COMPACTED"
    assert compacted["log-record-strategy"] == "LOG_RECORD_STRATEGY_WHOLE_ENTITY_ON_CHANGE"
    assert {"TOPOLOGY", "LINK", "TAPI_CONTEXT"} - {"LINK"} <= set(compacted["record-content"])
    assert compacted["tapi-streaming:compacted-log-details"] == {
        "tombstone-retention": "240",
        "compaction-delay": "10",
    }
    assert truncated["record-retention"] == "1440"
    assert "tapi-streaming:compacted-log-details" not in truncated
    details = emulated["tapi-streaming:compacted-log-details"]
    assert details == {"tombstone-retention": "60", "compaction-delay": "60"}


@pytest.mark.asyncio
async def test_a_time_scale_declares_the_periods_as_they_really_pass() -> None:
    body = await discovered(ProviderSettings(time_scale=3600))
    (declared, _) = body["tapi-streaming:stream-context"]["supported-stream-type"]
    details = declared["tapi-streaming:compacted-log-details"]
    assert float(details["tombstone-retention"]) * 60 == pytest.approx(4, abs=1e-3)


@pytest.mark.asyncio
async def test_spellings_of_discovery() -> None:
    style = DiscoveryStyle(
        prefixed_members=False,
        style=RecordStyle(identities=IdentityStyle.PREFIXED),
        classes_member=Aliases.STREAM_TYPE_CONTENT,
        protocol="websocket",
    )
    body = (await discovered(ProviderSettings(discovery=style)))["stream-context"]
    (declared, _) = body["supported-stream-type"]
    assert "NODE" in declared["stream-type-content"]
    assert declared["log-storage-strategy"] == "tapi-streaming:LOG_STORAGE_STRATEGY_COMPACTED"
    assert declared["compacted-log-details"]["compaction-delay"] == "10"
    assert declared["connection-protocol-details"] == {
        "allowed-connection-protocols": ["websocket"]
    }
    bare = DiscoveryStyle(compacted_log_details=False, connection_protocol_details=False)
    body = await discovered(ProviderSettings(discovery=bare))
    (declared, _) = body["tapi-streaming:stream-context"]["supported-stream-type"]
    assert not [name for name in declared if name.endswith("-details")]


@pytest.mark.asyncio
async def test_lists_of_streams_have_no_path_of_their_own_but_each_stream_has() -> None:
    async with Provider(network()) as provider:
        stream = provider.stream("alarms")
        assert (await get(provider, f"{STREAMS}/available-stream"))[0] == 404
        assert (await get(provider, f"{STREAMS}/supported-stream-type"))[0] == 404
        status, body = await get(provider, f"{STREAMS}/available-stream={stream.uuid}")
        assert status == 200
        (entry,) = body["tapi-streaming:available-stream"]
        assert entry["stream-id"] == "alarms"
        path = f"{STREAMS}/supported-stream-type={stream.type_uuid}/compacted-log-details"
        _, body = await get(provider, path)
        assert body["tapi-streaming:compacted-log-details"]["compaction-delay"] == "10"
    listing = ProviderSettings(discovery=DiscoveryStyle(list_reads=True))
    async with Provider(network(), listing) as provider:
        status, body = await get(provider, f"{STREAMS}/available-stream")
        assert [status, len(body["tapi-streaming:available-stream"])] == [200, 2]


@pytest.mark.asyncio
async def test_the_context_is_served_whole_as_in_the_file_and_as_it_changes(
    shared_data: Any,
) -> None:
    path = shared_data / "tapi" / "transportpce_tapi24_context.json"
    plain = ProviderSettings(discovery=DiscoveryStyle(in_context=False))
    async with Provider(Context.load(path), plain) as provider:
        assert await get(provider, CONTEXT) == (200, json.loads(path.read_bytes()))
        link = next(n for n in provider.context.nodes.values() if n.cls == "LINK")
        provider.update(link.key, {"operational-state": "DISABLED"})
        where = f"topology={link.parent_address[0].partition(':')[2]}/link={link.uuid}"
        path = f"{CONTEXT}/tapi-topology:topology-context/{where}"
        _, body = await get(provider, path)
        assert body["tapi-topology:link"][0]["operational-state"] == "DISABLED"
        provider.delete(link.key)
        assert (await get(provider, path))[0] == 404


@pytest.mark.asyncio
async def test_resources_by_rfc_8040_paths_with_and_without_prefixes() -> None:
    async with Provider(network()) as provider:
        for path in (
            f"{CONTEXT}/tapi-topology:topology-context/topology=top/node=n1/owned-node-edge-point=n1p0",
            "/restconf/data/context/topology-context/topology=top/node=n1/owned-node-edge-point=n1p0",
        ):
            assert await get(provider, path) == (
                200,
                {
                    "tapi-topology:owned-node-edge-point": [
                        {"uuid": "n1p0", "operational-state": "ENABLED"}
                    ]
                },
            )
        name = f"{CONTEXT}/topology-context/topology=top/node=n1/name=name"
        assert (await get(provider, name))[1]["tapi-topology:name"][0]["value"] == "Node 1"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path",
    [
        f"{CONTEXT}/tapi-topology:topology-context/topology=no",
        f"{CONTEXT}/tapi-nothing:nothing",
        f"{CONTEXT}/uuid/deeper",
        "/restconf/data/ietf-yang-library:modules-state",
    ],
)
async def test_what_is_not_there_is_an_rfc_8040_error(path: str) -> None:
    async with Provider(network()) as provider:
        status, body = await get(provider, path)
        assert status == 404
        (error,) = body["ietf-restconf:errors"]["error"]
        assert error["error-tag"] == "invalid-value"


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [403, 404, 500])
async def test_restconf_can_be_refused_but_for_discovery(status: int) -> None:
    async with Provider(network(), faults=Faults(restconf_status=status)) as provider:
        assert (await get(provider, CONTEXT))[0] == status
        assert (await get(provider, STREAMS))[0] == 200
        provider.set_faults(restconf_spares_discovery=False)
        assert (await get(provider, STREAMS))[0] == status


@pytest.mark.asyncio
async def test_3_18_the_stream_monitor_shows_each_client_and_its_lag() -> None:
    async with Provider(network()) as provider:
        path = f"{CONTEXT}/tapi-streaming:stream-admin-context"
        assert (await get(provider, path))[1] == {
            "tapi-streaming:stream-admin-context": {"stream-monitor": []}
        }
        async with connected(provider, "network") as client:
            await client.records(11)
            provider.pause("network")
            provider.update("n0", {"operational-state": "DISABLED"})
            body = (await get(provider, path))[1]["tapi-streaming:stream-admin-context"]
            (monitor,) = body["stream-monitor"]
            log = provider.stream("network").log
            assert monitor["id-of-last-record-written-to-log"] == log.read(11)[0].token
            assert monitor["id-of-last-record-read-from-log"] == log.read(10)[0].token
            assert monitor["client-address"] == "127.0.0.1"
            one = f"{path}/stream-monitor={monitor['uuid']}"
            assert (await get(provider, one))[0] == 200


@pytest.mark.asyncio
async def test_a_connection_address_names_the_host_the_client_asked() -> None:
    async with Provider(network()) as provider, aiohttp.ClientSession(provider.url) as session:
        port = stream_url(provider, "network").port
        async with session.get(STREAMS, headers={"Host": f"localhost:{port}"}) as response:
            body = await response.json(content_type=None)
        (first, _) = body["tapi-streaming:stream-context"]["available-stream"]
        assert first["connection-address"].startswith(f"ws://localhost:{port}/restconf/")
