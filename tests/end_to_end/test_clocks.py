"""Provider and consumer whose clocks differ, and are set while they run: equal at the end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from instep import Consumer, Environment, Phase
from instep_sql import SqlStore
from instep_sql.plugin import sink
from instep_tapi.plugin import source
from instep_tapi.provider import Provider, ProviderSettings, StreamSettings
from instep_tapi.provider.clock import ScaledClock
from instep_tapi.wire.names import LogStorageStrategy
from tests.end_to_end.site_kit import QUICK, Site, network, until

pytestmark = pytest.mark.asyncio

SKEWS_S = (0.5, -0.5, 5.0, -5.0, 3600.0, -3600.0)
MODES: dict[str, dict[str, Any]] = {
    "compacted": {},
    "emulated": {"emulated": True},
    "full-history": {"storage": LogStorageStrategy.FULL_HISTORY},
    "truncated": {"storage": LogStorageStrategy.TRUNCATED},
}


class Clock:
    """Wall time, set wrong by `skew_s`."""

    def __init__(self, skew_s: float = 0.0) -> None:
        self.skew_s = skew_s

    def __call__(self) -> float:
        return time.time() + self.skew_s


@pytest.mark.parametrize("mode", MODES)
async def test_a5_clocks_that_differ_and_are_set_change_nothing(tmp_path: Path, mode: str) -> None:
    async with asyncio.TaskGroup() as group:
        for number, skew_s in enumerate(SKEWS_S):
            folder = tmp_path / str(number)
            folder.mkdir()
            group.create_task(follow(folder, mode, skew_s), name=f"{mode} {skew_s:+} s")


async def follow(folder: Path, mode: str, skew_s: float) -> None:
    theirs, ours = Clock(skew_s), Clock()
    settings = ProviderSettings(streams=(StreamSettings("all", **MODES[mode]),))
    provider = Provider(network(6, 4), settings, clock=ScaledClock(now=theirs))
    async with provider:
        here = Site(provider, folder)
        built = source.build({"endpoints": [provider.url]}, "test")
        store = SqlStore(here.url, journal="changes")
        async with Consumer(
            "test", built, store, QUICK, environment=Environment(now=ours)
        ) as consumer:
            await consumer.aligned(60)
            await here.equal()
            # Ours is set while an end and a change are under way, theirs while we are away.
            provider.delete("n1p1")
            ours.skew_s += skew_s
            provider.update("n2", {"operational-state": "DISABLED"})
            await here.equal()
            provider.drop_clients()
            theirs.skew_s += skew_s
            provider.update("n3", {"operational-state": "DISABLED"})
            provider.delete("n4p2")
            await here.equal()
            # An attempt, by a restart from the oldest record.
            before = here.attempt(consumer)
            provider.set_faults(expire_tokens=True)
            provider.drop_clients()
            await until(lambda: here.attempt(consumer) > before, "the attempt")
            provider.set_faults(expire_tokens=False)
            provider.update("n5", {"operational-state": "DISABLED"})
            await consumer.aligned(60)
            await here.equal()
            [stream] = consumer.health().streams
            assert stream.phase is Phase.ALIGNED
            alive = here.truth()
        reader = sink.reader(here.url)
        try:
            ended = {one.key async for one in reader.changes() if one.change == "deleted"}
        finally:
            await reader.close()
        assert ended
        assert not ended & alive.keys()
