"""The destination that `tests.crash.wsrm` kills: `python -m tests.crash.wsrm_receiver DB URL`.

Its handler writes to a table of the user's, in the transaction that marks the message delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import sys

from lxml import etree

from instep import HandlerConnection, Message, Receiver
from instep_sql import SqlStore
from instep_wsrm import WsrmListener, read_options

TABLE = "effect"
_INSERT = f"INSERT INTO {TABLE} (sender, number) VALUES (:sender, :number)"


async def handle(message: Message, connection: HandlerConnection) -> None:
    body = etree.fromstring(message.body)
    values = {"sender": int(body.get("sender", "")), "number": int(body.get("number", ""))}
    await connection.execute(_INSERT, values)


async def main(store: str, url: str) -> None:
    with contextlib.closing(sqlite3.connect(store, timeout=30)) as raw, raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (place INTEGER PRIMARY KEY AUTOINCREMENT,"
            " sender INTEGER NOT NULL, number INTEGER NOT NULL)"
        )
    # A machine that stands still for a while is not what makes a sequence fail here.
    options = {"listen": url, "sequence": {"gap_deadline_s": 3600.0}}
    listener = WsrmListener(read_options(options, "crash"))
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Receiver("crash", listener, SqlStore(f"sqlite:///{store}"), handler=handle) as it:
        ended = asyncio.ensure_future(it.wait())
        await asyncio.wait(
            {ended, asyncio.ensure_future(stopped.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        if ended.done():
            ended.result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
