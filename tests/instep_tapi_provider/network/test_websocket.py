"""Streams over real WebSockets: where they start, when they pause, when a client is dropped."""

import asyncio

import aiohttp
import pytest

from instep_tapi.facts.names import StreamState
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from tests.instep_tapi_provider.client_kit import (
    connected,
    held,
    key,
    kind,
    network,
    one_stream,
    stream_url,
    token,
    truth,
    until,
)

_HANDSHAKE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
ENTITIES = 11  # context, topology, 3 nodes, 6 ports


@pytest.mark.asyncio
async def test_st_0_3_a_new_client_gets_everything_from_the_oldest_record_on() -> None:
    async with Provider(network(), one_stream()) as provider, connected(provider) as client:
        records = await client.records(ENTITIES)
        assert held(records) == truth(provider)
        assert [key(r) for r in records[:3]] == ["ctx", "top", "n0"], "parents come first"
        address = records[3]["log-record-body"]["parent-address"]
        assert address == ["topology-uuid:top", "node-uuid:n0"]
        provider.update("n0", {"operational-state": "DISABLED"})
        (changed,) = await client.records(1)
        assert changed["log-record-body"]["node"]["operational-state"] == "DISABLED"
        counters = provider.counters("all")
        assert (counters.connections, counters.starts_from_oldest) == (1, 1)
        assert counters.records_sent == ENTITIES + 1


@pytest.mark.asyncio
async def test_a_delete_is_delete_and_tombstone_for_each_entity_children_first() -> None:
    async with Provider(network(), one_stream()) as provider, connected(provider) as client:
        records = await client.records(ENTITIES)
        provider.delete("n0")
        ends = await client.records(6)
        assert [(key(r), kind(r)) for r in ends] == [
            (gone, how) for gone in ("n0p1", "n0p0", "n0") for how in ("DELETE", "TOMBSTONE")
        ]
        assert "log-record-body" not in ends[1]
        assert held(records + ends) == truth(provider)


@pytest.mark.asyncio
async def test_st_0_7_a_token_goes_on_with_the_next_record() -> None:
    async with Provider(network(), one_stream()) as provider:
        async with connected(provider) as client:
            last = (await client.records(5))[-1]
        async with connected(provider, start_from=token(last)) as client:
            assert len(await client.records(ENTITIES - 5)) == ENTITIES - 5
            await client.silence()
        counters = provider.counters("all")
        assert (counters.resumes_by_token, counters.restarts_from_oldest) == (1, 0)
        assert counters.last_start_from == token(last)


@pytest.mark.asyncio
async def test_start_from_latest_sends_what_comes_next_only() -> None:
    async with (
        Provider(network(), one_stream()) as provider,
        connected(provider, start_from="latest") as client,
    ):
        await client.silence()
        provider.update("n1", {"operational-state": "DISABLED"})
        assert key(await client.frame()) == "n1"


@pytest.mark.asyncio
async def test_st_0_8_a_token_past_tombstone_retention_restarts_from_the_oldest() -> None:
    settings = one_stream(compaction_delay_s=0.05, tombstone_retention_s=0.1)
    async with Provider(network(), settings) as provider:
        async with connected(provider) as client:
            last = (await client.records(ENTITIES))[-1]
        provider.delete("n0")
        await until(lambda: len(provider.stream("all").log) == ENTITIES - 3, "expiry")
        async with connected(provider, start_from=token(last)) as client:
            assert held(await client.records(ENTITIES - 3)) == truth(provider)
        assert provider.counters("all").restarts_from_oldest == 1


@pytest.mark.asyncio
async def test_the_time_scale_makes_hours_pass_in_moments() -> None:
    stream = StreamSettings("all", compaction_delay_s=600, tombstone_retention_s=4 * 3600)
    settings = ProviderSettings(streams=(stream,), time_scale=4 * 3600 * 10)
    async with Provider(network(), settings) as provider:
        provider.delete("n0")
        await until(lambda: len(provider.stream("all").log) == ENTITIES - 3, "four hours")


