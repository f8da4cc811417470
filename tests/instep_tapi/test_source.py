"""The source against a real provider: discovery, connection, resumption, and each bad input."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from instep.errors import (
    AuthenticationError,
    BaselineError,
    DiscoveryError,
    FrameTooBigError,
    NoStreamError,
    SourceError,
    StreamGoneError,
    TlsError,
    TokenRefusedError,
    UnreachableError,
)
from instep.ports import Feed, Mode, Source, Start, StreamInfo
from instep.records import Delivery, Record, StreamState
from instep_tapi.names import LogRecordStrategy, LogStorageStrategy
from instep_tapi.names import StreamState as ProviderState
from instep_tapi.plugin import source as plugin
from instep_tapi.provider import (
    AuthSettings,
    Context,
    Faults,
    Provider,
    ProviderSettings,
    RecordStyle,
    StreamSettings,
    Wrapper,
)

DEADLINE_S = 20.0
TRUNCATED = LogStorageStrategy.TRUNCATED
NODES = 20


def network(nodes: int = NODES) -> Context:
    node = [{"uuid": f"n{n}", "owned-node-edge-point": [{"uuid": f"p{n}"}]} for n in range(nodes)]
    topology = {"topology": [{"uuid": "t", "node": node}]}
    return Context({"uuid": "c", "tapi-topology:topology-context": topology})


def one_stream(style: RecordStyle | None = None, **stream: Any) -> ProviderSettings:
    settings = StreamSettings("network", style=style or RecordStyle(), **stream)
    return ProviderSettings(streams=(settings,))


@asynccontextmanager
async def following(provider: Provider, **options: Any) -> AsyncIterator[Source]:
    source = plugin.build({"endpoints": [provider.url], **options}, "source")
    try:
        yield source
    finally:
        await source.close()


@asynccontextmanager
async def serving(
    settings: ProviderSettings | None = None, faults: Faults | None = None, **options: Any
) -> AsyncIterator[tuple[Provider, Source]]:
    async with (
        Provider(network(), settings or one_stream(), faults=faults) as provider,
        following(provider, **options) as source,
    ):
        yield provider, source


async def receive(feed: Feed, count: int) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(records) < count:
            records += (await feed.receive()).records
    return records


async def ending(feed: Feed) -> SourceError:
    """The error that the feed ends with."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await feed.receive()
            except SourceError as error:
                return error


async def only(source: Source) -> StreamInfo:
    [info] = await source.discover()
    return info


def same(records: list[Record], truth: dict[str, tuple[str, bytes]]) -> bool:
    return {record.key: (record.entity_class, json.loads(record.body)) for record in records} == {
        key: (entity_class, json.loads(body)) for key, (entity_class, body) in truth.items()
    }


@pytest.mark.asyncio
async def test_st_0_2_tells_what_the_provider_declares() -> None:
    async with serving() as (provider, source):
        info = await only(source)
        assert (info.id, info.kind, info.mode) == ("network", "tapi", Mode.LOG)
        assert (info.compaction_delay_s, info.tombstone_retention_s) == (600, 4 * 3600)
        assert info.storage_strategy == "COMPACTED"
        assert info.record_strategy == "WHOLE_ENTITY_ON_CHANGE"
        assert "NODE" in info.classes
        assert info.origin == f"{provider.url} {info.details['uuid']}"
        assert await source.state(info) is StreamState.ACTIVE


@pytest.mark.asyncio
@pytest.mark.parametrize("compression", [False, True])
async def test_st_0_3_reads_a_stream_from_the_oldest_record(compression: bool) -> None:
    async with serving(compression=compression) as (provider, source):
        info = await only(source)
        truth = provider.entities("network")
        async with source.feed(info, Start.OLDEST) as feed:
            records = await receive(feed, len(truth))
            assert same(records, truth)
            provider.update("n3", {"operational-state": "DISABLED"})
            [record] = await receive(feed, 1)
            assert record.key == "n3"
            assert feed.clock_offset_us == 0


