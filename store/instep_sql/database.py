"""One engine and the one thread that uses it: the border between asyncio and the synchronous
driver.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from instep.errors import SinkError
from instep_sql.dialect import Dialect, Verdict

__all__ = ["Database"]

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
        self._closed = False

    async def run(
        self,
        work: Callable[[Connection], T],
        *,
        committed: Callable[[Connection], bool] = lambda _: False,
    ) -> T:
        """`work` in one transaction; raises `SinkError`, never an error of the driver.

        `work` may be run more than once, never twice with effect: where the connection was lost in
        the middle of the COMMIT, `committed` tells from what is stored whether it was done.

        Cancelling does not stop a transaction that has begun: it is committed or rolled back as if
        nobody had cancelled, and what is run next comes after it.
        """
        if self._closed:
            raise SinkError("the store is closed", where=self._dialect.where)
        # A thread cannot be interrupted: cancelling takes back what has not begun, no more.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._transact, work, committed)

    def _transact(
        self, work: Callable[[Connection], T], committed: Callable[[Connection], bool]
    ) -> T:
        done: list[T] = []
        losses = 0
        for attempt in range(_RERUNS + 1):
            try:
                if self._engine is None:
                    self._engine = self._make_engine()
                with self._engine.begin() as connection:
                    if not (done and committed(connection)):
                        done = [work(connection)]
                return done[0]
            except self._refusals as error:
                verdict = self._dialect.verdict(error)
                if verdict is Verdict.LOST:
                    losses += 1
                    self._dispose()
                else:
                    done = []
                # A server that is away twice in a row is not waited for here.
                if verdict is Verdict.FINAL or losses > 1 or attempt == _RERUNS:
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
