"""Waits for the notifications that a commit with changes sends (`NOTIFY instep_changes`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import psycopg
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from instep.errors import SinkError
from instep_sql.engine.postgres.session import is_pooled

__all__ = ["PostgresNotifications"]

_CHANNEL: Final = "instep_changes"


class PostgresNotifications:
    """A connection that listens, for all who follow the journal of one reader.

    Notifications are lost with their connection: who waits looks now and then all the same. Behind
    a pooler nothing is listened to: it may pass none on, or pass them to another client.
    """

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self._make_engine = make_engine
        self._connection: psycopg.Connection[Any] | None = None
        self._socket = -1
        """Of the connection: one that is lost does not tell it any more."""
        self._abandoned: asyncio.Future[psycopg.Connection[Any] | None] | None = None
        """Connecting, although who waited for it was cancelled."""
        self._schema = ""
        self._connecting = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._count = 0
        self._pooled = False

    async def wait(self, seen: int, within_s: float) -> int:
        """Wait until there were more notifications than `seen`, at most so long. Returns their
        number. To begin to listen counts as one: what was committed before is to be looked for.
        """
        async with self._connecting:
            if self._connection is None and not self._pooled:
                await self._listen()
        try:
            async with asyncio.timeout(within_s):
                while self._count == seen:
                    await self._arrived.wait()
        except TimeoutError:
            pass
        return self._count

    async def close(self) -> None:
        """Disconnect."""
        self._disconnect()
        abandoned, self._abandoned = self._abandoned, None
        if abandoned is not None:
            # A thread cannot be interrupted, and what it makes is ours.
            await asyncio.wait({abandoned})
            if abandoned.exception() is None and (connection := abandoned.result()) is not None:
                connection.close()

    async def _listen(self) -> None:
        """Connect, and begin to listen. Where that is not possible, it is tried again later."""
        connecting, self._abandoned = self._abandoned, None
        if connecting is None:
            connecting = asyncio.ensure_future(asyncio.to_thread(self._connect))
        try:
            connection = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            self._abandoned = connecting
            raise
        except (psycopg.Error, SQLAlchemyError, SinkError):
            return
        if connection is None:
            self._pooled = True
            return
        try:
            asyncio.get_running_loop().add_reader(connection.fileno(), self._read)
        except NotImplementedError:
            # The usual event loop of Windows watches no sockets.
            connection.close()
            return
        self._connection, self._socket = connection, connection.fileno()
        self._notify()

    def _connect(self) -> psycopg.Connection[Any] | None:
        """A connection that listens; None: there is a pooler between."""
        pooled = self._make_engine().raw_connection()
        if is_pooled(pooled.info):
            pooled.invalidate()
            return None
        connection: Any = pooled.driver_connection
        pooled.detach()
        try:
            connection.autocommit = True
            connection.execute(f"LISTEN {_CHANNEL}")
            (schema,) = connection.execute("SELECT current_schema()").fetchone()
        except BaseException:
            connection.close()
            raise
        self._schema = str(schema)
        return connection  # type: ignore[no-any-return]

    def _read(self) -> None:
        """Read what has come in: the socket is readable."""
        assert self._connection is not None
        try:
            came = [one.payload for one in self._connection.notifies(timeout=0)]
        except psycopg.Error:
            self._disconnect()
            return
        if self._schema in came:
            self._notify()

    def _notify(self) -> None:
        self._count += 1
        # Whoever waits wakes up; the next wait begins with an event of its own.
        self._arrived.set()
        self._arrived = asyncio.Event()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            connection.close()
