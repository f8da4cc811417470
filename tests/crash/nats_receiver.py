"""The receiver that `tests.crash.nats` kills: `python -m tests.crash.nats_receiver DB URL`.

Its handler writes to a table of the user's, in the transaction that marks the message delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
from pathlib import Path

from instep import HandlerConnection, Message, Receiver
from instep_nats import read_options
from instep_nats.plugin import listener
from instep_sql import SqlStore

TABLE = "effect"
_INSERT = f"INSERT INTO {TABLE} (sender, number) VALUES (:sender, :number)"


async def handle(message: Message, connection: HandlerConnection) -> None:
    await connection.execute(_INSERT, json.loads(message.body))


async def main(store: str, url: str) -> None:
    with contextlib.closing(sqlite3.connect(store, timeout=30)) as raw, raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (place INTEGER PRIMARY KEY AUTOINCREMENT,"
            " sender INTEGER NOT NULL, number INTEGER NOT NULL)"
        )
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    Path(f"{store}.ready").touch()
    table = {
        "servers": url,
        "stream": "CRASH",
        "number": "member:number",
        "ack_wait_s": 1.0,
        "reconnect_initial_s": 0.05,
        "reconnect_max_s": 0.2,
        "retry_s": 0.1,
    }
    one = listener(read_options(table, "crash"), "crash")
    async with Receiver("crash", one, SqlStore(f"sqlite:///{store}"), handler=handle) as it:
        ended = asyncio.ensure_future(it.wait())
        await asyncio.wait(
            {ended, asyncio.ensure_future(stopped.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        if ended.done():
            ended.result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
