"""The bases of all runtimes: start and stop, events, and the role in a pair."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from instep.conformance import ConformanceReport
from instep.coordination.lease import Role
from instep.errors import InstepError, LeaseLostError, plain
from instep.model.freshness import StreamReport
from instep.ports.sink import Sink
from instep.runtime.active_standby import ActiveStandby
from instep.runtime.conformance import LiveConformance
from instep.runtime.health import ConsumerEvent, ConsumerState, Health, PairHealth
from instep.runtime.loop_lag import LoopLag
from instep.runtime.retry import Environment, backoff_s, retrying
from instep.runtime.sampling import EventBuffer
from instep.runtime.settings import ConsumerSettings

__all__ = ["LAST_REPORT_S", "REPORTS_WITHIN", "Service", "SinkService", "first_error"]

LAST_REPORT_S = 2.0
"""Longest time, in seconds, that stopping waits for the store to learn of it."""
REPORTS_WITHIN = 3
"""A process says so often that it lives, within the time after which it is not believed."""

_EVENTS_KEPT = 1_000
_OVER = frozenset({ConsumerState.FAILED, ConsumerState.STOPPED})


class Service(ABC):
    """Runs in a task of the caller's loop, from `__aenter__` to `__aexit__`."""

    def __init__(
        self,
        name: str,
        settings: ConsumerSettings | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.name = name
        self._settings = settings or ConsumerSettings()
        self._environment = environment or Environment()
        self._now = self._environment.now
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._error: Exception | None = None
        self._changed = asyncio.Event()
        self._listeners: list[EventBuffer] = []
        self._state = ConsumerState.STARTING

    @abstractmethod
    def health(self) -> Health:
        """The current health of the consumer. Never waits."""

    @abstractmethod
    async def aligned(self, timeout_s: float | None = None) -> None:
        """Wait until the consumer is up to date."""

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Start. Raises an error with which it cannot."""

    def stop(self) -> None:
        """Begin to stop; `__aexit__` waits for it. Several that are told so stop at once."""
        if self._task is not None and not self._stopping:
            self._stopping = True
            self._task.cancel()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop: the commit under way is completed, connections are closed, the position is kept."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._state = ConsumerState.FAILED if self._error else ConsumerState.STOPPED
        if self._error is None:
            self._emit("", "stopped", "stopped")
        else:
            self._wake()

    def reconfigure(
        self,
        settings: ConsumerSettings,  # noqa: ARG002 - for those that can
        source: Mapping[str, Any] | None,  # noqa: ARG002 - for those that can
        where: str,  # noqa: ARG002 - for those that can
    ) -> set[str]:
        """Take over changed settings and, where they have changed, the options of its source, from
        now on, without closing a connection.

        Returns what it does not take over: keys such as "settings.batch_records", the beginnings of
        such, or the empty text for all. `where` is the place of the options, for errors.
        """
        return {""}

    @property
    def received_bytes(self) -> int | None:
        """The bytes of all messages that peers have sent since the start, taken or not; None where
        nothing listens for messages.
        """
        return None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that it runs in; None before it was started."""
        return None if self._task is None else self._task.get_loop()

    @property
    def error(self) -> Exception | None:
        """The fatal error that has ended it; None if there was none."""
        return self._error

    async def wait(self) -> None:
        """Wait until the consumer fails with a fatal error, and raise it."""
        await self._until(lambda: False)

    async def events(self) -> AsyncIterator[ConsumerEvent]:
        """Iterate over the events from now on, until the consumer stops. A slow reader loses the
        oldest events, of the kind that has most.
        """
        mine = EventBuffer(_EVENTS_KEPT)
        self._listeners.append(mine)
        try:
            while True:
                changed = self._changed
                while mine:
                    yield mine.popleft()
                if self._state in _OVER:
                    return
                await changed.wait()
        finally:
            self._listeners = [kept for kept in self._listeners if kept is not mine]

    # -- inner parts -----------------------------------------------------------------------------

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._stopping = False
        self._task = asyncio.create_task(work, name=f"instep {self.name}")

    def _failed(self, error: Exception) -> None:
        self._error = error
        self._state = ConsumerState.FAILED
        self._emit("", "failed", str(error))

    async def _until(self, done: Callable[[], bool]) -> None:
        while True:
            changed = self._changed
            if self._error is None and done():
                return
            self._check()
            await changed.wait()

    def _check(self) -> None:
        """Raise its fatal error; it is a mistake to wait for a consumer that does not run."""
        if self._error is not None:
            raise self._error
        if self._task is None or self._task.done():
            raise RuntimeError(f"consumer {self.name} is not running")

    def _emit(
        self, stream: str, kind: str, text: str, ids: Mapping[str, int] | None = None
    ) -> None:
        at_us = int(self._now() * 1_000_000)
        self._tell(ConsumerEvent(at_us, self.name, stream, kind, plain(text), dict(ids or {})))

    def _tell(self, event: ConsumerEvent) -> None:
        for listener in self._listeners:
            listener.append(event)
        self._wake()

    def _wake(self) -> None:
        """Let those look again who wait for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class SinkService(Service):
    """Runs work on a sink."""

    def __init__(
        self,
        name: str,
        sink: Sink,
        settings: ConsumerSettings | None,
        environment: Environment | None,
        conformance: LiveConformance | None = None,
    ) -> None:
        super().__init__(name, settings, environment)
        self._sink = sink
        self._conformance = conformance
        self._conformance_told: ConformanceReport | None = None
        self._conformance_told_s = self._environment.monotonic()
        lease = sink.lease
        self._pair = ActiveStandby(lease, report=partial(self._emit, "")) if lease else None
        self._sink_error = ""
        """Why the sink could not be opened yet."""
        self._lag = LoopLag(self._environment.measure_lag_s, self._report_lag)
        self._store_heard_s: float | None = None
        """When the store answered last."""

    @abstractmethod
    async def _work(self) -> None:
        """The work, done until cancelled while this process is active."""

    @abstractmethod
    async def _close(self) -> None:
        """Close the source or the listener."""

    async def __aenter__(self) -> Self:
        """Open the sink and start. Neither provider nor sink need be reachable yet: a sink that is
        away is opened later, with the waits between two connections.

        Raises `SinkError` if waiting does not help.
        """
        opened = True
        try:
            await self._sink.open(self.name)
        except Exception as error:
            if self._environment.process_error(error) is not None:
                self._failed(error)
                raise
            self._away(error)
            opened = False
        self._begin(self._run(opened=opened))
        self._lag.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop: the commit under way is completed, connections are closed, the position is kept."""
        await super().__aexit__(exc_type, exc, traceback)
        self._lag.stop()
        try:
            await self._close()
        finally:
            await self._sink.close()

    async def handover(self) -> str:
        """Hand over to another process of the pair, after the commit under way. Returns its name.

        If no other process takes the lease within `lease_s`, this process takes it again. Raises
        `LeaseLostError` if this process does not hold the lease.
        """
        pair = self._pair
        if pair is None or pair.role is not Role.ACTIVE:
            raise LeaseLostError(
                "this process holds no lease that it could hand over",
                where=self.name,
                hint="see health().pair for the holder; without lease_s there is no lease",
            )
        epoch = pair.seen.epoch
        pair.handover()
        await self._until(lambda: pair.seen.epoch > epoch and pair.seen.holder != "")
        return pair.seen.holder

    # -- inner parts -----------------------------------------------------------------------------

    @property
    def _stands_by(self) -> bool:
        """Whether another process is active. The first epoch is 1: before, no lease was read."""
        pair = self._pair
        if pair is None or pair.seen.epoch == 0:
            return False
        return pair.role is not Role.ACTIVE and self._state not in _OVER

    async def _tell_store(self, reports: Sequence[StreamReport]) -> None:
        """Tell the store how fresh the streams are, and note that it has answered."""
        await self._sink.report(reports, self._settings.stale_after_s)
        self._store_heard_s = self._environment.monotonic()
        await self._tell_conformance()

    async def _tell_conformance(self, *, at_once: bool = False) -> None:
        """Tell the store which rules the peer holds, where that has changed, and not too often."""
        now_s, every_s = self._environment.monotonic(), self._settings.stale_after_s
        if not at_once and now_s - self._conformance_told_s < every_s / REPORTS_WITHIN:
            return
        if at_once and self._conformance is not None:
            self._conformance.finish()
        found = self._conformance_report()
        if found is not None and found is not self._conformance_told:
            await self._sink.report_conformance(found)
            self._conformance_told, self._conformance_told_s = found, now_s

    def _conformance_report(self) -> ConformanceReport | None:
        return None if self._conformance is None else self._conformance.report()

    def _store_age_s(self) -> float | None:
        """How long ago the store answered, or, of one that stands by, its lease was read."""
        pair, heard_s = self._pair, self._store_heard_s
        if pair is not None and self._stands_by:
            return pair.read_age_s()
        return None if heard_s is None else max(0.0, self._environment.monotonic() - heard_s)

    def _pair_health(self) -> PairHealth | None:
        if self._pair is None:
            return None
        seen = self._pair.seen
        return PairHealth(
            role=self._pair.role,
            holder=seen.holder,
            epoch=seen.epoch,
            lease_s=self._pair.lease_s,
        )

    def _error_text(self, error: str) -> str:
        """Why it does not work, the most severe reason first; empty if it works."""
        pair_error = self._pair.last_error if self._pair else ""
        return str(self._error or self._sink_error or error or pair_error)

    def _report_lag(self, lag_s: float) -> None:
        text = f"the event loop was late by {lag_s:.1f} s: a callback took long, or the machine"
        self._emit("", "loop-lag", text)

    async def _run(self, *, opened: bool) -> None:
        try:
            if not opened:
                await self._open_later()
            await (self._pair.run(self._work) if self._pair else self._work())
        except Exception as error:  # noqa: BLE001 - raised by wait()
            self._failed(error)

    async def _open_later(self) -> None:
        """Open the sink, which was away, until it succeeds. Raises the fatal error."""
        await asyncio.sleep(backoff_s(self._settings, self._environment, failures=1))
        async for attempt in retrying(self._settings, self._environment):
            with attempt:
                try:
                    await self._sink.open(self.name)
                except InstepError as error:
                    self._away(error)
                    raise
        self._sink_error = ""

    def _away(self, error: Exception) -> None:
        self._state = ConsumerState.RETRYING
        self._sink_error = str(error)
        self._emit("", "disconnected", self._sink_error)


def first_error(error: Exception) -> Exception:
    """The first single error in a group: tasks fail one at a time, the others were cancelled."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
