"""A consumer joins one source to one sink: the asyncio runtime that users embed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import TracebackType
from typing import Self

from instep.audit import AuditReport, Finding
from instep.auditor import audit_stream
from instep.errors import LeaseLostError, SweepHeldError
from instep.health import ConsumerEvent, ConsumerState, Health, PairHealth
from instep.lease import Role
from instep.offers import Offers
from instep.pair import Pair
from instep.ports import Shared, Sink, Source, StreamInfo
from instep.retry import Environment
from instep.runner import Runner
from instep.settings import ConsumerSettings

__all__ = ["Consumer"]

_EVENTS_KEPT = 1_000
_OVER = frozenset({ConsumerState.FAILED, ConsumerState.STOPPED})


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
        tell = partial(self._announce, "")
        self._offers = Offers(source, sink, self._settings, self._environment, tell=tell)
        lease = sink.lease if isinstance(sink, Shared) else None
        self._pair = Pair(lease, tell=tell) if lease else None
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._changed = asyncio.Event()
        self._listeners: list[deque[ConsumerEvent]] = []
        self._state = ConsumerState.STARTING

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
        state, error = self._state, str(self._error or self._offers.last_error)
        if state is ConsumerState.RUNNING and not all(s.connected for s in streams):
            state = ConsumerState.RETRYING
        pair: PairHealth | None = None
        if self._pair is not None:
            role, seen = self._pair.role, self._pair.seen
            pair = PairHealth(role=role, holder=seen.holder, epoch=seen.epoch)
            error = error or self._pair.last_error
            if role is not Role.ACTIVE and state not in _OVER:
                state, streams = ConsumerState.STANDBY, ()
        return Health(
            consumer=self.name,
            state=state,
            error=error,
            streams=streams,
            left=self._offers.left,
            pair=pair,
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
                if self._state in _OVER:
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

    async def handover(self) -> str:
        """Let another process of the pair consume, after what is being committed; returns its name.

        Where no other takes the lease within `lease_s`, it is this process again. Raises
        `LeaseLostError` where this process does not hold the lease.
        """
        pair = self._pair
        if pair is None or pair.role is not Role.ACTIVE:
            raise LeaseLostError(
                "this process holds no lease that it could hand over",
                where=self.name,
                hint="see health().pair for who does; without lease_s nobody does",
            )
        epoch = pair.seen.epoch
        pair.handover()
        await self._until(lambda: pair.seen.epoch > epoch and pair.seen.holder != "")
        return pair.seen.holder

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
            await (self._pair.run(self._work) if self._pair else self._work())
        except Exception as error:  # noqa: BLE001 - raised by wait() and aligned()
            self._error = error
            self._state = ConsumerState.FAILED
            self._announce("", "failed", str(error))

    async def _work(self) -> None:
        """Follow the streams until cancelled. Raises the first error that is fatal."""
        self._state = ConsumerState.STARTING
        self._runners = {stream.id: self._runner(stream) for stream in await self._offers.first()}
        self._state = ConsumerState.RUNNING
        try:
            async with asyncio.TaskGroup() as group:
                for runner in self._runners.values():
                    group.create_task(runner.run(), name=f"instep {self.name} {runner.stream.id}")
        except ExceptionGroup as errors:
            raise _first(errors) from None

    def _runner(self, stream: StreamInfo) -> Runner:
        return Runner(
            stream,
            self._source,
            self._sink,
            self._settings,
            self._environment,
            tell=self._announce,
            rediscover=lambda gone: self._offers.again(gone, self._runners),
        )

    def _is_aligned(self) -> bool:
        health = self.health()
        for runner in self._runners.values() if health.streams else ():
            if runner.sweep_held:
                raise SweepHeldError(
                    "a sweep is held: it would remove more than the guard allows",
                    where=runner.stream.id,
                    hint="compare with the provider, then call release_sweep or realign",
                )
        return health.aligned

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


def _first(error: Exception) -> Exception:
    """The first single error in a group: runners fail one at a time, the others were cancelled."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
