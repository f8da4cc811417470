"""A receiver joins one listener to one sink: the asyncio runtime for numbered messages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from instep.conformance import RuleBroken
from instep.errors import ConfigurationError, InstepError
from instep.ports.listener import Intake, Listener, ReconfigurableListener
from instep.ports.message_store import Handler, MessageStore
from instep.ports.sink import Sink
from instep.runtime.conformance import LiveConformance
from instep.runtime.health import ConsumerState, Health, IntakeHealth
from instep.runtime.lifecycle import LAST_REPORT_S, REPORTS_WITHIN, SinkService, first_error
from instep.runtime.messages.handler import HandlerDispatcher
from instep.runtime.messages.intake import MessageIntake
from instep.runtime.retry import Environment, backoff_s, retrying
from instep.runtime.settings import ConsumerSettings
from instep.runtime.supervision import TaskEndedError, until_cancelled

__all__ = ["Receiver"]

_POLL_S = 0.02

_MADE_WITH: Final = ("queue_messages", "queue_bytes", "answer_within_s")
"""Limits that the queue of an intake is made with."""
_log = logging.getLogger("instep.messages")


class Receiver(SinkService):
    """Receives numbered messages durably, and delivers them in order, each once.

    ::

        async with Receiver("auction", listener, sink, handler=handle) as receiver:
            await receiver.wait()

    Promised, for each sequence:

    - A sender gets the confirmation only after its message is durable (S3).
    - A message is delivered once, in the order of the numbers. A number is skipped only if it is
      cancelled, filled, expired or given up, and that is reported.
    - With a handler, the delivery and what the handler does through its connection are one commit.
      Without one, messages are delivered to the sink's own table.
    - If a handler fails, it gets the message again later. After the last attempt the message goes
      to quarantine, and its sequence is blocked or continues, by `on_handler_failure`. Other
      sequences continue.
    - Every wait is bounded: a message that cannot be made durable in time is refused in the
      protocol's own terms.
    - A part that ends although nothing stopped it is reported (event `restarted`), and all parts
      are started again. What was durable continues.

    Not promised: order between sequences. What a handler does other than through its connection may
    be repeated after a crash.
    """

    def __init__(
        self,
        name: str,
        listener: Listener,
        sink: Sink,
        settings: ConsumerSettings | None = None,
        *,
        handler: Handler | None = None,
        environment: Environment | None = None,
        conformance: LiveConformance | None = None,
    ) -> None:
        """Create a receiver; `environment` gives the clock and the jitter, and decides what is
        retried. `conformance` judges the senders meanwhile.

        Raises `ConfigurationError` for a sink that cannot store messages.
        """
        super().__init__(name, sink, settings, environment, conformance)
        if conformance is not None:
            conformance.listen(self._note_broken)
        if sink.messages() is None:
            raise ConfigurationError(
                "this sink keeps no numbered messages",
                where=name,
                hint='use a sink that does, for example kind = "sql"',
            )
        self._listener = listener
        self._handler = handler
        self._intake: MessageIntake | None = None
        self._dispatcher: HandlerDispatcher | None = None
        self._received_before = 0
        """The bytes of the messages of intakes before this one."""
        self._restart_error = ""
        """Why its parts are being started again."""

    def __repr__(self) -> str:
        return f"<Receiver {self.name}: {self._state}, {self.address or 'not listening'}>"

    @property
    def address(self) -> str:
        """The URL on which it listens, with the actual port; empty while it does not listen."""
        return self._listener.address

    @property
    def intake(self) -> Intake | None:
        """The intake to which the listener passes its messages; None before it starts and while
        standing by.
        """
        return self._intake

    @property
    def received_bytes(self) -> int:
        """Bytes of the messages received since the start."""
        earlier, intake = self._received_before, self._intake
        return earlier + (intake.received_bytes if intake is not None else 0)

    async def aligned(self, timeout_s: float | None = None) -> None:
        """Wait until it listens: there is nothing to align. Raises as `wait` does, and
        `TimeoutError`.
        """
        async with asyncio.timeout(timeout_s):
            while not self.address:
                self._check()
                await asyncio.sleep(_POLL_S)

    def health(self) -> Health:
        intake, dispatcher = self._intake, self._dispatcher
        state = ConsumerState.STANDBY if self._stands_by else self._state
        error, intake_health = "", None
        if intake is not None:
            away: str = getattr(self._listener, "last_error", "")
            error, counts = self._restart_error or intake.last_error or away, intake.counts
            refusals = intake.refusals
            if error and state is ConsumerState.RUNNING:
                state = ConsumerState.RETRYING
            intake_health = IntakeHealth(
                address=self.address,
                accepted=counts["accepted"],
                duplicates=counts["duplicate"],
                refused=sum(refusals.values()),
                commits=counts["commits"],
                queued=intake.queued_messages,
                delivered=dispatcher.messages if dispatcher else counts["delivered"],
                handler_failures=dispatcher.failures if dispatcher else 0,
                blocked=tuple(dispatcher.blocked) if dispatcher else (),
                deviations=dict(intake.deviations),
                refusals=dict(refusals),
                sequences=intake.kept.sequences,
                failed_sequences=intake.failed_sequences,
                held=intake.kept.messages,
                gap_age_s=self._age_s(intake.gap_since_us),
                dead=intake.kept.dead_messages,
                dead_age_s=self._age_s(intake.dead_since_us or None),
            )
        return Health(
            consumer=self.name,
            state=state,
            error=self._error_text(error),
            streams=(),
            pair=self._pair_health(),
            intake=intake_health,
            loop_lag_s=self._lag.worst_s,
            store_age_s=self._store_age_s(),
            stale_after_s=self._settings.stale_after_s,
            conformance=self._conformance_report(),
        )

    def reconfigure(
        self, settings: ConsumerSettings, source: Mapping[str, Any] | None, where: str
    ) -> set[str]:
        """See `Service`. Limits hold from the next message, request or connection on."""
        left = {f"settings.intake.{name}" for name in _MADE_WITH}
        if source is not None:
            listener: object = self._listener
            if isinstance(listener, ReconfigurableListener):
                left |= {f"source.{key}" for key in listener.reconfigure(source, where)}
            else:
                left.add("source.")
        self._settings = settings
        for part in (self._intake, self._dispatcher):
            if part is not None:
                part.reconfigure(settings)
        return left

    def _age_s(self, since_us: int | None) -> float | None:
        return None if since_us is None else max(0.0, self._now() - since_us / 1e6)

    async def _close(self) -> None:
        await self._listener.close()

    async def _work(self) -> None:
        """Receive until cancelled. Raises the first fatal error."""
        failures, limit = 0, self._settings.reconnect_attempts
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            try:
                await self._receive()
            except TaskEndedError as error:
                if loop.time() - started_s > self._settings.healthy_after_s:
                    failures = 0
                failures += 1
                if failures == limit or self._environment.process_error(error) is not None:
                    raise
                _log.exception("a part of a receiver ended; it is started again")
                self._restart_error = str(error)
                self._emit("", "restarted", str(error))
                await asyncio.sleep(backoff_s(self._settings, self._environment, failures))

    async def _receive(self) -> None:
        self._state = ConsumerState.STARTING
        store = self._sink.messages()
        assert store is not None
        await self._open_store(store)
        handled = self._handler is not None
        self._received_before = self.received_bytes
        intake = self._intake = MessageIntake(
            self._listener,
            store,
            self._settings,
            self._environment,
            handled=handled,
            emit=self._emit,
        )
        work = {"intake": intake.run}
        if self._environment.reports_receiving:
            work["report"] = self._report
        if self._handler is not None:
            self._dispatcher = HandlerDispatcher(
                self._handler,
                store,
                intake,
                self._settings,
                self._environment,
                emit=self._emit,
            )
            work["handler"] = self._dispatcher.run
        self._state, self._restart_error = ConsumerState.RUNNING, ""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(until_cancelled(f"{self.name}: {name}", one))
                    for name, one in work.items()
                ]
                try:
                    # The listener ends first: accepted messages are still answered.
                    await until_cancelled(
                        f"{self.name}: listener", partial(self._listener.serve, intake)
                    )
                finally:
                    for task in tasks:
                        task.cancel()
        except ExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            # What came last was judged, too.
            with contextlib.suppress(InstepError, TimeoutError):
                async with asyncio.timeout(LAST_REPORT_S):
                    await self._tell_conformance(at_once=True)

    async def _report(self) -> None:
        """Tell the store from time to time that this process receives."""
        while True:
            with contextlib.suppress(InstepError):
                await self._tell_store(())
            await asyncio.sleep(self._settings.stale_after_s / REPORTS_WITHIN)

    def _note_broken(self, _: str, rule: str, __: RuleBroken) -> None:
        if self._intake is not None:
            self._intake.report_deviation(rule)

    async def _open_store(self, store: MessageStore) -> None:
        async for attempt in retrying(self._settings, self._environment):
            with attempt:
                await store.open(self._listener.kind, handled=self._handler is not None)
