"""What the storage strategies send, read over a real stream."""

import pytest

from instep_tapi.facts.names import LogStorageStrategy
from instep_tapi_provider import Provider
from tests.instep_tapi_provider.client_kit import (
    connected,
    held,
    key,
    network,
    one_stream,
    token,
    truth,
)

ENTITIES = 11  # context, topology, 3 nodes, 6 ports


@pytest.mark.asyncio
async def test_3_19_2_emulated_compaction_sends_state_first_and_resumes_after_it() -> None:
    settings = one_stream(emulated=True, retention_s=60)
    async with Provider(network(), settings) as provider:
        provider.update("n0", {"operational-state": "DISABLED"})
        provider.delete("n1")
        async with connected(provider) as client:
            records = await client.records(ENTITIES - 3)
            assert held(records) == truth(provider)
            assert key(records[-1]) == "n0", "what changed last comes last"
        # In the middle of current state, a token is no place to go on from.
        async with connected(provider, start_from=token(records[3])) as client:
            assert held(await client.records(ENTITIES - 3)) == truth(provider)
        provider.update("n2", {"operational-state": "DISABLED"})
        async with connected(provider, start_from=token(records[-1])) as client:
            assert key(await client.frame()) == "n2"
            await client.silence()
        counters = provider.counters("all")
        assert (counters.restarts_from_oldest, counters.resumes_by_token) == (1, 1)


@pytest.mark.asyncio
async def test_what_was_updated_while_nobody_read_is_still_current_state() -> None:
    async with Provider(network(), one_stream(emulated=True, retention_s=60)) as provider:
        provider.lose_changes("all")
        provider.update("n0", {})
        assert provider.recover("all") == 0
        async with connected(provider) as client:
            assert held(await client.records(ENTITIES)) == truth(provider)


@pytest.mark.asyncio
async def test_3_8_1_2_a_truncated_log_gives_recent_changes_only() -> None:
    settings = one_stream(storage=LogStorageStrategy.TRUNCATED, retention_records=4)
    async with Provider(network(), settings) as provider, connected(provider) as client:
        assert len(held(await client.records(4))) == 4
        await client.silence()


@pytest.mark.asyncio
async def test_partitions_have_their_own_offsets() -> None:
    async with (
        Provider(network(10), one_stream(partitions=3)) as provider,
        connected(provider) as client,
    ):
        records = await client.records(len(truth(provider)))
        offsets: dict[str, list[int]] = {}
        for record in records:
            place = {
                o["value-name"]: o["value"]
                for o in record["log-record-header"]["full-log-record-offset-id"]
            }
            offsets.setdefault(place["partition"], []).append(int(place["offset"]))
        assert len(offsets) == 3
        assert all(counted == list(range(len(counted))) for counted in offsets.values())
