"""Discovery goes on: a stream that was not offered at the start is followed when it is (3.6.7)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from instep import Consumer
from instep_sql import SqlStore
from instep_tapi.facts.names import StreamState
from instep_tapi.plugin import source
from instep_tapi_provider import DiscoveryStyle, Provider, ProviderSettings
from tests.end_to_end.site_kit import QUICK, network, site, until

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("protocol", ["websockets", "sse"])
async def test_3_6_7_a_stream_that_is_offered_later_is_aligned_too(
    protocol: str, tmp_path: Path
) -> None:
    settings = ProviderSettings(discovery=DiscoveryStyle(protocol=protocol), comment_every_s=0.1)
    often = msgspec.structs.replace(QUICK, discover_every_s=0.1)
    served = Provider(network(6, 3), settings)
    async with site(served, tmp_path) as here:
        served.pause("alarms", StreamState.TERMINATED)
        served.raise_alarm("n1")
        built = source.build({"endpoints": [served.url]}, "test")
        async with Consumer("test", built, SqlStore(here.url), often) as consumer:
            await consumer.aligned(30)
            assert [one.stream for one in consumer.health().streams] == ["network"]
            served.activate("alarms")
            await until(lambda: len(consumer.health().streams) == 2, "the stream is found")
            await consumer.aligned(30)
            await here.equal("alarms")
            await here.equal("network")
            assert served.counters("network").connections == 1
