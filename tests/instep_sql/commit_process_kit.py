"""A process that commits, to be killed: every row of a batch carries the batch's ordinal."""

from __future__ import annotations

import asyncio
import sys

from instep_sql import SqlStore
from tests.instep_sql.store_kit import Stage, create_update, stream_info


async def main(url: str, consumer: str, batches: int) -> None:
    async with SqlStore(url, journal="changes") as store:
        await store.open(consumer)
        at = Stage(store, await store.position(stream_info()))
        print("open", flush=True)
        for _ in range(batches):
            turn = at.position.ordinal + 1
            await at.commit(*[create_update(f"k{n}", turn, b"x" * 500) for n in range(100)])
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