@pytest.mark.asyncio
async def test_st_1_3_a_log_that_was_lost_is_filled_anew_and_knows_no_token() -> None:
    async with Provider(network(), one_stream()) as provider:
        async with connected(provider) as client:
            last = (await client.records(ENTITIES))[-1]
        await provider.restart(keep_log=False)
        async with connected(provider, start_from=token(last)) as client:
            records = await client.records(ENTITIES)
        offsets = [
            int(r["log-record-header"]["full-log-record-offset-id"][1]["value"]) for r in records
        ]
        assert offsets == list(range(ENTITIES))
        assert provider.counters("all").restarts_from_oldest == 1


@pytest.mark.asyncio
async def test_st_1_3_a_restart_that_kept_its_log_goes_on_after_the_token() -> None:
    async with Provider(network(), one_stream()) as provider:
        url = provider.url
        async with connected(provider) as client:
            last = (await client.records(ENTITIES))[-1]
            await provider.restart()
            assert await client.rest() == []
        assert provider.url == url
        provider.update("n2", {"operational-state": "DISABLED"})
        async with connected(provider, start_from=token(last)) as client:
            assert key(await client.frame()) == "n2"


@pytest.mark.asyncio
async def test_a_log_that_is_lost_under_a_client_ends_its_connection() -> None:
    async with Provider(network(), one_stream()) as provider, connected(provider) as client:
        await client.records(ENTITIES)
        provider.forget_log()
        assert await client.rest() == []


@pytest.mark.asyncio
async def test_st_1_1_nothing_is_sent_while_aligning_or_paused_and_then_the_next_record() -> None:
    settings = ProviderSettings(streams=(StreamSettings("all"),), active_at_start=False)
    async with Provider(network(), settings) as provider, connected(provider) as client:
        assert provider.stream("all").state is StreamState.ALIGNING
        await client.silence()
        provider.activate("all")
        records = await client.records(ENTITIES)
        provider.pause("all")
        provider.update("n0", {"operational-state": "DISABLED"})
        await client.silence()
        provider.activate("all")
        records.append(await client.frame())
        assert held(records) == truth(provider)


@pytest.mark.asyncio
async def test_st_1_2_an_audit_repairs_what_the_log_did_not_hear() -> None:
    async with Provider(network(), one_stream()) as provider, connected(provider) as client:
        records = await client.records(ENTITIES)
        provider.lose_changes("all")
        provider.delete("n0")
        provider.update("n1", {"operational-state": "DISABLED"})
        provider.create("top", "node", {"uuid": "n9"})
        await client.silence()
        repaired = provider.recover("all")
        repairs = await client.records(repaired)
        assert sorted((key(r), kind(r)) for r in repairs) == [
            ("n0", "TOMBSTONE"),
            ("n0p0", "TOMBSTONE"),
            ("n0p1", "TOMBSTONE"),
            ("n1", "CREATE_UPDATE"),
            ("n9", "CREATE_UPDATE"),
        ]
        assert held(records + repairs) == truth(provider)
        assert repairs[-1]["log-record-body"]["event-time-stamp"]["spread"] == "SPREAD_BEFORE"
        assert provider.recover("all") == 0


@pytest.mark.asyncio
async def test_a_terminated_stream_ends_its_clients_and_is_gone() -> None:
    async with Provider(network(), one_stream()) as provider:
        async with connected(provider) as client:
            await client.records(ENTITIES)
            provider.pause("all", StreamState.TERMINATED)
            message = await client.message()
            assert message.type is aiohttp.WSMsgType.CLOSE
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with connected(provider):
                pass
        assert refused.value.status == 404


