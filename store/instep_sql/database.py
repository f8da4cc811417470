"""One engine and the one thread that uses it: the border between asyncio and the synchronous
driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from instep.errors import SinkError
from instep_sql.dialect import Dialect

__all__ = ["Database"]

T = TypeVar("T")

_REFUSALS: Final = (SQLAlchemyError, OverflowError, UnicodeEncodeError)
"""The driver's own errors, and what it raises for values that no column can hold."""


class Database:
    """Runs transactions one after another in a thread of its own.

    A thread and the synchronous driver cost less per statement than an asynchronous driver, and a
    transaction that has begun comes to its end whatever becomes of the task that asked for it.
    """

    def __init__(self, make_engine: Callable[[], Engine], dialect: Dialect, name: str) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._dialect = dialect
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"instep-{name}")
        self._closed = False

    async def run(self, work: Callable[[Connection], T]) -> T:
        """`work` in one transaction; raises `SinkError`, never an error of the driver.

        Cancelling does not stop a transaction that has begun: it is committed or rolled back as if
        nobody had cancelled, and what is run next comes after it.
        """
        if self._closed:
            raise SinkError("the store is closed", where=self._dialect.where)
        # A thread cannot be interrupted: cancelling takes back what has not begun, no more.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._transact, work)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        try:
            if self._engine is None:
                self._engine = self._make_engine()
            with self._engine.begin() as connection:
                return work(connection)
        except _REFUSALS as error:
            raise self._dialect.translate(error) from error

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
