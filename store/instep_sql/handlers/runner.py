"""Runs the handlers of a store: within its commits, and beside them what these have left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, text

from instep.errors import ConfigurationError, InstepError
from instep_sql import fencing
from instep_sql.engine.database import Database
from instep_sql.engine.dialect import Dialect
from instep_sql.handlers.delivery import deliver
from instep_sql.handlers.handler import ChangeHandler
from instep_sql.options import Journal, SqlOptions

__all__ = ["HandlerRunner"]

_log = logging.getLogger("instep.sql")
_POLL_S: Final = 1.0
"""How often it is looked for changes that another process has committed, for changes to be tried
again, and for what an operator wants.
"""

_MORE: Final = text("""
    SELECT stream_no, max(cursor) AS newest FROM instep_change
    WHERE cursor > :seen GROUP BY stream_no
""")
_DUE: Final = """
    SELECT s.stream FROM instep_stream AS s
    LEFT JOIN instep_handler AS h ON h.stream_no = s.id AND h.name = :name
    WHERE s.consumer = :consumer AND (h.retry_at_us <= :now_us OR s.id IN ({more}) OR EXISTS (
        SELECT 1 FROM instep_failed_change AS f
        WHERE f.name = :name AND f.stream_no = s.id AND f.again = 1))
    ORDER BY s.id
"""
_NO: Final = text("SELECT id FROM instep_stream WHERE consumer = :consumer AND stream = :stream")


class HandlerRunner:
    """The handlers of one store. Without any it does nothing.

    Raises `ConfigurationError` where the journal keeps too little for them, or two have one name.
    """

    def __init__(
        self,
        handlers: Sequence[ChangeHandler],
        database: Database,
        dialect: Dialect,
        options: SqlOptions,
        clock_us: Callable[[], int],
        rng: random.Random,
    ) -> None:
        names = [one.name for one in handlers]
        if len(names) > len(set(names)):
            raise ConfigurationError(
                "two handlers have the same name", where="SqlStore", key="handlers"
            )
        if handlers and options.journal not in (Journal.BODIES, Journal.PREVIOUS):
            raise ConfigurationError(
                "a handler is given the changes that the journal keeps, and it keeps no bodies",
                where="SqlStore",
                key="journal",
                hint='set journal="bodies", or "previous"',
            )
        self.handlers = handlers
        self._database = database
        self._dialect = dialect
        self._clock_us = clock_us
        self._rng = rng
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._due_us: list[int] = []
        """When changes that have failed are due again."""
        self._seen = 0
        """Up to which change it was looked for what is due."""

    def open(self, consumer: str) -> None:
        """Begin to look for what commits have left."""
        if self.handlers and self._task is None:
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._run(consumer), name="instep handlers")

    def deliver(self, connection: Connection, no: int, now_us: int) -> None:
        """Give the handlers what the journal has of a stream that the transaction has locked."""
        for handler in self.handlers:
            assert self._loop is not None
            at_us = deliver(connection, self._dialect, handler, no, self._loop, now_us, self._rng)
            if at_us is not None:
                self._loop.call_soon_threadsafe(self._come_again, at_us)

    def _come_again(self, at_us: int) -> None:
        self._due_us.append(at_us)
        self._wake.set()

    async def close(self) -> None:
        """Stop looking. A handler that runs is waited for when the database is closed."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self, consumer: str) -> None:
        told = ""
        while True:
            try:
                await self._look(consumer)
            except InstepError as error:
                # The store is away, or another process has the lease: look again.
                if str(error) != told and not error.retriable:
                    _log.warning("the handlers wait: %s", error)
                told = str(error)
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the next look, or until something is due before."""
        deadline_us = self._clock_us() + int(_POLL_S * 1e6)
        while (left_us := min([deadline_us, *self._due_us]) - self._clock_us()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_us / 1e6):
                    await self._wake.wait()
        self._due_us.clear()

    async def _look(self, consumer: str) -> None:
        seen = self._seen

        def find(connection: Connection) -> tuple[int, list[tuple[ChangeHandler, str]]]:
            rows = connection.execute(_MORE, {"seen": seen}).all()
            query = text(_DUE.format(more=", ".join(str(row.stream_no) for row in rows) or "NULL"))
            values = {"consumer": consumer, "now_us": self._clock_us()}
            due = [
                (handler, str(stream))
                for handler in self.handlers
                for stream in connection.execute(query, {**values, "name": handler.name}).scalars()
            ]
            return max((row.newest for row in rows), default=seen), due

        newest, due = await self._database.run(find)
        for handler, stream in due:
            await self._catch_up(consumer, handler, stream)
        self._seen = newest

    async def _catch_up(self, consumer: str, handler: ChangeHandler, stream: str) -> None:
        loop = asyncio.get_running_loop()

        def work(connection: Connection) -> bool:
            fencing.lock_stream(connection, consumer, stream)
            no = connection.execute(_NO, {"consumer": consumer, "stream": stream}).scalar_one()
            now_us = self._clock_us()
            at_us = deliver(connection, self._dialect, handler, no, loop, now_us, self._rng)
            if at_us is not None:
                loop.call_soon_threadsafe(self._come_again, at_us)
            return at_us is not None and at_us <= now_us

        while await self._database.run(work):
            pass
