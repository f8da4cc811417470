"""What a consumer does when the connection is lost, by TR-548 ST-0.6 to ST-0.9, with real peers."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from instep import Phase
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from instep_tapi_provider.clock import ScaledClock
from tests.end_to_end.site_kit import network, provider, site, until

pytestmark = pytest.mark.asyncio


async def test_st_0_7_a_short_loss_resumes_by_token_and_reads_nothing_again(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        sent = here.provider.counters("all").records_sent
        here.provider.drop_clients()
        here.provider.update("n1", {"operational-state": "DISABLED"})
        await here.equal()
        counters = here.provider.counters("all")
        assert counters.records_sent == sent + 1
        assert counters.resumes_by_token == 1
        assert counters.restarts_from_oldest == 0
        assert here.attempt(consumer) == 1


async def test_fifty_records_sent_again_open_no_attempt(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        here.provider.set_faults(rewind_records=50)
        sent = here.provider.counters("all").records_sent
        here.provider.drop_clients()
        await until(lambda: here.provider.counters("all").records_sent >= sent + 50, "the rewind")
        here.provider.update("n1", {"operational-state": "DISABLED"})
        await here.equal()
        assert here.attempt(consumer) == 1
        # The probe, which reads one record.
        assert here.provider.counters("all").starts_from_oldest == 2


@pytest.mark.parametrize("how", [{"refuse_second": 409}, {"displace_first": True}])
async def test_a2_a_provider_of_one_connection_is_probed_once(
    tmp_path: Path, how: dict[str, object]
) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        here.provider.set_faults(rewind_records=50, **how)
        for state in ("DISABLED", "ENABLED", "DISABLED"):
            here.provider.drop_clients()
            here.provider.update("n1", {"operational-state": state})
            await here.equal()
            await consumer.aligned(30)
        (stream,) = consumer.health().streams
        assert stream.deviations["second-connection-refused"] == 1


async def test_a21_a_stream_that_is_restarted_without_closing_is_found(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        here.provider.set_faults(restarts_open=1)
        here.provider.update("n1", {"operational-state": "DISABLED"})
        await until(lambda: here.attempt(consumer) == 2, "the attempt")
        await here.equal()


async def test_a_restart_from_the_oldest_opens_one_attempt_and_sweeps_once(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        here.provider.set_faults(expire_tokens=True)
        here.provider.drop_clients()
        await until(lambda: here.attempt(consumer) == 2, "the attempt")
        here.provider.set_faults(expire_tokens=False)
        await consumer.aligned(30)
        await here.equal()
        here.provider.drop_clients()
        here.provider.update("n1", {"operational-state": "DISABLED"})
        await here.equal()
        assert here.attempt(consumer) == 2


async def test_st_0_8_after_a_long_loss_phantoms_are_swept(tmp_path: Path) -> None:
    served = provider(compaction_delay_s=0.2, tombstone_retention_s=1.0)
    async with site(served, tmp_path) as here:
        async with here.consumer() as consumer:
            await consumer.aligned(30)
        for key in ("n3", "n4p1", "n5p2"):
            served.delete(key)
        served.update("n0", {"operational-state": "DISABLED"})
        # Longer than the tombstones are kept.
        await asyncio.sleep(1.6)
        assert "n3" in await here.store()
        async with here.consumer() as consumer:
            await consumer.aligned(30)
            await here.equal()
            assert here.attempt(consumer) == 2


def old_provider() -> Provider:
    """Its log is eight hours old, so that none of its tokens is resumed from."""
    age_s = [8 * 3600.0]
    clock = ScaledClock(now=lambda: time.time() - age_s[0])
    served = Provider(network(), ProviderSettings(streams=(StreamSettings("all"),)), clock=clock)
    age_s[0] = 0.0
    return served


async def test_st_0_3_6_closed_part_way_through_an_old_log_is_told_and_spaced(
    tmp_path: Path,
) -> None:
    """Every reading ends after the same fifty records; the provider restarts us each time."""
    served = old_provider()
    served.set_faults(drop_after_records=50)
    async with site(served, tmp_path) as here, here.consumer() as consumer:
        events = consumer.events()
        async with asyncio.timeout(30):
            kinds: list[str] = []
            async for event in events:
                kinds.append(event.kind)
                if event.kind == "no-progress":
                    break
        assert "came no further; the last read 50 records of attempt" in event.text
        assert re.search(r" s: \S", event.text), "it does not say how the last one ended"
        # One connection an attempt, and at most one probe; none of them is healthy.
        counters = here.provider.counters("all")
        lost = kinds.count("disconnected")
        assert lost <= counters.connections <= 2 * lost
        assert counters.restarts_from_oldest <= 3
        [stream] = consumer.health().streams
        assert stream.no_progress == event.text
        assert stream.attempts_without_alignment == stream.attempt > 2
        here.provider.set_faults(drop_after_records=None)
        await consumer.aligned(30)
        await here.equal()
        [stream] = consumer.health().streams
        assert (stream.no_progress, stream.attempts_without_alignment) == ("", 0)


async def test_st_0_7_an_idle_stream_costs_one_reading_at_a_reconnection(tmp_path: Path) -> None:
    """Its last record is older than any token that the provider resumes from."""
    async with site(old_provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        for drops in range(1, 4):
            here.provider.drop_clients()
            await until(lambda: here.attempt(consumer) == drops + 1, "the attempt")  # noqa: B023
            await consumer.aligned(30)
            assert here.provider.counters("all").connections == drops + 1
            assert here.provider.counters("all").records_sent == (drops + 1) * 302
        await here.equal()


async def test_a_quiet_network_comes_to_its_sweep(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here:
        async with here.consumer() as consumer:
            await consumer.aligned(30)
        here.provider.set_faults(quiet=True, expire_tokens=True)
        async with here.consumer() as consumer:
            await until(lambda: here.attempt(consumer) == 2, "the attempt")
            await consumer.aligned(30)
            assert consumer.health().streams[0].phase is Phase.ALIGNED


async def test_st_1_3_a_lost_log_is_another_lineage(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        here.provider.delete("n7")
        await here.equal()
        here.provider.forget_log()
        here.provider.drop_clients()
        await until(lambda: here.attempt(consumer) == 2, "the attempt")
        await consumer.aligned(30)
        await here.equal()


async def test_st_1_3_a_restart_with_its_log_resumes(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        await here.provider.restart(keep_log=True, down_s=0.3)
        here.provider.update("n1", {"operational-state": "DISABLED"})
        await here.equal()
        assert here.attempt(consumer) == 1


async def test_st_1_2_losses_that_the_provider_repairs_arrive(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        here.provider.lose_changes("all")
        here.provider.delete("n1")
        here.provider.update("n2", {"operational-state": "DISABLED"})
        here.provider.recover("all")
        await here.equal()
        assert here.attempt(consumer) == 1


async def test_a_refused_token_leads_to_the_oldest(tmp_path: Path) -> None:
    async with site(provider(), tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        here.provider.set_faults(refuse_tokens=410)
        here.provider.delete("n2")
        here.provider.drop_clients()
        await until(lambda: here.attempt(consumer) == 2, "the attempt")
        await consumer.aligned(30)
        await here.equal()


async def test_a_storm_with_cut_connections_ends_equal(tmp_path: Path) -> None:
    served = provider(partitions=3)
    async with site(served, tmp_path) as here, here.consumer() as consumer:
        await consumer.aligned(30)
        served.set_faults(drop_probability=0.1, duplicate_every=7, shuffle_partitions=True)
        await served.start_storm(300)
        await asyncio.sleep(3)
        await served.stop_storm()
        served.set_faults(drop_probability=0.0)
        # Records come again at each reconnection: within a minute the doubt opens an attempt (A2).
        await here.equal()
