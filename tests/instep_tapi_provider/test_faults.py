"""Each fault, as a client sees it."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from instep.errors import ConfigurationError
from instep_tapi_provider import Faults, Provider
from tests.instep_tapi_provider.client_kit import (
    connected,
    held,
    key,
    network,
    one_stream,
    token,
    truth,
)

ENTITIES = 11


@pytest.mark.asyncio
async def test_drop_after_records_cuts_after_exactly_so_many_on_each_connection() -> None:
    async with Provider(network(), one_stream(), faults=Faults(drop_after_records=4)) as provider:
        records: list[dict[str, Any]] = []
        last = None
        for _ in range(2):
            async with connected(provider, start_from=last) as client:
                records += await client.rest()
            last = token(records[-1])
        assert len(records) == 8
        async with connected(provider, start_from=last) as client:
            records += await client.records(ENTITIES - 8)
        assert held(records) == truth(provider)


@pytest.mark.asyncio
async def test_drop_probability_cuts_sooner_or_later() -> None:
    async with (
        Provider(network(), one_stream(), faults=Faults(drop_probability=1.0)) as provider,
        connected(provider) as client,
    ):
        assert await client.rest() == []


@pytest.mark.asyncio
async def test_handshake_status_refuses_the_handshake() -> None:
    async with Provider(network(), one_stream(), faults=Faults(handshake_status=503)) as provider:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with connected(provider):
                pass
        assert refused.value.status == 503
        assert provider.counters("all").refused == 1


@pytest.mark.asyncio
async def test_refuse_tokens_refuses_only_handshakes_with_a_token() -> None:
    async with Provider(network(), one_stream(), faults=Faults(refuse_tokens=410)) as provider:
        async with connected(provider) as client:
            last = (await client.records(ENTITIES))[-1]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with connected(provider, start_from=token(last)):
                pass
        assert refused.value.status == 410


@pytest.mark.asyncio
async def test_rewind_sends_the_last_records_again_and_then_goes_on() -> None:
    async with Provider(network(), one_stream(), faults=Faults(rewind_records=3)) as provider:
        async with connected(provider) as client:
            records = await client.records(ENTITIES)
        provider.update("n0", {"operational-state": "DISABLED"})
        async with connected(provider, start_from=token(records[-1])) as client:
            again = await client.records(4)
        assert again[:3] == records[-3:]
        assert key(again[3]) == "n0"
        assert provider.counters("all").restarts_from_oldest == 0


@pytest.mark.asyncio
async def test_expire_tokens_restarts_from_the_oldest() -> None:
    async with Provider(network(), one_stream(), faults=Faults(expire_tokens=True)) as provider:
        async with connected(provider) as client:
            last = (await client.records(ENTITIES))[-1]
        async with connected(provider, start_from=token(last)) as client:
            assert key(await client.frame()) == "ctx"
        assert provider.counters("all").restarts_from_oldest == 1


@pytest.mark.asyncio
async def test_forget_log_happens_once_at_the_next_connection() -> None:
    async with Provider(network(), one_stream()) as provider:
        async with connected(provider) as client:
            first = await client.records(ENTITIES)
        provider.set_faults(forget_log=True)
        async with connected(provider, start_from=token(first[-1])) as client:
            second = await client.records(ENTITIES)
        assert token(second[0]) != token(first[0])
        assert not provider.faults.forget_log


@pytest.mark.asyncio
async def test_silent_sends_nothing_until_it_ends() -> None:
    async with (
        Provider(network(), one_stream(), faults=Faults(silent=True)) as provider,
        connected(provider) as client,
    ):
        await client.silence()
        provider.set_faults(silent=False)
        assert held(await client.records(ENTITIES)) == truth(provider)


@pytest.mark.asyncio
async def test_a_stall_pauses_once_and_loses_nothing() -> None:
    faults = Faults(stall_after_records=5, stall_s=0.3)
    async with (
        Provider(network(), one_stream(), faults=faults) as provider,
        connected(provider) as client,
    ):
        records = await client.records(5)
        await_first = asyncio.get_running_loop().time()
        records += await client.records(ENTITIES - 5)
        assert asyncio.get_running_loop().time() - await_first >= 0.2
        assert held(records) == truth(provider)


@pytest.mark.asyncio
async def test_malformed_records_are_no_json_and_the_rest_is_whole() -> None:
    async with (
        Provider(network(), one_stream(), faults=Faults(malformed_every=4)) as provider,
        connected(provider) as client,
    ):
        broken = []
        for number in range(1, ENTITIES + 1):
            message = await client.message()
            try:
                json.loads(message.data)
            except json.JSONDecodeError:
                broken.append(number)
        assert broken == [4, 8]


@pytest.mark.asyncio
async def test_duplicates_come_twice() -> None:
    async with (
        Provider(network(), one_stream(), faults=Faults(duplicate_every=5)) as provider,
        connected(provider) as client,
    ):
        tokens = [token(r) for r in await client.records(ENTITIES + 2)]
        assert len(set(tokens)) == ENTITIES
        assert tokens[4] == tokens[5]


@pytest.mark.asyncio
async def test_oversized_frames_have_the_size_asked_for() -> None:
    faults = Faults(oversized_every=3, oversized_bytes=1_000_000)
    async with (
        Provider(network(), one_stream(), faults=faults) as provider,
        connected(provider) as client,
    ):
        sizes = [len((await client.message()).data) for _ in range(4)]
        assert sizes[2] == 1_000_000
        assert max(sizes[:2]) < 10_000


@pytest.mark.asyncio
async def test_shuffled_partitions_keep_order_within_each_and_lose_nothing_on_resume() -> None:
    settings = one_stream(partitions=3)
    faults = Faults(shuffle_partitions=True, drop_after_records=40)
    async with Provider(network(50, 1), settings, faults=faults) as provider:
        async with connected(provider) as client:
            got = await client.rest()
        provider.set_faults(drop_after_records=None)
        async with connected(provider, start_from=token(got[-1])) as client:
            while held(got) != truth(provider):
                got.append(await client.frame())
        places = [
            tuple(int(o["value"]) for o in r["log-record-header"]["full-log-record-offset-id"])
            for r in got[:40]
        ]
        assert [p for p, _ in places] != [
            r.partition for r in provider.stream("all").log.read(0, 40)
        ], "out of the order of appending"
        for partition in range(3):
            offsets = [offset for p, offset in places if p == partition]
            assert offsets == sorted(offsets)


@pytest.mark.asyncio
async def test_delay_per_frame_slows_and_loses_nothing() -> None:
    async with (
        Provider(network(), one_stream(), faults=Faults(delay_per_frame_s=0.005)) as provider,
        connected(provider) as client,
    ):
        assert held(await client.records(ENTITIES)) == truth(provider)


def test_faults_are_set_by_name_all_or_none() -> None:
    faults = Faults()
    faults.set(rewind_records=5, stall_s=1, drop_after_records=None, silent=True)
    assert (faults.rewind_records, faults.stall_s, faults.silent) == (5, 1, True)
    with pytest.raises(ConfigurationError, match="no fault named 'nope'"):
        faults.set(silent=False, nope=1)
    for wrong in ({"silent": 1}, {"rewind_records": "3"}, {"rewind_records": True}):
        with pytest.raises(ConfigurationError, match="cannot be"):
            faults.set(**wrong)
    assert faults.silent
