"""The source against a real provider: discovery, connection, resumption, and each bad input."""

from __future__ import annotations

import asyncio

import pytest

from instep.errors import TokenRefusedError, UnreachableError
from instep.model.records import Record
from instep.model.streams import Mode, Start, StreamState
from instep_tapi.facts.names import LogRecordStrategy
from instep_tapi_provider import Faults, ProviderSettings, RecordStyle, StreamSettings, Wrapper
from tests.instep_tapi.source_kit import (
    DEADLINE_S,
    TRUNCATED,
    ending,
    one_stream,
    only,
    receive,
    same,
    serving,
)


@pytest.mark.asyncio
async def test_st_0_2_reports_what_the_provider_declares() -> None:
    async with serving() as (provider, source):
        info = await only(source)
        assert (info.id, info.kind, info.mode) == ("network", "tapi", Mode.LOG)
        assert (info.compaction_delay_s, info.tombstone_retention_s) == (600, 4 * 3600)
        assert info.variant == "COMPACTED WHOLE_ENTITY_ON_CHANGE"
        assert (info.partial_updates, info.may_start_with_snapshot) == (False, False)
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
async def test_5_10_1_a_refused_latest_is_an_error_of_the_start_alone() -> None:
    async with serving(faults=Faults(refuse_latest=400)) as (provider, source):
        info = await only(source)
        with pytest.raises(TokenRefusedError, match="latest record: 400"):
            async with source.feed(info, Start.LATEST):
                pass
        async with source.feed(info, Start.OLDEST) as feed:
            assert len(await receive(feed, len(provider.entities("network"))))


@pytest.mark.asyncio
async def test_a_full_buffer_stops_the_provider_and_loses_nothing() -> None:
    style = RecordStyle(wrapper=Wrapper.LIST, records_per_frame=3)
    async with serving(one_stream(style), hold_records=4, batch_records=2) as (provider, source):
        info = await only(source)
        truth = provider.entities("network")
        async with source.feed(info, Start.OLDEST) as feed:
            async with asyncio.timeout(DEADLINE_S):
                while feed._transport.underlying_transport.is_reading():  # type: ignore[attr-defined]
                    await asyncio.sleep(0.01)
            chunk = await feed.receive()
            assert len(chunk.records) == 3
            rest = await receive(feed, len(truth) - 3)
            assert same([*chunk.decode().records, *rest], truth)


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
@pytest.mark.parametrize("compression", [False, True])
async def test_a_message_in_fragments_is_one_message(compression: bool) -> None:
    faults = Faults(fragment_every=3, fragment_pause_s=0.01)
    async with serving(faults=faults, compression=compression) as (provider, source):
        info = await only(source)
        truth = provider.entities("network")
        async with source.feed(info, Start.OLDEST) as feed:
            assert same(await receive(feed, len(truth)), truth)


@pytest.mark.asyncio
async def test_a5_between_two_fragments_a_pong_is_no_sign_of_silence() -> None:
    async with serving(faults=Faults(fragment_every=1, fragment_pause_s=30.0)) as (_, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            await asyncio.sleep(0.1)
            for _ in range(5):
                await feed.ping()
                await asyncio.sleep(0.05)
            assert feed.unheard_s > 0.2


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
        records: list[Record] = []
        async for page in source.baseline(info, 7):
            assert isinstance(page, list)
            records += page
        assert same(records, provider.entities("network"))
        assert {record.token for record in records} == {""}
        assert {record.appended_at_us for record in records} == {7}
        assert all(record.uuid == record.key for record in records)
        async with source.feed(info, Start.OLDEST) as feed:
            assert all(record.uuid for record in await receive(feed, 5))


# --- bad input, each with its message ---------------------------------------------------------


@pytest.mark.asyncio
async def test_a_discovery_after_others_finds_what_is_offered_then() -> None:
    """Most find the same, so what was read of an answer is remembered."""
    async with serving(one_stream()) as (provider, source):
        first = await only(source)
        assert await only(source) is first
        provider.pause("network")
        paused = await only(source)
        assert (first.details["state"], paused.details["state"]) == ("ACTIVE", "PAUSED")
        provider.activate("network")
        assert await only(source) == first
