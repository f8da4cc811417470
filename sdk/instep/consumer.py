"""A consumer joins one source to one sink: the asyncio runtime that users embed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from instep.audit import AuditReport, Finding
from instep.auditor import audit_stream
from instep.errors import (
    DiscoveryError,
    InstepError,
    NoStreamError,
    SweepHeldError,
)
from instep.health import ConsumerEvent, ConsumerState, Health
from instep.matching import recognised
from instep.ports import KnowsStreams, Sink, Source, StreamInfo
from instep.retry import Environment, retrying
from instep.runner import Runner
from instep.settings import ConsumerSettings

__all__ = ["Consumer"]

_EVENTS_KEPT = 1_000


class Consumer:
    """Keeps a sink in step with the streams of a source, whatever is lost, restarted or repeated.

    ::

        async with Consumer("optical-east", source, sink) as consumer:
            await consumer.aligned()
            ...

    What is promised, per stream:

    - Entities and position are one commit. After a crash at any moment the store holds exactly
      what some earlier position covers, and the consumer goes on after it.
    - Every record delivered is applied, ignored because a newer one of its entity is stored, or
      kept in quarantine. None is dropped because of load: back-pressure stops the reading.
    - Records of one entity are applied in the order of its partition. Applying one twice changes
      nothing.
    - When `aligned` returns, the store holds every entity the provider stated, and no other, as of
      some moment after the call (eventual consistency, TR-548 3.17.1).
    - An entity is removed because the provider ended it, or because an attempt that began at the
      start of the log did not meet it. Never because of a lost connection or a guess.

    What is not: no order between entities, nor between streams; a lag past the compaction delay
    loses intermediate states (not the last one); a reader of the store may see an entity ended and
    stated again while an attempt replays old records.

    The consumer runs in tasks of the caller's loop. Cancelling it at any await loses nothing.
    Fatal errors are raised by `wait` and `aligned`, and shown by `health`; they never look like an
    end of the stream.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        sink: Sink,
        settings: ConsumerSettings | None = None,
        *,
        environment: Environment | None = None,
    ) -> None:
        """`environment` gives the clock, the jitter, and decides what is retried."""
        self.name = name
        self._source = source
        self._sink = sink
        self._settings = settings or ConsumerSettings()
        self._environment = environment or Environment()
        self._now = self._environment.now
        self._runners: dict[str, Runner] = {}
        self._offered: dict[str, StreamInfo] = {}
        """By the ids of the store, as last discovered."""
        self._discovering = asyncio.Lock()
        self._left = ""
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._changed = asyncio.Event()
        self._listeners: list[deque[ConsumerEvent]] = []
        self._state = ConsumerState.STARTING
        self._last_error = ""

    def __repr__(self) -> str:
        phases = ", ".join(f"{r.stream.id} {r.health().phase}" for r in self._runners.values())
        return f"<Consumer {self.name}: {self.health().state}{' | ' + phases if phases else ''}>"

    # -- life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the sink and start. Raises `SinkError`; the provider need not be there yet."""
        await self._sink.open(self.name)
        self._task = asyncio.create_task(self._run(), name=f"instep {self.name}")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop: a commit under way is finished, connections are closed, the position is kept."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._state = ConsumerState.FAILED if self._error else ConsumerState.STOPPED
        self._announce("", "stopped", "stopped")
        try:
            await self._source.close()
        finally:
            await self._sink.close()

    async def wait(self) -> None:
        """Wait until the consumer fails for good, and raise why."""
        await self._until(lambda: False)

    async def aligned(self, timeout_s: float | None = None) -> None:
        """Wait until every selected stream is aligned (TR-548 ST-2.2 step 8).

        Raises the consumer's fatal error, `SweepHeldError` when a sweep waits for a decision, and
        `TimeoutError` after `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            await self._until(self._is_aligned)

    def health(self) -> Health:
        """The consumer, now."""
        streams = tuple(runner.health() for runner in self._runners.values())
        state = self._state
        if state is ConsumerState.RUNNING and not all(s.connected for s in streams):
            state = ConsumerState.RETRYING
        return Health(
            consumer=self.name,
            state=state,
            error=self._last_error,
            streams=streams,
            left=self._left,
        )

    async def events(self) -> AsyncIterator[ConsumerEvent]:
        """What happens from now on, until the consumer stops. A slow reader misses the oldest
        events.
        """
        mine: deque[ConsumerEvent] = deque(maxlen=_EVENTS_KEPT)
        self._listeners.append(mine)
        try:
            while True:
                changed = self._changed
                while mine:
                    yield mine.popleft()
                if self._state in (ConsumerState.FAILED, ConsumerState.STOPPED):
                    return
                await changed.wait()
        finally:
            self._listeners = [kept for kept in self._listeners if kept is not mine]

    def realign(self, stream: str, reason: str = "asked for") -> None:
        """Begin a new attempt on a stream (TR-548 ST-2.2, client-driven). Raises `KeyError`."""
        self._runners[stream].realign(reason)

    def release_sweep(self, stream: str) -> None:
        """Let a held sweep of a stream go on (rule 6). Raises `KeyError`."""
        self._runners[stream].release_sweep()

    async def audit(
        self,
        stream: str | None = None,
        *,
        repair: bool = False,
        found: Callable[[Finding], None] | None = None,
    ) -> list[AuditReport]:
        """Hold the store against the log, by a second connection (TR-548 ST-2.3).

        One stream, or all, one after the other, while the consumer goes on; what is proven wrong is
        told to `found`, and repaired if asked for. Raises `AuditError`, `SourceError`, `SinkError`,
        and `KeyError` for an unknown stream.
        """
        audited = self._runners.values() if stream is None else [self._runners[stream]]
        return [
            await audit_stream(
                self._source,
                self._sink,
                runner.stream,
                settings=self._settings.alignment,
                now=self._now,
                repair=repair,
                found=found,
            )
            for runner in list(audited)
        ]

    # -- inner parts -----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            streams = await self._discovered()
            self._offered = {stream.id: stream for stream in streams}
            self._runners = {stream.id: self._runner(stream) for stream in streams}
            self._state = ConsumerState.RUNNING
            async with asyncio.TaskGroup() as group:
                for runner in self._runners.values():
                    group.create_task(runner.run(), name=f"instep {self.name} {runner.stream.id}")
        except Exception as error:  # noqa: BLE001 - raised by wait() and aligned()
            self._error = _first(error)
            self._last_error = str(self._error)
            self._state = ConsumerState.FAILED
            self._announce("", "failed", self._last_error)

    async def _discovered(self) -> list[StreamInfo]:
        async for attempt in retrying(self._settings, self._environment):
            with attempt:
                try:
                    offered = await self._source.discover()
                    sink = self._sink
                    known = await sink.known_streams() if isinstance(sink, KnowsStreams) else ()
                    return recognised(known, offered)
                except InstepError as error:
                    self._last_error = str(error)
                    self._announce("", "disconnected", self._last_error)
                    raise
        raise AssertionError("retrying ends by returning or raising")

    def _runner(self, stream: StreamInfo) -> Runner:
        return Runner(
            stream,
            self._source,
            self._sink,
            self._settings,
            self._environment,
            tell=self._announce,
            rediscover=self._rediscover,
        )

    async def _rediscover(self, gone: StreamInfo) -> StreamInfo:
        """The same stream as it is offered now, maybe by another instance (TR-548 ST-4.2).

        What was there once may be away for a while: not finding it is retried. What one stream
        finds serves the others that ask meanwhile.
        """
        async with self._discovering:
            found = self._offered.get(gone.id)
            if found is None or found == gone:
                found = await self._discovered_anew(gone)
        if found is None:
            raise NoStreamError("the stream is not offered any more", where=gone.id, retriable=True)
        return found

    async def _discovered_anew(self, gone: StreamInfo) -> StreamInfo | None:
        try:
            offered = await self._source.discover()
        except (DiscoveryError, NoStreamError) as error:
            error.retriable = True
            raise
        known = [runner.stream for runner in self._runners.values()]
        self._offered = {stream.id: stream for stream in recognised(known, offered)}
        found = self._offered.get(gone.id)
        if found is not None and found.endpoint != gone.endpoint:
            why = self._runners[gone.id].health().last_error
            self._left = f"{gone.endpoint} for {found.endpoint}: {why}"
            self._announce("", "failed-over", self._left)
        return found

    def _is_aligned(self) -> bool:
        for runner in self._runners.values():
            if runner.sweep_held:
                raise SweepHeldError(
                    "a sweep is held: it would remove more than the guard allows",
                    where=runner.stream.id,
                    hint="compare with the provider, then call release_sweep or realign",
                )
        return self.health().aligned

    async def _until(self, done: Callable[[], bool]) -> None:
        while True:
            changed = self._changed
            if self._error is not None:
                raise self._error
            if done():
                return
            if self._task is None or self._task.done():
                raise RuntimeError(f"consumer {self.name} is not running")
            await changed.wait()

    def _announce(self, stream: str, kind: str, text: str) -> None:
        event = ConsumerEvent(int(self._now() * 1_000_000), self.name, stream, kind, text)
        for listener in self._listeners:
            listener.append(event)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _first(error: BaseException) -> BaseException:
    """The first single error in a group: runners fail one at a time, the others were cancelled."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
