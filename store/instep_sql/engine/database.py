"""One engine and the one thread that uses it: the border between asyncio and the synchronous
driver.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import SQLAlchemyError

from instep.errors import SinkError
from instep_sql.engine.dialect import Dialect, FailureKind

__all__ = ["Database", "Transaction"]

T = TypeVar("T")

_REFUSALS: Final = (SQLAlchemyError, OverflowError, UnicodeEncodeError)
"""What SQLAlchemy raises, and the driver for values that no column can hold."""
_RERUNS: Final = 6
_FIRST_PAUSE_S: Final = 0.005


class Database:
    """Runs transactions one after another in a thread of its own.

    A thread and the synchronous driver cost less per statement than an asynchronous driver, and a
    transaction that has begun comes to its end whatever becomes of the task that asked for it.

    A transaction that others made fail, or whose connection was lost, is run again as a whole, a
    few times; where the server stays away, the error can be tried again later (`retriable`).
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
        self._dialect = dialect
        self._refusals: tuple[type[Exception], ...] = (*_REFUSALS, *dialect.errors)
        self._pause = pause
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"instep-{name}")
        self._transaction_lock = asyncio.Lock()
        self._closed = False
        self.guard: Callable[[Connection], None] = _unguarded
        """Begins every transaction; one that it raises in comes to nothing."""

    async def run(
        self,
        work: Callable[[Connection], T],
        *,
        committed: Callable[[Connection], bool] = lambda _: False,
        guarded: bool = True,
    ) -> T:
        """`work` in one transaction; raises `SinkError`, never an error of the driver.

        `work` may be run more than once, never twice with effect: where the connection was lost in
        the middle of the COMMIT, `committed` tells from what is stored whether it was done.

        Cancelling does not stop a transaction that has begun: it is committed or rolled back as if
        nobody had cancelled, and what is run next comes after it.
        """
        if self._closed:
            raise SinkError("the store is closed", where=self._dialect.where)
        async with self._transaction_lock:
            guard = self.guard if guarded else _unguarded
            return await self._in_thread(lambda: self._transact(work, committed, guard))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """One transaction in several steps: committed at the end of the block, undone when the
        block raises or is cancelled. Nothing else runs meanwhile, and nothing is run again.

        Raises `SinkError`; where the connection was lost in the middle of the COMMIT, only what is
        stored tells whether it was done.
        """
        if self._closed:
            raise SinkError("the store is closed", where=self._dialect.where)
        async with self._transaction_lock:
            transaction = Transaction(self._in_thread, self._opened, self._refused, self.guard)
            try:
                await transaction.begin()
                yield transaction
                await transaction.commit()
            except BaseException:
                # Not waited for: what runs next in the thread comes after it.
                transaction.abandon()
                raise

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        # A thread cannot be interrupted: cancelling takes back what has not begun, no more.
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _opened(self) -> Engine:
        if self._engine is None:
            self._engine = self._make_engine()
        return self._engine

    def _refused(self, error: Exception) -> tuple[SinkError, FailureKind] | None:
        """What an error means, when it is the database's."""
        if not isinstance(error, self._refusals):
            return None
        failure_kind = self._dialect.failure_kind(error)
        if failure_kind is FailureKind.LOST:
            self._dispose()
        return self._dialect.translate(error), failure_kind

    def _transact(
        self,
        work: Callable[[Connection], T],
        committed: Callable[[Connection], bool],
        guard: Callable[[Connection], None],
    ) -> T:
        done: list[T] = []
        losses = 0
        for attempt in range(_RERUNS + 1):
            try:
                with self._opened().begin() as connection:
                    guard(connection)
                    if not (done and committed(connection)):
                        done = [work(connection)]
                return done[0]
            except self._refusals as error:
                failure_kind = self._dialect.failure_kind(error)
                if failure_kind is FailureKind.LOST:
                    losses += 1
                    self._dispose()
                else:
                    done = []
                # A server that is away twice in a row is not waited for here.
                if failure_kind is FailureKind.FINAL or losses > 1 or attempt == _RERUNS:
                    raise self._dialect.translate(error) from error
            self._pause(_FIRST_PAUSE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Wait for what is running, then disconnect. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        disposed = loop.run_in_executor(self._thread, self._dispose)
        self._thread.shutdown(wait=False)
        await asyncio.shield(disposed)

    def _dispose(self) -> None:
        if self._engine is not None:
            self._engine.dispose()


def _unguarded(_connection: Connection) -> None:
    """Whoever has no lease to lose."""


class Transaction:
    """A transaction whose steps are awaited one by one; each runs in the thread of the database."""

    def __init__(
        self,
        in_thread: Callable[[Callable[[], Any]], asyncio.Future[Any]],
        opened: Callable[[], Engine],
        refused: Callable[[Exception], tuple[SinkError, FailureKind] | None],
        guard: Callable[[Connection], None],
    ) -> None:
        self._in_thread = in_thread
        self._opened = opened
        self._refused = refused
        self._guard = guard
        self._connection: Connection | None = None
        self._root: RootTransaction | None = None
        self.broken: SinkError | None = None
        """Set when a step ended the transaction as a whole: its connection is gone, or others made
        it fail.
        """

    async def begin(self) -> None:
        def work() -> None:
            self._connection = self._opened().connect()
            self._root = self._connection.begin()
            self._guard(self._connection)

        await self._step(work)

    def run(self, work: Callable[[Connection], T]) -> asyncio.Future[T]:
        """One step, on its way when this returns; what is asked for later comes after it.

        Raises `SinkError`, caused by the driver's error, and never the latter.
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
        """Roll back, after whatever step is running."""
        self._in_thread(self._leave)

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # SQLAlchemy takes a transaction whose COMMIT failed for ended; SQLite does not. A
            # connection that is lost has rolled back by itself.
            with suppress(Exception):
                connection.connection.rollback()
            with suppress(Exception):
                connection.close()

    def _step(self, work: Callable[[], T]) -> asyncio.Future[T]:
        def told() -> T:
            try:
                return work()
            except Exception as error:
                refused = self._refused(error)
                if refused is None:
                    raise
                translated, failure_kind = refused
                if failure_kind is not FailureKind.FINAL:
                    self.broken = translated
                raise translated from error

        return self._in_thread(told)
