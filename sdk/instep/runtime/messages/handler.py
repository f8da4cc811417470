"""Delivers released messages to the user's handler, and decides about its failures.

The store runs each handler in the transaction that marks its message delivered, so the handler's
effects and the delivery are one commit. This module decides what the store does with a message
whose handler failed: another attempt later, then quarantine.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

from instep.errors import SinkError
from instep.model.messages import Message
from instep.ports.message_store import (
    DeliveryResult,
    DeliveryStoppedError,
    Handler,
    HandlerConnection,
    HandlerFailure,
    MessageStore,
)
from instep.runtime.messages.intake import Emit, MessageIntake
from instep.runtime.retry import Environment, retrying
from instep.runtime.settings import ConsumerSettings, IntakeSettings, OnHandlerFailure
from instep.runtime.supervision import is_cancelled
from instep.runtime.tracing import Tracing

__all__ = ["HandlerDispatcher", "after_failure"]

_REASON_CHARS = 500
_FINISH_S = 1.0
"""How long a stop waits for a handler that runs, and then for the commit."""


def after_failure(
    reason: str,
    attempts: int,
    *,
    sequenced: bool,
    settings: IntakeSettings,
    now_us: int,
    rng: random.Random,
) -> HandlerFailure:
    """The decision about a message whose handler failed `attempts` times: retry or quarantine.

    A message without a sequence blocks nothing.
    """
    if attempts >= settings.handler_attempts:
        blocks = sequenced and settings.on_handler_failure is OnHandlerFailure.BLOCK
        return HandlerFailure(reason, None, blocks)
    longest_s = settings.handler_retry_initial_s * 2.0 ** min(attempts - 1, 30)
    wait_s = min(settings.handler_retry_max_s, longest_s) * rng.uniform(0.5, 1.0)
    return HandlerFailure(reason, now_us + int(wait_s * 1_000_000), blocks=False)


class HandlerDispatcher:
    """Delivers released messages to the handler until cancelled. Cancelling commits what the
    handler has done: a handler that still runs after a second is cancelled, and gets its message
    again later, as do all those of the transaction where the store does not commit in time.
    """

    def __init__(
        self,
        handler: Handler,
        store: MessageStore,
        intake: MessageIntake,
        settings: ConsumerSettings,
        environment: Environment,
        *,
        emit: Emit,
    ) -> None:
        self._handler = handler
        self._store = store
        self._intake = intake
        self._settings = settings
        self._limits = settings.intake
        self._environment = environment
        self._emit = emit
        self._tracing = Tracing()
        self._stopping = False
        self._handling: asyncio.Timeout | None = None
        """The time limit of the handler that runs; None: none runs."""
        self._replies: dict[tuple[str, int], bytes | None] = {}
        """Replies of the current transaction that a sender waits for; not durable yet."""
        self.messages = 0
        """Delivered since the start."""
        self.failures = 0
        """Calls of the handler that failed since the start."""
        self.blocked: list[str] = []
        """Sequences that wait for a decision about a message in quarantine; the first hundred."""

    def __repr__(self) -> str:
        return f"<HandlerDispatcher {self.messages} delivered, {len(self.blocked)} blocked>"

    def reconfigure(self, settings: ConsumerSettings) -> None:
        """Take over changed settings; the handler that runs has the time that it was given."""
        self._settings, self._limits = settings, settings.intake

    async def run(self) -> None:
        """Deliver until cancelled. Raises the first fatal error."""
        self._tracing.look()
        while True:
            self._intake.released.clear()
            done = DeliveryResult()
            async for attempt in retrying(self._settings, self._environment):
                with attempt:
                    done = await self._deliver_once()
            if done.delivered or done.failed:
                continue
            wait_s = self._limits.poll_s
            if done.next_us is not None:
                wait_s = max(0.0, min(wait_s, (done.next_us - self._now_us()) / 1e6))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._intake.released.wait()

    async def _deliver_once(self) -> DeliveryResult:
        self._replies.clear()
        delivering = asyncio.create_task(
            self._store.deliver(self._deliver, self._now_us(), self._limits.deliver_messages)
        )
        try:
            return self._after(await asyncio.shield(delivering))
        except asyncio.CancelledError:
            # The effects of a handler outside the store cannot be undone: it is not called again.
            await self._finish(delivering)
            raise
        except SinkError as error:
            self._intake.recount()
            self._emit("", "disconnected", str(error))
            raise

    async def _finish(self, delivering: asyncio.Task[DeliveryResult]) -> None:
        """Stop after the handler that runs, and commit; within bounds."""
        self._stopping = True
        await asyncio.wait({delivering}, timeout=_FINISH_S)
        handling = self._handling
        if handling is not None and not handling.expired():
            handling.reschedule(asyncio.get_running_loop().time())
            await asyncio.wait({delivering}, timeout=_FINISH_S)
        delivering.cancel()
        await asyncio.wait({delivering})
        if not delivering.cancelled() and delivering.exception() is None:
            self._after(delivering.result())

    def _after(self, done: DeliveryResult) -> DeliveryResult:
        """Tell of a transaction that is durable."""
        self._intake.delivered(done.delivered)
        quarantined = [one for one in done.failed if one.failure.retry_at_us is None]
        self._replies |= {(one.scope, one.number): None for one in quarantined}
        self._intake.replies.resolve(self._replies)
        self.messages += sum(done.delivered.values()) - len(quarantined)
        for failed in done.failed:
            failure, message = failed.failure, f"message {failed.number} ({failed.id})"
            ids = {"number": failed.number}
            if failure.retry_at_us is not None:
                self._emit(failed.scope, "handler-failed", f"{message}: {failure.reason}", ids)
                continue
            then = "its sequence waits" if failure.blocks else "its sequence goes on"
            text = f"{message}: {failure.reason}; {then}"
            self._emit(failed.scope, "blocked" if failure.blocks else "quarantined", text, ids)
        self.blocked = done.blocked
        return done

    async def _deliver(
        self, message: Message, tried: int, connection: HandlerConnection
    ) -> HandlerFailure | bytes | None:
        if self._stopping:
            raise DeliveryStoppedError
        try:
            async with asyncio.timeout(self._limits.handler_timeout_s) as self._handling:
                with self._tracing.handle(message):
                    returned = await self._handler(message, connection)
        except (Exception, asyncio.CancelledError) as error:  # a handler may fail in any way
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            if self._is_over(error):
                raise DeliveryStoppedError from None
            self.failures += 1
            reason = f"the handler failed: {type(error).__name__}: {error}"[:_REASON_CHARS]
            return after_failure(
                reason,
                tried + 1,
                sequenced=message.number >= 0,
                settings=self._limits,
                now_us=self._now_us(),
                rng=self._environment.rng,
            )
        finally:
            self._handling = None
        reply = returned if isinstance(returned, bytes) else None
        if self._intake.replies.wanted(message.scope, message.number):
            self._replies[message.scope, message.number] = reply
        return reply

    def _is_over(self, error: BaseException) -> bool:
        """Whether a stop has ended the handler that runs."""
        return self._stopping and isinstance(error, TimeoutError)

    def _now_us(self) -> int:
        return int(self._environment.now() * 1_000_000)
