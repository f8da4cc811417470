"""The receiver that `tests.crash.messages` kills: `python -m tests.crash.message_receiver DB URL`.
DB is a file of SQLite, or the URL of a database of PostgreSQL.

Its handler writes to a table of the user's, in the transaction that marks the message delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys

import psycopg

from instep import HandlerConnection, Message, Receiver
from instep_didcomm import DidcommListener, read_options
from instep_sql import SqlStore

PROTOCOL = "https://example.org/crash/1.0"
TABLE = "effect"
_INSERT = f"INSERT INTO {TABLE} (sender, number) VALUES (:sender, :number)"


async def handle(message: Message, connection: HandlerConnection) -> None:
    await connection.execute(_INSERT, json.loads(message.body)["body"])


def make_table(store: str) -> str:
    """Returns the URL of the store."""
    columns = "sender INTEGER NOT NULL, number INTEGER NOT NULL"
    if store.startswith("postgresql:"):
        with psycopg.connect(store) as server:
            server.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (place SERIAL, {columns})".encode())
        return store
    with contextlib.closing(sqlite3.connect(store, timeout=30)) as raw, raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (place INTEGER PRIMARY KEY AUTOINCREMENT,"
            f" {columns})"
        )
    return f"sqlite:///{store}"


async def main(store: str, url: str) -> None:
    store_url = make_table(store)
    options = {
        "listen": url,
        "protocols": [{"type": f"{PROTOCOL}/*", "sequenced": True}],
        # A machine that stands still for a while is not what makes a sequence fail here.
        "sequence": {"gap_deadline_s": 3600.0},
    }
    listener = DidcommListener(read_options(options, "crash"))
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Receiver("crash", listener, SqlStore(store_url), handler=handle) as it:
        ended = asyncio.ensure_future(it.wait())
        await asyncio.wait(
            {ended, asyncio.ensure_future(stopped.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        if ended.done():
            ended.result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