@pytest.mark.asyncio
async def test_st_0_7_resumes_after_a_token_and_reads_nothing_again() -> None:
    async with serving() as (provider, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            records = await receive(feed, len(provider.entities("network")))
        provider.update("n1", {"operational-state": "DISABLED"})
        assert {":", "="} <= set(records[-1].token)
        async with source.feed(info, records[-1].token) as feed:
            again = await receive(feed, 1)
        assert [record.key for record in again] == ["n1"]
        assert provider.counters("network").resumes_by_token == 1


@pytest.mark.asyncio
async def test_5_10_1_starts_from_the_latest() -> None:
    async with serving() as (provider, source):
        info = await only(source)
        async with source.feed(info, Start.LATEST) as feed:
            provider.update("n1", {"operational-state": "DISABLED"})
            assert [record.key for record in await receive(feed, 1)] == ["n1"]


@pytest.mark.asyncio
async def test_a_full_buffer_stops_the_provider_and_loses_nothing() -> None:
    style = RecordStyle(wrapper=Wrapper.LIST, records_per_frame=3)
    async with serving(one_stream(style), hold_records=4, batch_records=2) as (provider, source):
        info = await only(source)
        truth = provider.entities("network")
        async with source.feed(info, Start.OLDEST) as feed:
            await asyncio.sleep(0.1)
            assert feed._held_records <= 4 + 3  # type: ignore[attr-defined]
            delivery = await feed.receive()
            assert len(delivery.records) == 3
            rest = await receive(feed, len(truth) - 3)
            assert same(delivery.records + rest, truth)


@pytest.mark.asyncio
async def test_cancelling_receive_loses_nothing() -> None:
    async with serving() as (provider, source):
        info = await only(source)
        count = len(provider.entities("network"))
        async with source.feed(info, Start.OLDEST) as feed:
            records = await receive(feed, count)
            waiting = asyncio.create_task(feed.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            provider.update("n1", {"operational-state": "DISABLED"})
            records += await receive(feed, 1)
        assert len(records) == count + 1


@pytest.mark.asyncio
async def test_st_0_4_pongs_keep_a_quiet_connection_under_back_pressure() -> None:
    settings = ProviderSettings(streams=(StreamSettings("network"),), pong_timeout_s=0.5)
    async with serving(settings, pong_interval_s=0.1, hold_records=1) as (provider, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            await asyncio.sleep(1.2)
            records = await receive(feed, len(provider.entities("network")))
            assert same(records, provider.entities("network"))
            await asyncio.sleep(1.2)
            provider.update("n1", {"operational-state": "DISABLED"})
            assert len(await receive(feed, 1)) == 1


@pytest.mark.asyncio
async def test_st_0_4_without_pongs_the_provider_drops_the_client() -> None:
    settings = ProviderSettings(streams=(StreamSettings("network"),), pong_timeout_s=0.2)
    async with serving(settings) as (_, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            assert isinstance(await ending(feed), UnreachableError)


@pytest.mark.asyncio
async def test_st_0_4_silence_is_no_death_while_pings_are_answered() -> None:
    async with serving(dead_peer_s=0.1) as (provider, source):
        info = await only(source)
        provider.pause("network")
        assert await source.state(info) is StreamState.PAUSED
        async with source.feed(info, Start.OLDEST) as feed:
            await asyncio.sleep(0.6)
            provider.activate("network")
            assert await receive(feed, 1)


@pytest.mark.asyncio
async def test_what_arrived_before_the_end_is_delivered_first() -> None:
    async with serving(faults=Faults(drop_after_records=5)) as (_, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            assert len(await receive(feed, 5)) == 5
            with pytest.raises(UnreachableError):
                await asyncio.wait_for(feed.receive(), DEADLINE_S)


@pytest.mark.asyncio
async def test_a_change_only_stream_states_parts_with_uuids() -> None:
    settings = one_stream(record_strategy=LogRecordStrategy.CHANGE_ONLY)
    async with serving(settings) as (_, source):
        async with source.feed(await only(source), Start.OLDEST) as feed:
            [record, *_] = await receive(feed, 1)
        assert not record.whole
        assert record.uuid


@pytest.mark.asyncio
async def test_a_truncated_stream_is_aligned_from_a_baseline() -> None:
    async with serving(one_stream(storage=TRUNCATED)) as (provider, source):
        info = await only(source)
        assert info.mode is Mode.BASELINE
        assert {"NODE", "NODE_EDGE_POINT", "TOPOLOGY"} <= info.readable
        records = [record async for page in source.baseline(info, 7) for record in page]
        assert same(records, provider.entities("network"))
        assert {record.token for record in records} == {""}
        assert {record.appended_at_us for record in records} == {7}
        assert all(record.uuid == record.key for record in records)
        async with source.feed(info, Start.OLDEST) as feed:
            assert all(record.uuid for record in await receive(feed, 5))


# --- bad input, each with its message ---------------------------------------------------------


@pytest.mark.asyncio
async def test_unknown_host() -> None:
    source = plugin.build({"endpoints": ["https://no-such-host.invalid:8443"]}, "source")
    with pytest.raises(UnreachableError, match=r"no-such-host\.invalid.*: unknown host"):
        await source.discover()
    await source.close()


@pytest.mark.asyncio
async def test_the_next_endpoint_is_asked_where_one_does_not_answer() -> None:
    async with Provider(network(), one_stream()) as provider:
        endpoints = ["http://127.0.0.1:1", provider.url]
        source = plugin.build({"endpoints": endpoints}, "source")
        assert (await only(source)).origin.startswith(provider.url)
        await source.close()
    source = plugin.build({"endpoints": ["http://127.0.0.1:1", "http://127.0.0.1:2"]}, "source")
    with pytest.raises(UnreachableError, match="none of the endpoints can be reached"):
        await source.discover()
    await source.close()


@pytest.mark.asyncio
async def test_tls_is_verified_unless_turned_off_by_name(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    settings = ProviderSettings(streams=(StreamSettings("network"),), tls=tls)
    async with Provider(network(), settings) as provider:
        async with following(provider) as source:
            with pytest.raises(
                TlsError, match=r"certificate verify failed|unable to get"
            ) as raised:
                await source.discover()
            assert "tls.ca" in raised.value.hint
        for trusted in ({"ca": str(ca)}, {"verify": "off"}, {"verify": False}):
            async with following(provider, tls=trusted) as source:
                info = await only(source)
                assert info.details["address"].startswith("wss://")
                async with source.feed(info, Start.OLDEST) as feed:
                    assert await receive(feed, 1)


@pytest.mark.asyncio
async def test_a_refused_token_is_told_without_it() -> None:
    settings = ProviderSettings(
        streams=(StreamSettings("network"),), auth=AuthSettings(tokens=frozenset({"right"}))
    )
    bearer = {"kind": "bearer", "token": "very-secret"}
    async with serving(settings, auth=bearer) as (_, source):
        with pytest.raises(AuthenticationError, match="the provider answers 401") as raised:
            await source.discover()
        assert "very-secret" not in f"{raised.value!r} {raised.value} {raised.value.data} {source}"
    async with serving(settings) as (_, source):
        with pytest.raises(AuthenticationError, match="give a login as auth"):
            await source.discover()


@pytest.mark.asyncio
async def test_404_on_discovery() -> None:
    faults = Faults(restconf_status=404, restconf_spares_discovery=False)
    async with serving(faults=faults) as (_, source):
        with pytest.raises(DiscoveryError, match="no stream-context found") as raised:
            await source.discover()
        assert set(raised.value.data["tried"].values()) == {"404"}


@pytest.mark.asyncio
@pytest.mark.parametrize(("status", "retriable"), [(403, False), (503, True)])
async def test_discovery_refused(status: int, retriable: bool) -> None:
    faults = Faults(restconf_status=status, restconf_spares_discovery=False)
    async with serving(faults=faults) as (_, source):
        with pytest.raises(DiscoveryError, match=f"answered with {status}") as raised:
            await source.discover()
        assert raised.value.retriable is retriable


@pytest.mark.asyncio
async def test_no_active_stream() -> None:
    async with serving() as (provider, source):
        provider.pause("network", ProviderState.TERMINATED)
        with pytest.raises(NoStreamError, match="network: its state is TERMINATED") as raised:
            await source.discover()
        assert raised.value.data["reasons"] == {"network": "its state is TERMINATED"}


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [401, 403, 404, 503])
async def test_only_truncated_and_restconf_refused(status: int) -> None:
    faults = Faults(restconf_status=status)
    async with serving(one_stream(storage=TRUNCATED), faults) as (_, source):
        info = await only(source)
        with pytest.raises(BaselineError, match=f"state is answered with {status}") as raised:
            await anext(source.baseline(info, 0))
        assert "cannot give state alone" in raised.value.hint


@pytest.mark.asyncio
async def test_a_resume_token_that_is_refused() -> None:
    async with serving(faults=Faults(refuse_tokens=410)) as (_, source):
        info = await only(source)
        with pytest.raises(TokenRefusedError, match="refuses to resume from our token: 410"):
            async with source.feed(info, "some:token="):
                pass
        async with source.feed(info, Start.OLDEST) as feed:
            assert await receive(feed, 1)


@pytest.mark.asyncio
async def test_a_stream_that_is_gone() -> None:
    async with serving(faults=Faults(handshake_status=404)) as (_, source):
        info = await only(source)
        with pytest.raises(StreamGoneError, match="no such stream any more"):
            async with source.feed(info, Start.OLDEST):
                pass


@pytest.mark.asyncio
async def test_a_frame_that_is_no_json_is_kept_and_the_stream_goes_on() -> None:
    async with serving(faults=Faults(malformed_every=5)) as (provider, source):
        info = await only(source)
        count = len(provider.entities("network"))
        got: list[Delivery] = []
        async with source.feed(info, Start.OLDEST) as feed, asyncio.timeout(DEADLINE_S):
            while sum(len(d.records) + len(d.unreadable) for d in got) < count:
                got.append(await feed.receive())
        bad = [unreadable for delivery in got for unreadable in delivery.unreadable]
        assert len(bad) == count // 5
        assert bad[0].reason.startswith("not JSON")
        assert bad[0].raw.startswith(b'{"log-record-header"')


@pytest.mark.asyncio
async def test_a_frame_of_10_mb() -> None:
    faults = Faults(oversized_every=10, oversized_bytes=10 * 1024 * 1024)
    async with serving(faults=faults) as (_, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            error = await ending(feed)
        assert isinstance(error, FrameTooBigError)
        assert error.data["limit_bytes"] == 4 * 1024 * 1024
        assert "max_frame_bytes" in str(error)


@pytest.mark.asyncio
async def test_a_login_that_expires_is_renewed_once() -> None:
    settings = ProviderSettings(
        streams=(StreamSettings("network"),),
        auth=AuthSettings(username="u", password="p"),
    )
    login = {
        "kind": "login",
        "path": "/tron/api/v1/tokens",
        "body": {"username": "u", "password": "p"},
        "token_field": "token",
    }
    async with serving(settings, auth=login) as (provider, source):
        info = await only(source)
        provider.revoke_tokens()
        async with source.feed(info, Start.OLDEST) as feed:
            assert await receive(feed, 1)
        provider.revoke_tokens()
        assert await source.state(info) is StreamState.ACTIVE