@pytest.mark.asyncio
async def test_st_0_4_a_silent_client_is_dropped_and_pongs_keep_it() -> None:
    settings = ProviderSettings(streams=(StreamSettings("all"),), pong_timeout_s=0.4)
    async with Provider(network(), settings) as provider:
        async with connected(provider) as client:
            await client.records(ENTITIES)
            for _ in range(6):
                await client.ws.pong()
                await asyncio.sleep(0.1)
            assert provider.counters("all").dropped == 0
            assert await client.rest() == []
        assert provider.counters("all").dropped == 1


@pytest.mark.asyncio
async def test_a_ping_is_answered() -> None:
    async with (
        Provider(network(), one_stream()) as provider,
        connected(provider, start_from="latest") as client,
    ):
        await client.ws.ping(b"there?")
        message = await client.message()
        assert (message.type, bytes(message.data)) == (aiohttp.WSMsgType.PONG, b"there?")


@pytest.mark.asyncio
async def test_st_0_6_a_client_that_does_not_read_slips_back_and_is_dropped() -> None:
    settings = one_stream(compaction_delay_s=0.1, tombstone_retention_s=0.4)
    async with Provider(network(100, 0), settings) as provider:
        for n in range(100):
            provider.update(f"n{n}", {"padding": "x" * 300_000})
        writer = await _stalled_client(provider)
        try:
            counters = provider.counters("all")
            await until(lambda: counters.dropped == 1, "the forced drop")
            appended = provider.stream("all").log.next_ordinal
            assert 0 < counters.records_sent < appended, "back-pressure holds the log's reading"
        finally:
            writer.transport.abort()
            await asyncio.sleep(0)


async def _stalled_client(provider: Provider) -> asyncio.StreamWriter:
    """A client that shakes hands and then reads nothing."""
    url = stream_url(provider)
    _, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(
        f"GET {url.raw_path} HTTP/1.1\r\nHost: {url.host}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    return writer


@pytest.mark.asyncio
async def test_drop_clients_cuts_connections_and_a_token_heals_it() -> None:
    async with Provider(network(), one_stream()) as provider:
        async with connected(provider) as client:
            last = (await client.records(ENTITIES))[-1]
            assert provider.drop_clients("all") == 1
            assert await client.rest() == []
        async with connected(provider, start_from=token(last)) as client:
            await client.silence()


@pytest.mark.asyncio
@pytest.mark.parametrize("deflate", [0, 15])
async def test_permessage_deflate_is_taken_when_offered_and_content_is_the_same(
    deflate: int,
) -> None:
    settings = ProviderSettings(streams=(StreamSettings("all"),))
    async with (
        Provider(network(), settings) as provider,
        connected(provider, compress=deflate) as client,
    ):
        assert bool(client.ws.compress) is bool(deflate)
        assert held(await client.records(ENTITIES)) == truth(provider)


@pytest.mark.asyncio
async def test_frames_of_every_length_class_arrive() -> None:
    async with (
        Provider(network(), one_stream()) as provider,
        connected(provider, start_from="latest") as client,
    ):
        for size in (1, 1000, 70_000):
            provider.update("n0", {"padding": "x" * size})
            frame = await client.frame()
            assert len(frame["log-record-body"]["node"]["padding"]) == size


@pytest.mark.asyncio
async def test_an_unknown_stream_is_404() -> None:
    async with Provider(network(), one_stream()) as provider, aiohttp.ClientSession() as session:
        url = stream_url(provider)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(
                url.with_path("/restconf/data/context/stream-context/available-stream=x")
            )
        assert refused.value.status == 404


@pytest.mark.asyncio
async def test_a_client_that_goes_before_it_is_answered_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Provider(network(), one_stream()) as provider:
        url = stream_url(provider)
        for _ in range(50):
            _, writer = await asyncio.open_connection(url.host, url.port)
            words = f"GET {url.raw_path_qs} HTTP/1.1\r\nHost: x\r\n{_HANDSHAKE}\r\n"
            writer.write(words.encode())
            writer.transport.abort()
            await asyncio.sleep(0.005)
        asked = provider.counters("all").connections
    assert asked
    assert not caplog.records
