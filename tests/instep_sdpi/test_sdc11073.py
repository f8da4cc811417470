"""Against a real provider: stock, and with numbers that are dropped, repeated and swapped. In the
end the store is its MDIB, handle by handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from instep import AlignmentSettings, Consumer, ConsumerSettings
from instep.conformance import RuleStatus, TraceJudge
from instep_sdpi import SdpiSource, read_options
from instep_sdpi.conformance import sdpi_rules
from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep_sdpi.sdc11073_kit import (
    Facts,
    PeerProvider,
    forwarding,
    needs_sdc11073,
    peer_provider,
    stored,
)

pytestmark = [pytest.mark.asyncio, needs_sdc11073]

SETTINGS = ConsumerSettings(
    reconnect_initial_s=0.05,
    reconnect_max_s=0.5,
    poll_state_s=0.5,
    alignment=AlignmentSettings(quiet_s=0.3, unreached_quiet_s=0.5),
)


class Site:
    def __init__(self, provider: PeerProvider, path: Path, /, **options: Any) -> None:
        table = {"provider": provider.xaddr, "listen": "127.0.0.1:0", **options}
        self.provider = provider
        self.url = f"sqlite:///{path}/store.db"
        self.source = SdpiSource(read_options(table, "source"))
        self.judging = TraceJudge(sdpi_rules())
        self.source.record(self.judging.observe)
        self.consumer = Consumer("test", self.source, SqlStore(self.url), SETTINGS)
        self.events: list[tuple[str, str]] = []

    async def listen(self) -> None:
        async for event in self.consumer.events():
            self.events.append((event.kind, event.text))

    async def facts(self) -> Facts:
        reader = sink.reader(self.url)
        try:
            return {entity.key: stored(entity.body) async for entity in reader.entities()}
        finally:
            await reader.close()

    async def until(self, done: Callable[[], bool], within_s: float = 30) -> None:
        async with asyncio.timeout(within_s):
            while not done():
                await asyncio.sleep(0.02)

    async def equals(self, within_s: float = 30) -> None:
        """Wait until it is aligned, and the store is the MDIB."""
        differing: dict[str, Any] = {}
        try:
            async with asyncio.timeout(within_s):
                while True:
                    theirs, ours = await self.provider.facts(), await self.facts()
                    differing = {
                        key: (theirs.get(key), ours.get(key))
                        for key in theirs.keys() | ours.keys()
                        if theirs.get(key) != ours.get(key) and key != "state/CL.mds0"
                    }
                    if self.consumer.health().aligned and not differing:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{differing}, {self.events}") from None

    @property
    def attempt(self) -> int:
        return max((one.attempt for one in self.consumer.health().streams), default=0)


@asynccontextmanager
async def site(provider: PeerProvider, path: Path, /, **options: Any) -> AsyncIterator[Site]:
    made = Site(provider, path, **options)
    listening = asyncio.create_task(made.listen())
    await asyncio.sleep(0)
    async with made.consumer:
        yield made
    await listening


async def test_a_stock_provider_is_followed_through_renewals(tmp_path: Path) -> None:
    async with (
        peer_provider("--period", "0.3", "--max-duration", "3") as provider,
        site(provider, tmp_path) as made,
    ):
        await made.equals()
        await asyncio.sleep(6.5)
        await made.equals()
        assert made.attempt == 1
        assert not made.consumer.health().streams[0].deviations


async def test_the_end_of_the_provider_is_told(tmp_path: Path) -> None:
    async with peer_provider("--period", "0.3") as provider, site(provider, tmp_path) as made:
        await made.equals()
        await provider.stop()
        await made.until(lambda: any("SourceShuttingDown" in text for _, text in made.events))
        await made.until(lambda: not made.consumer.health().streams[0].connected)


async def test_a_subscription_that_expires_silently_is_made_again(tmp_path: Path) -> None:
    async with (
        peer_provider("--period", "0.3", "--max-duration", "3") as provider,
        site(provider, tmp_path, request_timeout_s=1.0) as made,
    ):
        await made.equals()
        provider.pause()
        await made.until(lambda: not made.consumer.health().streams[0].connected)
        provider.go_on()
        await made.until(lambda: made.attempt == 2)
        await made.equals()


async def test_a_provider_that_starts_again_with_another_sequence_is_followed(
    tmp_path: Path,
) -> None:
    async with forwarding() as forwarder, peer_provider("--period", "0.3") as first:
        address = forwarder.address(first.xaddr)
        async with site(first, tmp_path, provider=address) as made:
            await made.equals()
            await first.stop()
            async with peer_provider("--period", "0.3") as second:
                made.provider = second
                forwarder.address(second.xaddr)
                await made.until(lambda: made.attempt >= 2)
                await made.equals()


async def test_a_swap_and_a_repeat_need_no_mdib(tmp_path: Path) -> None:
    faults = ("--seq", "--seq-fault", "dup:6,swap:10")
    async with (
        peer_provider(*faults, "--period", "0.3", "--start-after", "1") as provider,
        site(provider, tmp_path) as made,
    ):
        await made.equals()
        await asyncio.sleep(4)
        await made.equals()
        assert made.attempt == 1
        results = {one.clause.removeprefix("SDPi "): one for one in made.judging.report().results}
        assert results["R0800"].status is RuleStatus.HELD
        assert results["R0802"].status is RuleStatus.HELD
        shown = [one.what.partition(",")[0] for one in results["R0801"].evidence]
        assert shown == ["number 9", "number 11"]


async def test_a_report_that_is_dropped_leads_to_one_realignment(tmp_path: Path) -> None:
    faults = ("--seq", "--seq-fault", "drop:8")
    async with (
        peer_provider(*faults, "--period", "0.6", "--start-after", "1") as provider,
        site(provider, tmp_path) as made,
    ):
        await made.until(lambda: made.attempt == 2)
        await made.equals()
        assert made.attempt == 2
        broken = made.judging.report().results[1]
        assert [one.what.partition(",")[0] for one in broken.evidence] == ["number 7", "number 9"]
