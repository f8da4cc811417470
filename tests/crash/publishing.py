"""Kills a writer with an outbox, the relay of the outbox, and a publisher, round after round.

What is held against the journal, which the writer commits with its entities:

- The outbox misses nothing and holds nothing twice; what the relay published misses nothing, and
  holds one event again for each kill of the relay at most.
- What the publisher brought misses nothing, and a batch again for each kill at most.
- Both tell in the order of the commits, so that the order of each key is kept.

Run by hand for many rounds, on both databases: `make outbox ROUNDS=100`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from aiohttp import web
from sqlalchemy import create_engine, text

from tests.crash.publishing_kit import KEYS, OUTBOX, alchemy_url
from tests.crash.site_kit import INSTEP, store_url

BATCH = 20
CONFIG = """
[[publishers]]
name = "bus"
store = "{store}"
batch_changes = {batch}
target = {{ kind = "http", url = "{url}" }}
"""
ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = (sys.executable, "-m", "tests.crash.publishing_kit")


@dataclass
class Report:
    """What came of it; `faults` must be empty."""

    kills: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    again: dict[str, int] = field(default_factory=dict)
    """How many events came again, of the relay and of the publisher."""
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} of the {name}" for name, count in self.kills.items())
        again = ", ".join(f"{count} by the {name}" for name, count in self.again.items())
        return f"{kills} killed; {self.changes:,} changes; again: {again}; faults: {self.faults}"


def check_order(
    name: str, told: Sequence[int], wanted: Sequence[int], *, kills: int, again: int
) -> tuple[int, list[str]]:
    """How many events came again, and what is wrong: the changes `wanted` in their order, of which
    up to `again` come again after each of `kills` kills.
    """
    faults = []
    if missing := sorted({*wanted} - {*told}):
        faults.append(f"{name}: {len(missing)} are missing, the first is {missing[0]}")
    if foreign := sorted({*told} - {*wanted}):
        faults.append(f"{name}: {len(foreign)} were never committed, the first is {foreign[0]}")
    place = {cursor: number for number, cursor in enumerate(wanted)}
    back, newest, before = 0, -1, -1
    for cursor in told:
        at = place.get(cursor, -1)
        if at > newest + 1:
            faults.append(f"{name}: {cursor} came before the one that precedes it")
        if at <= before:
            back += 1
            if before - at + 1 > again:
                faults.append(f"{name}: from {cursor} on {before - at + 1} came again")
        elif at != before + 1:
            faults.append(f"{name}: {cursor} came out of order")
        newest, before = max(newest, at), at
    if back > kills:
        faults.append(f"{name}: went back {back} times after {kills} kills")
    return len(told) - len({*told}), faults


class Site:
    """A store, who writes and reads it, and the receiver of events."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.url, self.folder = url, folder
        self.received: list[int] = []
        self.published = folder / "published.txt"
        self.published.touch()
        self.report = Report()
        self._chance = random.Random(seed)
        self._config = folder / "instep.toml"
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.add_routes([web.post("/events", self._take)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/events"
        self._config.write_text(CONFIG.format(store=self.url, url=url, batch=BATCH))
        engine = create_engine(alchemy_url(self.url))
        OUTBOX.metadata.create_all(engine)
        engine.dispose()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        events = await request.json()
        self.received += [int(event["id"].partition("-")[0]) for event in events]
        return web.Response(status=204)

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A process, which is killed at the end."""
        commands = {
            "writer": (*_PROGRAM, "write", self.url),
            "relay": (*_PROGRAM, "relay", self.url, str(self.published)),
            "publisher": (*INSTEP, "run", str(self._config), "--format", "jsonl"),
        }
        out, err = self.folder / f"{name}.out", self.folder / f"{name}.log"
        with out.open("ab") as told, err.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *commands[name], stdout=told, stderr=log, cwd=ROOT
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def size(self, name: str) -> int:
        """Grows when a process does its work."""
        if name == "publisher":
            return len(self.received)
        return (self.published if name == "relay" else self.folder / "writer.out").stat().st_size

    async def kill_one(self, name: str, rounds: int, until: Sequence[asyncio.Task[None]]) -> None:
        """Start and kill a process, mostly while it works: `rounds` times, and until these end."""
        number = 0
        while number < rounds or not all(one.done() for one in until):
            async with self.running(name) as process:
                if self._chance.random() < 0.9:
                    await self.until(partial(self.has_grown, name, self.size(name)), process)
                await asyncio.sleep(self._chance.uniform(0, 0.15))
            number += 1
            self.report.kills[name] = number

    async def until(
        self, done: Callable[[], bool], process: asyncio.subprocess.Process, timeout_s: float = 900
    ) -> None:
        async with asyncio.timeout(timeout_s):
            while not done():
                if process.returncode is not None:
                    told = [path.read_text()[-2000:] for path in self.folder.glob("*.log")]
                    raise RuntimeError(f"a process has ended by itself: {told}")
                await asyncio.sleep(0.01)

    def has_grown(self, name: str, before: int) -> bool:
        return self.size(name) > before

    def has_told(self, name: str, changes: Sequence[int]) -> bool:
        return {*changes} <= {*self.told(name)}

    def told(self, name: str) -> list[int]:
        """The changes that the relay or the publisher has told of, in their order."""
        if name == "publisher":
            return self.received
        # A line that a kill has cut is a write that was never whole.
        lines = self.published.read_text().splitlines()
        return [int(line.partition(" ")[0]) for line in lines]

    def rows(self, query: str) -> list[tuple[int, str]]:
        engine = create_engine(alchemy_url(self.url))
        with engine.connect() as connection:
            found = [(row[0], row[1]) for row in connection.execute(text(query))]
        engine.dispose()
        return found

    async def finish(self) -> Report:
        """Let relay and publisher bring the rest, and judge."""
        report = self.report
        changes = [
            cursor
            for cursor, _ in self.rows("SELECT cursor, key FROM instep_change ORDER BY cursor")
        ]
        report.changes = len(changes)
        for name in ("relay", "publisher"):
            async with self.running(name) as process:
                await self.until(partial(self.has_told, name, changes), process)
            again = 1 if name == "relay" else BATCH
            kills = report.kills.get(name, 0) + 1
            count, faults = check_order(name, self.told(name), changes, kills=kills, again=again)
            report.again[name] = count
            report.faults += faults
        if len(changes) % KEYS or not changes:
            report.faults.append(f"{len(changes)} changes are no whole commits")
        return report


async def rounds(url: str, count: int, seed: int) -> Report:
    """Kill each of the three at least `count` times, independently of each other."""
    with tempfile.TemporaryDirectory(prefix="instep-publishing-") as folder:
        async with Site(url, Path(folder), seed) as here:
            async with asyncio.TaskGroup() as group:
                names = ("relay", "publisher")
                readers = [group.create_task(here.kill_one(name, count, ())) for name in names]
                # As long as there are others, there is something for them to do.
                group.create_task(here.kill_one("writer", count, readers))
            return await here.finish()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--database", action="append", choices=["sqlite", "postgresql"])
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    good = True
    for database in chosen.database or ["sqlite", "postgresql"]:
        with store_url(database) as url:
            report = asyncio.run(rounds(url, chosen.rounds, chosen.seed))
        print(f"{database}, seed {chosen.seed}: {report}", flush=True)
        good = good and not report.faults
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
