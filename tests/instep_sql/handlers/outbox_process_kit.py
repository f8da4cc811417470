"""Commits nodes with a handler that writes an outbox, until it is killed.

python -m tests.instep_sql.handlers.outbox_process_kit URL sync|async
"""

from __future__ import annotations

import asyncio
import sys

from sqlalchemy import Connection, text

from instep import Change
from instep.model.batches import Batch
from instep.model.position import Position
from instep.ports.message_store import HandlerConnection
from instep_sql import ChangeHandler, SqlStore
from tests.instep_sql.references.references_kit import statement
from tests.instep_sql.store_kit import stream_info

INSERT = "INSERT INTO outbox (cursor, key) VALUES (:cursor, :key)"


def handle(change: Change, connection: Connection) -> None:
    connection.execute(text(INSERT), {"cursor": change.cursor, "key": change.key})


async def handle_in_loop(change: Change, connection: HandlerConnection) -> None:
    await connection.execute(INSERT, {"cursor": change.cursor, "key": change.key})


async def main(url: str, kind: str) -> None:
    handler = ChangeHandler(handle if kind == "sync" else handle_in_loop, name="outbox")
    async with SqlStore(url, journal="bodies", handlers=[handler]) as store:
        await store.open("east")
        position = await store.position(stream_info("nodes"))
        print("ready", flush=True)
        while True:
            at = position.ordinal + 1
            records = [
                statement("nodes", f"n{n}", "NODE", {"at": at, "n": n}, at=at) for n in range(5)
            ]
            after = Position(token=f"t{at}", ordinal=at, attempt=1, lineage=1)
            await store.commit(
                Batch(
                    stream="nodes",
                    records=records,
                    position=after,
                    expects_ordinal=position.ordinal,
                )
            )
            position = after


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
