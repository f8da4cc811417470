"""What subscribers of one reader cost: processor time, idle and under a storm.

    python -m bench.subscribers [--seconds 5] [--database postgresql]

The store is in another process, which commits; here is only the reader.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from instep.model.batches import Batch
from instep.model.position import Position
from instep.model.records import Record, RecordType
from instep.model.streams import StreamInfo
from instep_sql import SqlStore
from tests.crash.site_kit import store_url

COUNTS = (1, 100, 1_000)
A_SECOND = 20
"""Commits a second, of five changes each."""


async def write(url: str) -> None:
    """Commit changes until killed."""
    async with SqlStore(url, journal="bodies") as store:
        await store.open("bench")
        before = await store.position(StreamInfo(id="s", origin="bench", kind="bench"))
        while True:
            at = before.ordinal + 1
            records = [
                Record("s", f"k{n}", RecordType.CREATE_UPDATE, f"t{at}", at, body=b"{}" + b" " * at)
                for n in range(5)
            ]
            position = Position(token=f"t{at}", ordinal=at, attempt=1, lineage=1)
            await store.commit(
                Batch(
                    stream="s",
                    records=records,
                    position=position,
                    expects_ordinal=before.ordinal,
                )
            )
            before = position
            await asyncio.sleep(1 / A_SECOND)


async def measure(url: str, subscribers: int, seconds: float) -> tuple[float, int]:
    """Processor seconds a second, and how many changes all of them were given."""
    given = 0

    async def follow(cursor: int) -> None:
        nonlocal given
        async for batch in store.reader.subscribe(cursor):
            given += len(batch)

    async with SqlStore(url) as store:
        cursor = await store.reader.newest_cursor()
        tasks = [asyncio.ensure_future(follow(cursor)) for _ in range(subscribers)]
        # Each reads first what there was; under a storm it takes a while until all are at the tail.
        await asyncio.sleep(2 + subscribers / 30)
        given = 0
        begun, used = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        share = (time.process_time() - used) / (time.monotonic() - begun)
        for task in tasks:
            task.cancel()
        return share, given


async def main(database: str, seconds: float) -> None:
    with store_url(database) as url:
        async with SqlStore(url, journal="bodies") as store:
            await store.open("bench")
            info = StreamInfo(id="s", origin="bench", kind="bench")
            await store.position(info)
        for storm in (False, True):
            writer = None
            if storm:
                command = (sys.executable, "-m", "bench.subscribers", "--write", url)
                writer = await asyncio.create_subprocess_exec(*command)
            for count in COUNTS:
                share, given = await measure(url, count, seconds)
                rate = given / seconds / count
                name = f"{database}, {'storm' if storm else 'idle'}"
                print(f"{name}: {count} subscribers, {share:.3f} s/s, {rate:.0f} changes/s each")
            if writer is not None:
                writer.kill()
                await writer.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--database", default="sqlite", choices=["sqlite", "postgresql"])
    parser.add_argument("--write", metavar="URL")
    options = parser.parse_args()
    if options.write:
        asyncio.run(write(options.write))
    else:
        asyncio.run(main(options.database, options.seconds))
