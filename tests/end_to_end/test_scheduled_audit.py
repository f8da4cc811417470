"""The audit that a consumer makes by itself (`audit_share`, A12): what is changed behind its back
is named within one interval, and nothing else ever is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from instep import Consumer, ConsumerEvent
from instep_sql import SqlStore
from instep_tapi.facts.names import LogStorageStrategy
from instep_tapi.plugin import source
from instep_tapi_provider import Provider
from tests.end_to_end.site_kit import QUICK, network, provider, site
from tests.end_to_end.test_audit import STORM_NODES, spoil

pytestmark = pytest.mark.asyncio

EACH_SECOND = msgspec.structs.replace(QUICK, audit_share=3600.0)
DEADLINE_S = 60.0


@contextlib.asynccontextmanager
async def audited(
    served: Provider, url: str, settings: object = EACH_SECOND
) -> AsyncIterator[tuple[Consumer, list[ConsumerEvent]]]:
    """A consumer that audits its stream each second, and its events."""
    told: list[ConsumerEvent] = []

    async def follow() -> None:
        async for event in consumer.events():
            told.append(event)  # noqa: PERF401 - it is read meanwhile

    built = source.build({"endpoints": [served.url]}, "test")
    consumer = Consumer("test", built, SqlStore(url), settings)  # type: ignore[arg-type]
    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    async with consumer:
        await consumer.aligned(DEADLINE_S)
        yield consumer, told
    await asyncio.wait([following], timeout=1)
    following.cancel()


async def passes(consumer: Consumer, count: int) -> None:
    """Wait until so many further audits have ended."""
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(count):
            while (before := age(consumer)) is None:
                await asyncio.sleep(0.05)
            while (now := age(consumer)) is not None and now >= before:
                before = now
                await asyncio.sleep(0.05)


def age(consumer: Consumer) -> float | None:
    return consumer.health().streams[0].audited_age_s


@pytest.mark.parametrize("storage", [LogStorageStrategy.COMPACTED, LogStorageStrategy.TRUNCATED])
async def test_a_changed_row_is_named_and_a_storm_is_not(
    storage: LogStorageStrategy, tmp_path: Path
) -> None:
    served = provider(network(40, 4), storage=storage)
    async with site(served, tmp_path) as here, audited(served, here.url) as (consumer, told):
        await served.start_storm(100, STORM_NODES)
        await passes(consumer, 2)
        assert [one.text for one in told if one.kind == "entities-wrong"] == []
        assert consumer.health().streams[0].wrong == {}
        wrong = spoil(tmp_path)
        await passes(consumer, 2)
        [first, *_] = [one.text for one in told if one.kind == "entities-wrong"]
        assert first.endswith(f"and {len(wrong) - 3} more")
        assert sum(key in first for key in wrong) == 3
        found = consumer.health().streams[0].wrong
        assert found == {"missing": 3, "bogus": 1, "stale": 2}
        await served.stop_storm()
        # Nothing is repaired unasked; once it is, the next pass says so.
        await consumer.audit(repair=True)
        await passes(consumer, 2)
        assert consumer.health().streams[0].wrong == {}
        await here.equal()


async def test_a_provider_of_one_connection_is_audited_no_more(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here:
        here.provider.set_faults(displace_first=True)
        async with audited(here.provider, here.url) as (consumer, _):
            async with asyncio.timeout(DEADLINE_S):
                while not deviations(consumer).get("second-connection-refused"):
                    await asyncio.sleep(0.05)
            await consumer.aligned(DEADLINE_S)
            opened = here.provider.counters("all").connections
            await asyncio.sleep(2)
            assert here.provider.counters("all").connections == opened
            assert age(consumer) is None


def deviations(consumer: Consumer) -> dict[str, int]:
    return consumer.health().streams[0].deviations


async def test_it_is_off_unless_asked_for_and_a_reload_begins_and_ends_it(tmp_path: Path) -> None:
    served = provider()
    async with site(served, tmp_path) as here, audited(served, here.url, QUICK) as (consumer, _):
        await asyncio.sleep(1.5)
        assert age(consumer) is None
        consumer.reconfigure(EACH_SECOND, None, "test")
        await passes(consumer, 1)
        consumer.reconfigure(QUICK, None, "test")
        await asyncio.sleep(1.5)
        at = age(consumer)
        await asyncio.sleep(1.5)
        assert at is not None
        assert (age(consumer) or 0) > at
