"""Provider and consumer whose clocks differ, and are set while they run: equal at the end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from instep import Consumer, Environment, Phase
from instep_sql import SqlStore
from instep_sql.plugin import sink
from instep_tapi.facts.names import LogStorageStrategy
from instep_tapi.plugin import source
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from instep_tapi_provider.clock import ScaledClock
from tests.end_to_end.site_kit import QUICK, Site, network, until

pytestmark = pytest.mark.asyncio

SKEWS_S = (0.5, -0.5, 5.0, -5.0, 3600.0, -3600.0)
TRUNCATED = LogStorageStrategy.TRUNCATED
NODES, POINTS = frozenset({"TOPOLOGY", "NODE"}), frozenset({"NODE_EDGE_POINT"})
MODES: dict[str, tuple[StreamSettings, ...]] = {
    "compacted": (StreamSettings("all"),),
    "compacted and forgetful": (StreamSettings("all", forgets=True),),
    "emulated": (StreamSettings("all", emulated=True),),
    "full-history": (StreamSettings("all", storage=LogStorageStrategy.FULL_HISTORY),),
    # Read from the oldest record: no resource shows alarms, which it may carry.
    "truncated": (StreamSettings("all", storage=TRUNCATED),),
    # Read from the latest record.
    "truncated and readable": (StreamSettings("all", classes=NODES | POINTS, storage=TRUNCATED),),
    "mixed": (
        StreamSettings("nodes", classes=NODES, storage=TRUNCATED),
        StreamSettings("points", classes=POINTS),
    ),
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


async def equal(here: Site, streams: list[str]) -> None:
    for stream in streams:
        await here.equal(stream)


def attempts(consumer: Consumer) -> list[int]:
    return [one.attempt for one in consumer.health().streams]


async def follow(folder: Path, mode: str, skew_s: float) -> None:
    theirs, ours = Clock(skew_s), Clock()
    settings = ProviderSettings(streams=MODES[mode])
    provider = Provider(network(6, 4), settings, clock=ScaledClock(now=theirs))
    streams = [stream.stream_id for stream in provider.streams]
    async with provider:
        here = Site(provider, folder)
        built = source.build({"endpoints": [provider.url]}, "test")
        store = SqlStore(here.url, journal="changes")
        async with Consumer(
            "test", built, store, QUICK, environment=Environment(now=ours)
        ) as consumer:
            await consumer.aligned(60)
            await equal(here, streams)
            # Ours is set while an end and a change are under way, theirs while we are away.
            provider.delete("n1p1")
            ours.skew_s += skew_s
            provider.update("n2", {"operational-state": "DISABLED"})
            await equal(here, streams)
            provider.drop_clients()
            theirs.skew_s += skew_s
            provider.update("n3", {"operational-state": "DISABLED"})
            provider.delete("n4p2")
            await equal(here, streams)
            # An attempt, by a restart from the oldest record.
            before = attempts(consumer)
            provider.set_faults(expire_tokens=True)
            provider.drop_clients()
            await until(
                lambda: all(
                    now > then for now, then in zip(attempts(consumer), before, strict=True)
                ),
                "the attempts",
            )
            provider.set_faults(expire_tokens=False)
            provider.update("n5", {"operational-state": "DISABLED"})
            await consumer.aligned(60)
            await equal(here, streams)
            assert {one.phase for one in consumer.health().streams} == {Phase.ALIGNED}
            alive = {key for stream in streams for key in here.truth(stream)}
        reader = sink.reader(here.url)
        try:
            ended = {one.key async for one in reader.changes() if one.change == "deleted"}
        finally:
            await reader.close()
        assert ended
        assert not ended & alive
