"""Runs the synchronous driver in one worker thread, on behalf of asyncio code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import SQLAlchemyError

from instep.errors import SinkError
from instep_sql.engine.dialect import Dialect, FailureKind
from instep_sql.engine.worker_thread import WorkerThread

__all__ = ["UNTIL_ROLLBACK", "Database", "Transaction"]

T = TypeVar("T")

_REFUSALS: Final = (SQLAlchemyError, OverflowError, UnicodeEncodeError)
"""Errors of SQLAlchemy, and those of the driver for values that no column can hold."""
UNTIL_ROLLBACK: Final = "instep_until_rollback"
"""A key of `Connection.info` that lasts as long as the connection, and no longer than until it
rolls back: for what is done once a connection, in its first transaction that needs it.
"""
_NOT_RUN_AGAIN: Final = frozenset({FailureKind.FINAL, FailureKind.UNANSWERED})
_RERUNS: Final = 6
_FIRST_PAUSE_S: Final = 0.005


class Database:
    """Runs transactions one after another in a thread of its own.

    A thread and the synchronous driver cost less per statement than an asynchronous driver. A
    transaction that has begun is completed even if the task that started it is cancelled.

    A transaction that failed because of a concurrent one, or whose connection was lost, is run
    again as a whole, a few times. If the server stays unreachable, the error is `retriable`.
    """

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        dialect: Dialect,
        name: str,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._kept: Connection | None = None
        """The connection of the last transaction, if that was committed: to connect an engine of
        one connection anew costs a small commit as much as its statements.
        """
        self._dialect = dialect
        self._refusals: tuple[type[Exception], ...] = (*_REFUSALS, *dialect.errors)
        self._pause = pause
        self._thread = WorkerThread(f"instep-{name}")
        self._transaction_lock = asyncio.Lock()
        self._closed = False
        self.guard: Callable[[Connection], None] = _unguarded
        """Runs at the beginning of every transaction (the lease check). If it raises, the
        transaction is rolled back.
        """

    async def run(
        self,
        work: Callable[[Connection], T],
        *,
        committed: Callable[[Connection], bool] = lambda _: False,
        guarded: bool = True,
    ) -> T:
        """Run `work` in one transaction and return its result. Raises `SinkError`, never an error
        of the driver.

        `work` may run more than once, but takes effect at most once: if the connection is lost
        during the COMMIT, `committed` reads from the store whether the transaction was committed.

        Cancelling does not stop a transaction that has begun: it is committed or rolled back as if
        the call was not cancelled, and the next transaction runs after it.
        """
        if self._closed:
            raise SinkError("the store is closed", where=self._dialect.where)
        async with self._transaction_lock:
            guard = self.guard if guarded else _unguarded
            return await self._in_thread(lambda: self._transact(work, committed, guard))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """A transaction of several steps. It is committed at the end of the block, and rolled back
        when the block raises or is cancelled. No other transaction runs meanwhile, and no step is
        repeated.

        Raises `SinkError`. If the connection was lost during the COMMIT, only the store shows
        whether the transaction was committed.
        """
        if self._closed:
            raise SinkError("the store is closed", where=self._dialect.where)
        async with self._transaction_lock:
            transaction = Transaction(self._in_thread, self._connected, self._refused, self.guard)
            try:
                await transaction.begin()
                yield transaction
                await transaction.commit()
            except BaseException:
                # Not awaited: the next work of the thread runs after it.
                transaction.abandon()
                raise

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        # A thread cannot be interrupted: cancelling only removes work that has not begun.
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _connected(self) -> Connection:
        """A connection, which the caller closes or keeps."""
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        if self._engine is None:
            self._engine = self._make_engine()
        return self._engine.connect()

    def _refused(
        self, error: Exception, connection: Connection | None
    ) -> tuple[SinkError, FailureKind] | None:
        """Translate an error of the database; None for any other error. A lost connection is given
        up, without a word to the server.
        """
        if not isinstance(error, self._refusals):
            return None
        failure_kind = self._dialect.failure_kind(error, connection)
        if failure_kind.is_disconnect:
            if connection is not None and not (connection.closed or connection.invalidated):
                # What is out of step might wait for ever for the answer to a ROLLBACK.
                connection.invalidate()
            self._dispose()
        return self._dialect.translate(error, failure_kind), failure_kind

    def _transact(
        self,
        work: Callable[[Connection], T],
        committed: Callable[[Connection], bool],
        guard: Callable[[Connection], None],
    ) -> T:
        done: list[T] = []
        losses = 0
        for attempt in range(_RERUNS + 1):
            connection: Connection | None = None
            try:
                connection = self._connected()
                commit = self._dialect.begin(connection)
                guard(connection)
                if not (done and committed(connection)):
                    done = [work(connection)]
                commit()
            except BaseException as error:
                refused = self._refused(error, connection) if isinstance(error, Exception) else None
                if connection is not None:
                    _roll_back(connection)
                if refused is None:
                    raise
                translated, failure_kind = refused
                if failure_kind is FailureKind.LOST:
                    losses += 1
                else:
                    done = []
                # If the server is unreachable twice in a row, the caller decides when to try again.
                over = failure_kind in _NOT_RUN_AGAIN or losses > 1 or attempt == _RERUNS
                if over or self._closed:
                    raise translated from error
            else:
                # Left to the next transaction.
                self._kept = connection
                return done[0]
            self._pause(_FIRST_PAUSE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Wait for the running transaction, then disconnect. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        disposed = loop.run_in_executor(self._thread, self._dispose)
        self._thread.shutdown(wait=False)
        await asyncio.shield(disposed)

    def _dispose(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()
        if self._engine is not None:
            self._engine.dispose()


def _unguarded(_connection: Connection) -> None:
    """The guard of a store without a lease: checks nothing."""


class Transaction:
    """A transaction whose steps are awaited one by one; each runs in the thread of the database."""

    def __init__(
        self,
        in_thread: Callable[[Callable[[], Any]], asyncio.Future[Any]],
        connected: Callable[[], Connection],
        refused: Callable[[Exception, Connection | None], tuple[SinkError, FailureKind] | None],
        guard: Callable[[Connection], None],
    ) -> None:
        self._in_thread = in_thread
        self._connected = connected
        self._refused = refused
        self._guard = guard
        self._connection: Connection | None = None
        self._root: RootTransaction | None = None
        self.broken: SinkError | None = None
        """Set when an error ended the whole transaction: the connection was lost, or a concurrent
        transaction made it fail.
        """

    async def begin(self) -> None:
        def work() -> None:
            self._connection = self._connected()
            self._root = self._connection.begin()
            self._guard(self._connection)

        await self._step(work)

    def run(self, work: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Submit one step and return its result as a future; steps run in the order of the calls.

        Raises `SinkError`, caused by the driver's error, never the driver's error itself.
        """
        if self.broken is not None:
            raise self.broken

        def on_connection() -> T:
            assert self._connection is not None
            return work(self._connection)

        return self._step(on_connection)

    async def commit(self) -> None:
        if self.broken is not None:
            raise self.broken

        def work() -> None:
            assert self._root is not None
            self._root.commit()
            self._leave()

        await self._step(work)

    def abandon(self) -> None:
        """Roll back, after the step that is running."""
        self._in_thread(self._leave)

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _roll_back(connection)

    def _step(self, work: Callable[[], T]) -> asyncio.Future[T]:
        def run_translated() -> T:
            try:
                return work()
            except Exception as error:
                refused = self._refused(error, self._connection)
                if refused is None:
                    raise
                translated, failure_kind = refused
                if failure_kind is not FailureKind.FINAL:
                    self.broken = translated
                raise translated from error

        return self._in_thread(run_translated)


def _roll_back(connection: Connection) -> None:
    """End the transaction of a connection, if there is one, and close the connection."""
    # SQLAlchemy takes a transaction whose COMMIT failed for ended; SQLite does not. A connection
    # that is lost has rolled back by itself.
    with suppress(Exception):
        connection.info.pop(UNTIL_ROLLBACK, None)
    with suppress(Exception):
        connection.connection.rollback()
    with suppress(Exception):
        connection.close()
