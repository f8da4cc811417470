"""The receiver that `tests.crash.wsrm` and `tests.crash.wsr` kill: `python -m
tests.crash.soap_receiver KIND DB URL`.

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
from instep_wsr import WsrListener
from instep_wsr import read_options as read_wsr
from instep_wsrm import WsrmListener
from instep_wsrm import read_options as read_wsrm

TABLE = "effect"
_INSERT = f"INSERT INTO {TABLE} (sender, number) VALUES (:sender, :number)"


async def handle(message: Message, connection: HandlerConnection) -> None:
    body = etree.fromstring(message.body)
    values = {"sender": int(body.get("sender", "")), "number": int(body.get("number", ""))}
    await connection.execute(_INSERT, values)


def listener(kind: str, url: str) -> WsrListener | WsrmListener:
    if kind == "wsr":
        return WsrListener(read_wsr({"listen": url}, "crash"))
    # A machine that stands still for a while is not what makes a sequence fail here.
    options = {"listen": url, "sequence": {"gap_deadline_s": 3600.0}}
    return WsrmListener(read_wsrm(options, "crash"))


async def main(kind: str, store: str, url: str) -> None:
    with contextlib.closing(sqlite3.connect(store, timeout=30)) as raw, raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (place INTEGER PRIMARY KEY AUTOINCREMENT,"
            " sender INTEGER NOT NULL, number INTEGER NOT NULL)"
        )
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    sink = SqlStore(f"sqlite:///{store}")
    async with Receiver("crash", listener(kind, url), sink, handler=handle) as it:
        ended = asyncio.ensure_future(it.wait())
        await asyncio.wait(
            {ended, asyncio.ensure_future(stopped.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        if ended.done():
            ended.result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
