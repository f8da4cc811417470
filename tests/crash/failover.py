"""Two instances of one provider, each with its own log, clock and stream names; the one in use is
taken away, round after round, while the network storms (TR-548 ST-4.2).

At no moment is an entity missing that the store once held and both have stated since; after each
alignment nothing is held that nobody states; at the end all three are equal.

Run by hand for many rounds: `python -m tests.crash.failover --rounds 50`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import track

from instep import AlignmentSettings, Consumer, ConsumerSettings
from instep_sql import SqlStore
from instep_tapi.plugin import source
from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from instep_tapi_provider.clock import ScaledClock
from tests.end_to_end.site_kit import network

SETTINGS = ConsumerSettings(
    reconnect_initial_s=0.02,
    reconnect_max_s=0.2,
    alignment=AlignmentSettings(quiet_s=0.3, unreached_quiet_s=1.0),
)
TICK_S = 0.01
DEADLINE_S = 60.0
BEHIND_S = 0.4


@dataclass
class Report:
    """What the rounds showed. Every list must be empty."""

    rounds: int = 0
    moves: int = 0
    samples: int = 0
    changes: int = 0
    missing: list[str] = field(default_factory=list)
    phantoms: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    streams: int = 0
    """Rows of streams in the store; there is one stream."""

    @property
    def good(self) -> bool:
        return not (self.missing or self.phantoms or self.differences) and self.streams == 1


class Network:
    """One network, as two instances state it: every change reaches both."""

    def __init__(self, rng: random.Random) -> None:
        behind = ScaledClock(now=lambda: time.time() - BEHIND_S)
        self.instances = (
            Provider(network(), ProviderSettings(streams=(StreamSettings("all"),))),
            Provider(network(), ProviderSettings(streams=(StreamSettings("whole"),)), clock=behind),
        )
        self.changes = 0
        self.ended: dict[str, int] = {}
        """Entity-keys that are no more, and since which change."""
        self._rng = rng
        self._made: list[str] = []

    def truth(self, n: int) -> dict[str, bytes]:
        """Entity-key to body, as an instance states it."""
        provider = self.instances[n]
        [stream] = provider.streams
        return {key: body for key, (_, body) in provider.entities(stream.stream_id).items()}

    def change(self) -> None:
        self.changes += 1
        chance = self._rng.random()
        if chance < 0.15:
            key = f"made-{self.changes}"
            port = {"uuid": key, "operational-state": "ENABLED"}
            for instance in self.instances:
                instance.create(f"n{self.changes % 20}", "owned-node-edge-point", port)
            self._made.append(key)
        elif chance < 0.3 and self._made:
            key = self._made.pop(self._rng.randrange(len(self._made)))
            for instance in self.instances:
                instance.delete(key)
            self.ended[key] = self.changes
        else:
            key = f"n{self._rng.randrange(20)}"
            state = self._rng.choice(("ENABLED", "DISABLED"))
            for instance in self.instances:
                instance.update(key, {"operational-state": state, "x-change": self.changes})

    @contextlib.asynccontextmanager
    async def storm(self) -> AsyncIterator[None]:
        async def blow() -> None:
            while True:
                await asyncio.sleep(TICK_S)
                for _ in range(5):
                    self.change()

        task = asyncio.create_task(blow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Watch:
    """Looks into the store as any reader would, all the time."""

    def __init__(self, file: Path, net: Network, report: Report) -> None:
        self._file, self._net, self._report = file, net, report
        self._held: set[str] = set()

    def bodies(self) -> dict[str, bytes]:
        with contextlib.closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as raw:
            return dict(raw.execute("SELECT key, body FROM instep_entity"))

    def streams(self) -> int:
        with contextlib.closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as raw:
            return int(raw.execute("SELECT count(*) FROM instep_stream").fetchone()[0])

    def look(self) -> None:
        """Check that each entity seen before that has not ended is still in the store."""
        held = set(self.bodies())
        for key in self._held - held - self._net.ended.keys():
            self._report.missing.append(f"round {self._report.rounds}: {key}")
        self._held |= held
        self._report.samples += 1

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(TICK_S)


async def rounds(count: int, *, seed: int, folder: Path, show: bool = False) -> Report:
    """Take away what is in use `count` times, then compare."""
    rng = random.Random(seed)
    report = Report()
    net = Network(rng)
    async with contextlib.AsyncExitStack() as stack:
        for provider in net.instances:
            await stack.enter_async_context(provider)
        urls = [provider.url for provider in net.instances]
        fail_over = {"policy": "round-robin", "leave_after_s": 0.0}
        built = source.build({"endpoints": urls, "fail_over": fail_over}, "failover")
        sink = SqlStore(f"sqlite:///{folder}/store.db")
        consumer = await stack.enter_async_context(Consumer("failover", built, sink, SETTINGS))
        await consumer.aligned(DEADLINE_S)
        watch = Watch(folder / "store.db", net, report)
        watching = asyncio.create_task(watch.run())
        async with net.storm():
            for number in track(range(count), "taking away", disable=not show):
                report.rounds = number + 1
                await _round(consumer, net, rng, report)
                if rng.random() < 0.7:
                    # Else the next one is taken away in the middle of the alignment.
                    known = net.changes
                    await consumer.aligned(DEADLINE_S)
                    held = watch.bodies().keys()
                    report.phantoms += [
                        f"round {report.rounds}: {key}"
                        for key, change in net.ended.items()
                        if change < known - 500 and key in held
                    ]
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        watch.look()
        report.changes, report.streams = net.changes, watch.streams()
        report.differences = await _differences(consumer, net, watch)
    return report


async def _round(consumer: Consumer, net: Network, rng: random.Random, report: Report) -> None:
    left = consumer.health().streams[0].endpoint
    victim = next(provider for provider in net.instances if provider.url == left)
    # Gone for as long as the move takes: one that is back at once is stayed with.
    down = asyncio.create_task(victim.restart(keep_log=rng.random() < 0.5, down_s=2 * DEADLINE_S))
    async with asyncio.timeout(DEADLINE_S):
        async for event in consumer.events():
            if event.kind == "failed-over":
                break
        # The move is reported before the stream has made it.
        while consumer.health().streams[0].endpoint == left:
            await asyncio.sleep(TICK_S)
    report.moves += 1
    await asyncio.sleep(rng.uniform(0.0, 0.3))
    down.cancel()
    await asyncio.gather(down, return_exceptions=True)
    await victim.restart()


async def _differences(consumer: Consumer, net: Network, watch: Watch) -> list[str]:
    await consumer.aligned(DEADLINE_S)
    held: dict[str, bytes] = {}
    for _ in range(int(DEADLINE_S / 0.1)):
        held = watch.bodies()
        if held == net.truth(0) == net.truth(1):
            return []
        await asyncio.sleep(0.1)
    truth = net.truth(0)
    return [key for key in held.keys() | truth.keys() if held.get(key) != truth.get(key)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}")
    with tempfile.TemporaryDirectory(prefix="instep-failover-") as name:
        report = asyncio.run(rounds(chosen.rounds, seed=chosen.seed, folder=Path(name), show=True))
    print(
        f"{report.rounds} rounds, {report.moves} moves under {report.changes:,} changes; "
        f"the store was looked into {report.samples:,} times: missing {len(report.missing)}, "
        f"phantoms {len(report.phantoms)}, differences at the end {len(report.differences)}, "
        f"streams {report.streams}"
    )
    for line in [*report.missing, *report.phantoms, *report.differences][:20]:
        print(line)
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
