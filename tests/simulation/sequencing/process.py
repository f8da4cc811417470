"""The receiver of the simulated sequences as a process: started on what is durable, and crashed at
any await.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError

from instep import Environment, Message, Receiver, SequencerSettings
from instep.errors import SourceError, StoreUnavailableError
from instep.model import Ranges
from instep.ports import Intake
from instep.ports.message_store import HandlerConnection
from instep.runtime.retry import process_error
from instep.runtime.supervision import TaskEndedError
from instep.sequencing import ReportFault, SequenceEffect
from instep_sql import SqlStore
from instep_sql.engine.database import Database
from tests.simulation.database_files import CONSUMER

if TYPE_CHECKING:
    from tests.simulation.sequencing.simulation import World

__all__ = ["Process"]


def _process_error(error: Exception) -> Exception | None:
    """A part that ends by itself is healed in production, and here it is a mistake to be found."""
    return error if isinstance(error, TaskEndedError) else process_error(error)


class Process:
    """One life of the receiver, on what is durable. Its listener is itself."""

    kind = "simulated"
    opens_implicitly = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.intake: Intake | None = None
        self.address = ""
        self.dead = False
        self._free_at_s = 0.0
        world.loop.worker = self._worked
        self.store = SqlStore(
            f"sqlite:///{world.path}",
            clock_us=lambda: int(world.now() * 1e6),
            synchronous="normal",
            busy_timeout_s=0,
        )
        self._fails_at: int | None = None
        """Which statement of a piece of work fails."""
        self._committed = False
        self._watch(self.store._database)
        self.receiver = Receiver(
            CONSUMER,
            self,
            self.store,
            world.settings,
            handler=self._handle if world.handled else None,
            environment=Environment(
                world.now,
                random.Random(world.rng.getrandbits(64)),
                _process_error,
                measure_lag_s=0,
                # It would take turns of the kept seeds.
                reports_receiving=False,
            ),
        )
        self.task = world.loop.create_task(self._main())

    async def _main(self) -> None:
        while True:
            try:
                async with self.receiver:
                    await self.receiver.wait()
            except StoreUnavailableError:
                await asyncio.sleep(0.5)

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - one for all
        return self.world.sequencing

    def peer_of(self, scope: str) -> str:
        return scope

    async def serve(self, intake: Intake) -> None:
        self.intake, self.address = intake, "simulated://"
        await asyncio.Event().wait()

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        rng, faults = self.world.rng, self.world.faults
        await asyncio.sleep(rng.uniform(0, 0.5))
        if rng.random() < faults.report_fails_p:
            raise SourceError("made by the simulation")
        self.world.sent.add((scope, msgspec.json.encode(effect).decode()))
        if isinstance(effect, ReportFault):
            sender = next(one for one in self.world.senders if one.scope == scope)
            for number in Ranges.of(*effect.faulted):
                sender.renewed.setdefault(number, 1)

    async def close(self) -> None:
        self.intake = None

    async def _handle(self, message: Message, connection: HandlerConnection) -> None:
        rng, faults = self.world.rng, self.world.faults
        values = {"s": message.scope, "n": message.number, "b": message.body.decode()}
        await connection.execute("INSERT INTO effects VALUES (:s, :n, :b)", values)
        await asyncio.sleep(rng.uniform(0, 0.01))
        if self.world.slowness.random() < faults.handler_slow_p:
            await asyncio.sleep(self.world.slowness.uniform(1.0, 8.0))
        if rng.random() < faults.handler_fails_p:
            raise RuntimeError("made by the simulation")

    async def crash(self) -> None:
        """Nothing of it reaches the store from now on. Raises what it has failed with before."""
        if self.task.done():
            self.task.result()
        self.dead = True
        self.intake = None
        if self.store._database._engine is not None:
            self.store._database._engine.dispose()
        tasks = [task for task in (self.task, self.receiver._task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _worked(self, _executor: Executor | None, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Stands where the store's thread stands: one piece of work after another."""
        loop, rng, faults = self.world.loop, self.world.rng, self.world.faults
        future: asyncio.Future[Any] = loop.create_future()
        self._free_at_s = max(loop.time(), self._free_at_s) + rng.uniform(0.0, 0.02)
        fails, unknown = rng.random(), rng.random()

        def begin() -> None:
            if future.cancelled():
                return
            if self.dead:
                # Whoever spoke to it learns no more than that; nobody may be left to hear it.
                future.set_exception(StoreUnavailableError("the process is gone"))
                future.exception()
                return
            # Some statement of it fails, or its COMMIT does; a rollback never fails.
            self._fails_at = rng.randrange(6) if fails < faults.store_fails_p else None
            self._committed = False
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)
                return
            if self._committed and unknown < faults.outcome_unknown_p:
                future.set_exception(
                    StoreUnavailableError("the answer is lost", where="simulation")
                )
            else:
                future.set_result(result)

        loop.call_at(self._free_at_s, begin)
        return future

    def _watch(self, database: Database) -> None:
        make = database._make_engine

        def made() -> Engine:
            engine = make()
            event.listen(engine, "before_cursor_execute", self._before_statement)
            event.listen(engine, "commit", self._before_commit)
            return engine

        database._make_engine = made
        database._pause = lambda _s: None

    def _before_statement(self, *_: object) -> None:
        if self._fails_at is not None:
            if self._fails_at == 0:
                self._fail()
            self._fails_at -= 1

    def _before_commit(self, _connection: Connection) -> None:
        if self._fails_at is not None:
            self._fail()
        self._committed = True

    def _fail(self) -> None:
        self._fails_at = None
        error = sqlite3.OperationalError("made by the simulation")
        error.sqlite_errorcode = self.world.rng.choice((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL))
        raise OperationalError("simulated", {}, error)
