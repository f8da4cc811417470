"""What the floors that receive messages share: aiohttp, and a SQLite database that is written in
groups. What arrives while a transaction runs is written by the next one, and answered only then.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from aiohttp import web

__all__ = ["GroupCommit", "served"]

_PRAGMAS: Final = """
PRAGMA page_size = 8192;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA cache_size = -131072;
PRAGMA wal_autocheckpoint = 10000;
"""


class GroupCommit:
    """Writes rows in groups.

    Args:
        store: The file.
        schema: Makes the tables.
        write: Writes the rows of a group, within its transaction.
    """

    def __init__(
        self, store: str, schema: str, write: Callable[[sqlite3.Connection, list[Any]], None]
    ) -> None:
        self._db = sqlite3.connect(store, isolation_level=None, check_same_thread=False)
        self._db.executescript(_PRAGMAS + schema)
        self._write = write
        self._rows: list[Any] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._came = asyncio.Event()

    async def add(self, rows: Sequence[Any]) -> None:
        """Return when the rows are durable."""
        self._rows += rows
        durable = asyncio.get_running_loop().create_future()
        self._waiting.append(durable)
        self._came.set()
        await durable

    async def run(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as worker:
            while True:
                await self._came.wait()
                self._came.clear()
                rows, self._rows = self._rows, []
                waiting, self._waiting = self._waiting, []
                await loop.run_in_executor(worker, self.commit, rows)
                for durable in waiting:
                    durable.set_result(None)

    def commit(self, rows: list[Any]) -> None:
        """Write rows in one transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        self._write(self._db, rows)
        self._db.execute("COMMIT")


@contextlib.asynccontextmanager
async def served(
    take: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], group_commit: GroupCommit
) -> AsyncIterator[int]:
    """Receive requests on a free port, which is yielded; at the end of the block, go on until
    SIGTERM.
    """
    runner = web.ServerRunner(web.Server(take, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    writing = asyncio.create_task(group_commit.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, writing.cancel)
    yield runner.addresses[0][1]
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    await runner.cleanup()
