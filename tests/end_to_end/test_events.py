"""The same guarantees over server-sent events (TR-548 ST-0.3, 3.7.1)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from instep_tapi.facts.names import LogRecordStrategy, LogStorageStrategy
from instep_tapi_provider import DiscoveryStyle, Provider, ProviderSettings, StreamSettings
from tests.end_to_end.site_kit import network, site

pytestmark = pytest.mark.asyncio

STRATEGIES: dict[str, dict[str, Any]] = {
    "compacted": {},
    "emulated compaction": {"emulated": True},
    "truncated": {"storage": LogStorageStrategy.TRUNCATED},
    "change only": {"record_strategy": LogRecordStrategy.CHANGE_ONLY},
}


def provider(**stream: Any) -> Provider:
    settings = ProviderSettings(
        streams=(StreamSettings("all", **stream),),
        discovery=DiscoveryStyle(protocol="sse"),
        comment_every_s=0.1,
    )
    return Provider(network(8, 4), settings)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_st_0_3_aligned_and_kept_aligned(strategy: str, tmp_path: Path) -> None:
    served = provider(partitions=2, **STRATEGIES[strategy])
    async with site(served, tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        await served.start_storm(100)
        served.set_faults(fragment_every=7, fragment_pause_s=0.01)
        await asyncio.sleep(0.3)
        served.drop_clients()
        served.delete("n2p1")
        served.raise_alarm("n1")
        await asyncio.sleep(0.3)
        await served.stop_storm()
        await here.equal()
        await consumer.aligned(30)
        assert served.counters("all").resumes_by_token >= 1
        assert here.attempt(consumer) == 1


async def test_st_0_8_what_ended_while_we_were_away_is_swept(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here:
        async with here.consumer() as consumer:
            await consumer.aligned(30)
        here.provider.delete("n3")
        here.provider.set_faults(expire_tokens=True)
        async with here.consumer() as consumer:
            await here.equal()
            await consumer.aligned(30)
            assert here.attempt(consumer) == 2
