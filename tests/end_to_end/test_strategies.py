"""Every log and record strategy of TR-548 3.8, from the first alignment through a storm."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from instep import Consumer, Phase
from instep.errors import BaselineError, NoStreamError
from instep_sql import SqlStore
from instep_tapi.facts.names import LogRecordStrategy, LogStorageStrategy
from instep_tapi.plugin import source
from tests.end_to_end.site_kit import QUICK, provider, site, until

pytestmark = pytest.mark.asyncio

STRATEGIES: dict[str, dict[str, Any]] = {
    "compacted": {},
    "emulated compaction": {"emulated": True},
    "truncated": {"storage": LogStorageStrategy.TRUNCATED},
    "full history": {"storage": LogStorageStrategy.FULL_HISTORY},
    "periodic": {
        "record_strategy": LogRecordStrategy.WHOLE_ENTITY_PERIODIC,
        "statement_period_s": 0.5,
    },
    "change only": {"record_strategy": LogRecordStrategy.CHANGE_ONLY},
    "change only, truncated": {
        "record_strategy": LogRecordStrategy.CHANGE_ONLY,
        "storage": LogStorageStrategy.TRUNCATED,
    },
}


@pytest.mark.parametrize(("tapi", "partitions"), [("2.1.3", 1), ("2.1.3", 3), ("2.6", 3)])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_aligned_and_kept_aligned(
    strategy: str, tapi: str, partitions: int, tmp_path: Path
) -> None:
    served = provider(tapi=tapi, partitions=partitions, **STRATEGIES[strategy])
    informs = tapi == "2.6"
    async with site(served, tmp_path) as here:
        await served.start_storm(200)
        if informs:
            served.inform("all", "maintenance", {"window": "tonight"})
        async with here.consumer() as consumer:
            await consumer.aligned(30)
            served.raise_alarms(5)
            alarm = served.raise_alarm("n1")
            served.clear_alarm(alarm, tombstone_only=True)
            await asyncio.sleep(0.3)
            served.drop_clients()
            served.delete("n2p1")
            await asyncio.sleep(0.3)
            await served.stop_storm()
            if informs:
                served.inform("all", "maintenance", {"window": "over"})
            await here.equal()
            assert not consumer.health().streams[0].deviations


async def test_a_truncated_log_that_lost_records_of_ours_is_read_anew(tmp_path: Path) -> None:
    served = provider(storage=LogStorageStrategy.TRUNCATED, retention_records=20)
    async with site(served, tmp_path) as here:
        async with here.consumer(streams={"classes": ["NODE"]}) as consumer:
            await consumer.aligned(30)
            served.update("n1", {"operational-state": "DISABLED"})
            await here.equal()
        served.delete("n3")
        for n in range(5, 15):
            for state in ("DISABLED", "ENABLED", "DISABLED"):
                served.update(f"n{n}", {"operational-state": state})
        async with here.consumer() as consumer:
            await here.equal()
            assert here.attempt(consumer) >= 2


async def test_truncated_with_restconf_refused_is_a_clear_error(tmp_path: Path) -> None:
    served = provider(storage=LogStorageStrategy.TRUNCATED)
    served.set_faults(restconf_status=403)
    async with site(served, tmp_path) as here, here.consumer() as consumer:
        with pytest.raises(BaselineError, match="403"):
            await consumer.aligned(30)


async def test_alarms_of_a_truncated_log_are_kept_unproven_when_it_forgot_them(
    tmp_path: Path,
) -> None:
    served = provider(storage=LogStorageStrategy.TRUNCATED, retention_records=30)
    async with site(served, tmp_path) as here:
        kept = served.raise_alarm("n1")
        async with here.consumer() as consumer:
            await consumer.aligned(30)
        for _ in range(40):
            served.update("n2", {"operational-state": "DISABLED"})
            served.update("n2", {"operational-state": "ENABLED"})
        served.update("n2", {"operational-state": "DISABLED"})
        async with here.consumer() as consumer:
            await until(lambda: here.attempt(consumer) == 2, "the attempt")
            await consumer.aligned(30)
            await here.equal()
        assert kept in await here.store()


async def test_a15_4_3_5_what_a_compacted_log_has_forgotten_is_not_swept(tmp_path: Path) -> None:
    """It states a finite record-retention: nothing that lives longer is in it (4.3.5)."""
    times: dict[str, Any] = {
        "compaction_delay_s": 0.2,
        "tombstone_retention_s": 0.5,
        "retention_s": 1.0,
    }
    served = provider(forgets=True, **times)
    async with site(served, tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        await until(lambda: len(served.stream("all").log) == 0, "the log to forget")
        served.update("n1", {"operational-state": "DISABLED"})
        served.delete("n3")
        consumer.realign("all")
        await until(lambda: here.attempt(consumer) >= 2, "the attempt")
        await consumer.aligned(30)
        await here.equal()
        assert len(await here.store()) > 250


async def test_paused_and_aligning_are_not_taken_for_death(tmp_path: Path) -> None:
    alive = {"dead_peer_s": 0.5, "pong_interval_s": 0.1}
    async with site(provider(), tmp_path) as here, here.consumer(**alive) as consumer:
        await consumer.aligned(30)
        here.provider.pause("all")
        here.provider.update("n1", {"operational-state": "DISABLED"})
        await asyncio.sleep(1.5)
        assert consumer.health().streams[0].connected
        assert here.provider.counters("all").connections == 1
        here.provider.activate("all")
        await here.equal()
        assert here.provider.counters("all").connections == 1
        assert consumer.health().streams[0].phase is Phase.ALIGNED


async def test_no_active_stream_is_a_clear_error(tmp_path: Path) -> None:
    only = {"classes": ["OAM_JOB"]}
    async with site(provider(), tmp_path) as here, here.consumer(streams=only) as consumer:
        with pytest.raises(NoStreamError, match="none of the classes"):
            await consumer.aligned(30)


async def test_a_malformed_record_goes_to_quarantine_and_the_stream_goes_on(
    tmp_path: Path,
) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        here.provider.set_faults(malformed_every=1)
        here.provider.update("n1", {"operational-state": "DISABLED"})
        await until(lambda: consumer.health().streams[0].quarantined == 1, "the quarantine")
        here.provider.set_faults(malformed_every=None)
        here.provider.update("n1", {"operational-state": "ENABLED"})
        here.provider.update("n2", {"operational-state": "DISABLED"})
        await here.equal()
        assert consumer.health().streams[0].connected


async def test_a_full_quarantine_is_told_and_stops_nothing(tmp_path: Path) -> None:
    """The oldest records give way: the stream goes on with what can be read (A11)."""
    served = provider()
    served.set_faults(malformed_every=1)
    async with site(served, tmp_path) as here:
        built = source.build({"endpoints": [served.url]}, "test")
        store = SqlStore(here.url, quarantine_max_records=5)
        async with Consumer("test", built, store, QUICK) as consumer:
            await until(lambda: any(one.quarantined > 5 for one in consumer.health().streams), "it")
            served.set_faults(malformed_every=None)
            consumer.realign(consumer.health().streams[0].stream)
            await consumer.aligned(60)
            await here.equal()
            assert not no_progress(consumer)


def no_progress(consumer: Consumer) -> str:
    streams = consumer.health().streams
    return streams[0].no_progress if streams else ""
