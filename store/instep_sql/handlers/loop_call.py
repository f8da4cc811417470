"""Calls an asynchronous function from the thread of the database, which meanwhile runs the
statements that the function awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from instep.errors import SinkError
from instep_sql.engine.user_statements import execution

__all__ = ["CallEndedError", "call_in_loop"]

T = TypeVar("T")

_LOOK_S: Final = 1.0


class CallEndedError(SinkError):
    """The program ends while a handler runs: that is no failure of the handler."""


def call_in_loop(
    loop: asyncio.AbstractEventLoop,
    connection: Connection,
    function: Callable[[LoopConnection], Coroutine[Any, Any, None]],
    timeout_s: float,
) -> None:
    """Run the function in the loop, and its statements here, until it has ended.

    Raises what it raises, `TimeoutError` where it takes too long, and `CallEndedError` where the
    loop ends before.
    """
    steps: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    outcome: list[BaseException | None] = []

    async def run() -> None:
        given = LoopConnection(loop, connection, steps)
        try:
            async with asyncio.timeout(timeout_s):
                await function(given)
        finally:
            given.is_over = True

    def start() -> None:
        task = loop.create_task(run())
        task.add_done_callback(end)

    def end(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            outcome.append(CallEndedError("the handler was cancelled: the program ends"))
        else:
            outcome.append(task.exception())
        steps.put(None)

    try:
        loop.call_soon_threadsafe(start)
    except RuntimeError:
        raise CallEndedError("the handler is not called: the program ends") from None
    while (step := _next_step(loop, steps)) is not None:
        step()
    (error,) = outcome
    if error is not None:
        raise error


def _next_step(
    loop: asyncio.AbstractEventLoop, steps: SimpleQueue[Callable[[], None] | None]
) -> Callable[[], None] | None:
    while True:
        try:
            return steps.get(timeout=_LOOK_S)
        except Empty:
            # A loop that was closed under its tasks ends none of them.
            if loop.is_closed():
                raise CallEndedError("the handler was not ended: the loop is closed") from None


class LoopConnection:
    """Implements `instep.ports.message_store.HandlerConnection`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        steps: SimpleQueue[Callable[[], None] | None],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._steps = steps
        self.is_over = False

    async def execute(
        self,
        statement: Any,
        parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:
        """See `HandlerConnection`. Raises SQLAlchemy's errors, and `SinkError` where the text would
        end the transaction of the store.
        """
        return await self.run_sync(execution(statement, parameters))

    async def run_sync(self, work: Callable[[Any], T]) -> T:
        """See `HandlerConnection`."""
        if self.is_over:
            raise SinkError(
                "the transaction of this change is over",
                hint="use the connection only until the handler returns",
            )
        done: asyncio.Future[T] = self._loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def step() -> None:
            result, error = None, None
            try:
                result = work(self._connection)
            except Exception as raised:  # noqa: BLE001 — the handler is told
                error = raised
            self._loop.call_soon_threadsafe(settle, result, error)

        self._steps.put(step)
        return await done
