"""The real SQL store on a file in memory, with a database that fails."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Engine, event

from instep.errors import StoreUnavailableError
from instep.model.batches import Batch, CommitResult
from instep.model.streams import SweepEstimate
from instep_sql import SqlStore
from instep_sql.engine.database import Database
from tests.simulation.alignment.world import World

__all__ = ["SimStore", "Worker"]


_MOST_STATEMENTS = 6
_PENDING: ContextVar[list[Batch] | None] = ContextVar("pending", default=None)
"""What the next transaction of this task will commit."""


class SimStore(SqlStore):
    """Reports to the checks what it is about to commit, and the result of each sweep estimate."""

    def __init__(self, path: Path, world: World, worker: Worker) -> None:
        super().__init__(
            f"sqlite:///{path}",
            clock_us=lambda: int(world.consumer_now() * 1_000_000),
            synchronous="normal",
            busy_timeout_s=0,
            quarantine_max_records=5_000,
        )
        self._world = world
        self._worker = worker
        worker.watch(self._database)
        worker.watch(self.reader.database)

    async def commit(self, batch: Batch) -> CommitResult:
        pending = _PENDING.set([batch])
        try:
            return await super().commit(batch)
        finally:
            _PENDING.reset(pending)

    async def estimate_sweep(self, stream: str, attempt: int) -> SweepEstimate:
        found = await super().estimate_sweep(stream, attempt)
        self._world.checks.counted(attempt, found)
        return found


class Worker:
    """Stands where the store's threads stand: one transaction after another, each at one moment of
    virtual time, some with an error that a database really raises.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))
        self._free_at_s: dict[Executor | None, float] = {}
        self._engines: list[Engine] = []
        self._fails_at: int | None = None
        """Which statement of the transaction fails; -1 the commit."""
        self._failure = sqlite3.SQLITE_BUSY
        self._committed = False
        self.dead = False

    def watch(self, database: Database) -> None:
        make = database._make_engine

        def made() -> Engine:
            engine = make()
            event.listen(engine, "do_connect", self._connect)
            self._engines.append(engine)
            return engine

        database._make_engine = made
        database._pause = lambda _s: None

    def run(self, executor: Executor | None, work: Callable[[], Any]) -> asyncio.Future[Any]:
        loop, world = self._world.loop, self._world
        pending = _PENDING.get()
        batch = pending.pop() if pending else None
        future: asyncio.Future[Any] = loop.create_future()
        if self.dead:
            future.cancel()
            return future
        takes_s = world.faults.store_latency_s * self._rng.uniform(0.2, 1.8) + world.store_stall_s()
        begins_s = max(loop.time(), self._free_at_s.get(executor, 0.0)) + takes_s / 2
        self._free_at_s[executor] = begins_s + takes_s / 2
        loop.call_at(begins_s, self._begin, work, batch, future, takes_s / 2)
        return future

    def _begin(
        self,
        work: Callable[[], Any],
        batch: Batch | None,
        future: asyncio.Future[Any],
        takes_s: float,
    ) -> None:
        """From here on, cancelling changes nothing: the transaction comes to its end."""
        if self.dead or future.cancelled():
            return
        outcome: Any = None
        error: BaseException | None = None
        unknown = self._draw()
        self._committed = False
        try:
            outcome = work()
        except Exception as raised:  # noqa: BLE001 - it is the caller's
            error = raised
        self._fails_at = None
        if batch is not None:
            self._world.checks.after_commit(batch, failed=error)
        if self._committed and error is None and unknown:
            self._world.trace("store: connection lost after the commit")
            error = StoreUnavailableError("connection lost", where="simulation")
        self._world.loop.call_later(takes_s, self._end, future, outcome, error)

    def _draw(self) -> bool:
        """Choose what goes wrong. Returns True when the transaction is committed and its result is
        lost.
        """
        faults, rng = self._world.faults, self._rng
        if self._world.store_down or rng.random() < faults.locked_p:
            self._fails_at, self._failure = 0, sqlite3.SQLITE_BUSY
        elif rng.random() < faults.disk_full_p:
            self._fails_at = rng.randrange(1, _MOST_STATEMENTS)
            self._failure = sqlite3.SQLITE_FULL
        elif rng.random() < faults.serialization_p:
            self._fails_at, self._failure = -1, sqlite3.SQLITE_BUSY
        else:
            return rng.random() < faults.outcome_unknown_p
        return False

    def _end(self, future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
        if self.dead or future.done():
            return
        if error is None:
            future.set_result(outcome)
        else:
            future.set_exception(error)

    def _connect(
        self, _dialect: object, _record: object, _args: object, options: dict[str, Any]
    ) -> None:
        """Let the driver's connection fail. Nothing listens to SQLAlchemy: the store works as it
        does elsewhere.
        """
        options["factory"] = partial(_Connection, self)

    @property
    def fails(self) -> bool:
        """Whether a statement of this transaction is to fail."""
        return self._fails_at is not None and self._fails_at >= 0

    def before_statement(self) -> None:
        """Call before each statement of such a transaction."""
        assert self._fails_at is not None
        if self._fails_at == 0:
            self._fail()
        self._fails_at -= 1

    def before_commit(self) -> None:
        """Call before each commit."""
        if self._fails_at == -1:
            self._fail()
        self._committed = True

    def _fail(self) -> None:
        self._fails_at = None
        error = sqlite3.OperationalError("made by the simulation")
        error.sqlite_errorcode = self._failure
        raise error

    def die(self) -> None:
        """The process is gone: transactions that have not begun never do, and the results of the
        others are lost.
        """
        self.dead = True
        for engine in self._engines:
            engine.dispose()


class _Connection(sqlite3.Connection):
    """The driver's connection, whose statements fail when the worker says so."""

    def __init__(self, worker: Worker, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.worker = worker

    def cursor(self, _factory: object = None) -> _Cursor:  # type: ignore[override]
        return super().cursor(_Cursor)

    def execute(self, statement: str, *values: Any) -> _Cursor:
        return self.cursor().execute(statement, *values)

    def executemany(self, statement: str, *values: Any) -> _Cursor:
        return self.cursor().executemany(statement, *values)

    def commit(self) -> None:
        self.worker.before_commit()
        super().commit()

    def fail(self, statement: str) -> None:
        """Fail if the worker says so. Settings of the connection come before its transactions."""
        if self.worker.fails and (self.in_transaction or statement.startswith("BEGIN")):
            self.worker.before_statement()


class _Cursor(sqlite3.Cursor):
    connection: _Connection

    def execute(self, statement: str, *values: Any) -> Self:
        self.connection.fail(statement)
        return super().execute(statement, *values)

    def executemany(self, statement: str, *values: Any) -> Self:
        self.connection.fail(statement)
        return super().executemany(statement, *values)
