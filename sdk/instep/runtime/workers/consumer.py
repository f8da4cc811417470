"""A consumer whose streams are spread over worker processes, where one core is not enough."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from instep.errors import InstepError, SweepHeldError
from instep.model.position import Phase
from instep.model.streams import StreamInfo
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.health import (
    ConsumerState,
    Health,
    StreamHealth,
    check_readable,
    unread_stream,
    withdrawn_stream,
)
from instep.runtime.lifecycle import REPORTS_WITHIN, SinkService, first_error
from instep.runtime.retry import Environment, backoff_s, late_wait_s
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.discovery import StreamDiscovery
from instep.runtime.streams.identification import StreamIdentification
from instep.runtime.streams.not_offered import NotOfferedStreams
from instep.runtime.streams.start_order import holds_others_up, stage_of
from instep.runtime.workers.carried_health import counted_stream, disconnected
from instep.runtime.workers.messages import (
    PROCESS_SETTINGS,
    Assignment,
    Reconfiguration,
    WorkerReport,
)
from instep.runtime.workers.process import WorkerLostError, WorkerProcess, how_ended

__all__ = ["MultiProcessConsumer", "WorkerLostError"]

_decode: Final = msgspec.msgpack.Decoder(WorkerReport).decode


class MultiProcessConsumer(SinkService):
    """Follows the streams of a source by worker processes, each with a part of the streams.

    Promised is what a `Consumer` promises, and:

    - Each stream is followed by one process, which this one assigns: a new stream to the worker
      with the fewest. The store refuses a second writer of a stream, whatever happens.
    - A worker that dies is started again with the same streams, after the waits of two connections.
      The streams of the others go on. Its own continue after their positions.
    - The workers end when this process ends, however it ends.
    - Of a pair, this process holds the lease, and its workers write under it: they begin when it is
      taken, and have ended before it is released.

    Not promised: that the streams cost each worker the same. A stream stays with its worker.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        sink: Sink,
        settings: ConsumerSettings | None = None,
        *,
        workers: int,
        program: Sequence[str],
        request: bytes,
        environment: Environment | None = None,
    ) -> None:
        """Create it. `program` are the arguments of the interpreter that make a worker
        (`instep.runtime.workers.program`), and `request` says what it is made of.
        """
        super().__init__(name, sink, settings, environment)
        self._source = source
        self._discovery = StreamDiscovery(
            source, sink, self._settings, self._environment, report=partial(self._emit, "")
        )
        self._identification = StreamIdentification(
            self._discovery, source, sink, self._settings, self._environment, report=self._emit
        )
        self._withdrawn = NotOfferedStreams(self._discovery, sink, report=self._emit)
        self._streams: list[StreamInfo] = []
        self._reconfiguration: Reconfiguration | None = None
        self._discover_now = asyncio.Event()
        self._reselected = False
        """Whether its source may have left streams since the last discovery."""
        kill_s, now_s = self._settings.kill_silent_after_s, self._environment.monotonic
        self._workers = [
            _Worker(
                number, WorkerProcess(program, request, _decode, kill_silent_after_s=kill_s), now_s
            )
            for number in range(1, workers + 1)
        ]

    def __repr__(self) -> str:
        state, workers = self.health().state, len(self._workers)
        return f"<MultiProcessConsumer {self.name}: {state}, {workers} workers>"

    async def aligned(self, timeout_s: float | None = None) -> None:
        """See `Consumer.aligned`."""
        async with asyncio.timeout(timeout_s):
            await self._until(self._is_aligned)

    def health(self) -> Health:
        """The current health of the consumer and of each stream, as last reported. Never waits."""
        streams = self._read_streams()
        reports = [worker.health for worker in self._workers if worker.health is not None]
        errors = [self._discovery.last_error, *(report.error for report in reports)]
        state, error = self._state, self._error_text(next(filter(None, errors), ""))
        heard = all(one.connected and one.heard_s <= one.stale_after_s for one in streams)
        if state is ConsumerState.RUNNING and not heard:
            state = ConsumerState.RETRYING
        streams += map(withdrawn_stream, self._withdrawn.streams.values())
        if self._stands_by:
            state, streams = ConsumerState.STANDBY, []
        return Health(
            consumer=self.name,
            state=state,
            error=error,
            streams=tuple(streams),
            left=next((report.left for report in reports if report.left), ""),
            pair=self._pair_health(),
            loop_lag_s=max([self._lag.worst_s, *(report.loop_lag_s for report in reports)]),
            store_age_s=self._worst_store_age_s(),
            stale_after_s=self._settings.stale_after_s,
        )

    def reconfigure(
        self, settings: ConsumerSettings, source: Mapping[str, Any] | None, where: str
    ) -> set[str]:
        """See `Service`: as of a `Consumer`, here and in the workers."""
        left = set(PROCESS_SETTINGS)
        before = self._reconfiguration
        if source is not None:
            keys = self._source.reconfigure(source, where)
            left |= {f"source.{key}" if key else "source." for key in keys}
            self._reselected = True
            self._discover_now.set()
        elif before is not None:
            source, where = before.source, before.where
        self._settings = settings
        self._discovery.settings = self._identification.settings = settings
        self._reconfiguration = Reconfiguration(
            settings=settings, source=None if source is None else dict(source), where=where
        )
        for worker in self._workers:
            worker.process.tell(self._assignment(worker))
        return left

    # -- inner parts -----------------------------------------------------------------------------

    def _worst_store_age_s(self) -> float | None:
        """How long ago the store answered the worker that waits longest for it."""
        if self._stands_by:
            return self._store_age_s()
        known = [one.store_age_s() for one in self._workers if one.streams]
        return None if not known or None in known else max(filter(None, known), default=0.0)

    async def _close(self) -> None:
        await self._source.close()

    async def _work(self) -> None:
        """Let the workers follow the streams until cancelled. Raises the first fatal error."""
        self._state = ConsumerState.STARTING
        self._streams = []
        for worker in self._workers:
            worker.clear()
        self._withdrawn.forget()
        streams = await self._discovery.first(self._settle_withdrawn)
        self._state = ConsumerState.RUNNING
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start(streams, group))
                group.create_task(self._watch_silence())
                group.create_task(self._identification.run(group, self._identified(group)))
                await self._discover_further(group)
        except ExceptionGroup as errors:
            raise first_error(errors) from None

    def _identified(self, group: asyncio.TaskGroup) -> Callable[[StreamInfo], None]:
        """Lets a worker follow a stream as soon as it is known which one it is. One that has lost
        it must know its new names.
        """

        def follow(stream: StreamInfo) -> None:
            self._withdrawn.found(stream.id)
            ids = [one.id for one in self._streams]
            if stream.id not in ids:
                group.create_task(self._start([stream], group))
                return
            self._streams[ids.index(stream.id)] = stream
            for worker in self._workers:
                worker.process.tell(self._assignment(worker))

        return follow

    def _read_streams(self) -> list[StreamHealth]:
        """The health of the streams that are offered."""
        known, withdrawn = self._assigned(), self._withdrawn.streams
        offered = [stream for stream in self._streams if stream.id not in withdrawn]
        read = [known.get(stream.id) or unread_stream(stream) for stream in offered]
        return read + self._identification.health()

    async def _start(self, streams: Sequence[StreamInfo], group: asyncio.TaskGroup) -> None:
        """Assign streams to workers, in the order of starting (ST-4.1)."""
        stages: dict[int, list[StreamInfo]] = {}
        for stream in streams:
            stage = stage_of(stream, self._settings.start_order)
            stages.setdefault(stage, []).append(stream)
        # All are named before the first is followed: a worker knows the names of the others, too.
        self._streams += streams
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.start_wait_s):
                for stage in sorted(stages):
                    await self._turn(stage, stages[stage])
                    self._assign(stages.pop(stage), group)
        for late in stages.values():
            self._assign(late, group)

    async def _turn(self, stage: int, streams: Sequence[StreamInfo]) -> None:
        before = [
            one.id for one in self._streams if stage_of(one, self._settings.start_order) < stage
        ]

        def holding() -> list[str]:
            known = self._assigned()
            return [id_ for id_ in before if id_ in known and holds_others_up(known[id_])]

        if waits_for := holding():
            for stream in streams:
                self._emit(stream.id, "waiting", f"for {', '.join(waits_for)}")
            await self._until(lambda: not holding())

    def _assign(self, streams: Sequence[StreamInfo], group: asyncio.TaskGroup) -> None:
        for stream in streams:
            worker = min(self._workers, key=lambda one: len(one.streams))
            worker.streams[stream.id] = unread_stream(stream)
        for worker in self._workers:
            if worker.streams and not worker.kept:
                worker.kept = True
                group.create_task(self._keep(worker), name=f"instep {self.name} worker")
            else:
                # The others learn the new names, too.
                worker.process.tell(self._assignment(worker))
        self._wake()

    def _assigned(self) -> dict[str, StreamHealth]:
        return {id_: one for worker in self._workers for id_, one in worker.heard_of().items()}

    def _assignment(self, worker: _Worker) -> Assignment:
        lease = self._pair.seen if self._pair is not None else None
        return Assignment(
            streams=tuple(self._streams),
            assigned=frozenset(worker.streams),
            lease=lease,
            reconfiguration=self._reconfiguration,
        )

    async def _keep(self, worker: _Worker) -> None:
        """Keep a worker running until cancelled. Raises a fatal error."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            begun_s = loop.time()
            worker.begin()
            status = await worker.process.run(
                partial(self._heard, worker), partial(self._assignment, worker)
            )
            worker.lost("its worker process has ended")
            if worker.failure is not None:
                self._check_failure(worker, worker.failure)
                await asyncio.sleep(late_wait_s(self._settings, self._environment))
                continue
            healthy = loop.time() - begun_s >= self._settings.healthy_after_s
            failures = 1 if healthy else failures + 1
            text = f"worker {worker.number} has ended {how_ended(status)}"
            if 0 < self._settings.reconnect_attempts <= failures:
                raise WorkerLostError(
                    text, where=self.name, hint="stderr has what it wrote; is memory short?"
                )
            wait_s = backoff_s(self._settings, self._environment, failures)
            count = len(worker.streams)
            again = f"its {count} streams are followed again in {wait_s:.1f} s"
            self._emit("", "worker-lost", f"{text}; {again}")
            await asyncio.sleep(wait_s)

    def _heard(self, worker: _Worker, report: WorkerReport) -> None:
        if worker.silent:
            worker.silent = False
            text = f"worker {worker.number} is process {worker.process.pid}"
            self._emit("", "worker-started", f"{text}, with {len(worker.streams)} streams")
        worker.heard(report)
        for event in report.events:
            self._emit(event.stream, event.kind, event.text, event.ids)
        self._wake()

    async def _watch_silence(self) -> None:
        """Tell of workers that are not heard any more, and of those that are heard again."""
        stale_after_s = self._settings.stale_after_s
        silent: set[int] = set()
        while True:
            await asyncio.sleep(stale_after_s / REPORTS_WITHIN)
            for worker in self._workers:
                stale = worker.silent_s() > stale_after_s
                if stale and worker.number not in silent:
                    silent.add(worker.number)
                    text = f"worker {worker.number} was not heard for {worker.silent_s():.0f} s"
                    self._emit(
                        "", "worker-silent", f"{text}: its {len(worker.streams)} streams are stale"
                    )
                elif not stale and worker.number in silent:
                    silent.remove(worker.number)
                    self._emit("", "worker-heard", f"worker {worker.number} is heard again")

    def _check_failure(self, worker: _Worker, failure: InstepError) -> None:
        """What is fatal for the streams of one worker alone does not end the others, as for one
        stream of a `Consumer`.
        """
        others = [one for one in self._workers if one.streams and one is not worker]
        if failure.retriable or not failure.stream_only:
            raise failure
        if all(stream.failed for one in others for stream in one.streams.values()):
            raise failure
        for id_, stream in worker.streams.items():
            worker.streams[id_] = msgspec.structs.replace(
                stream, failed=True, last_error=str(failure)
            )
            self._emit(id_, "stream-failed", str(failure))

    async def _discover_further(self, group: asyncio.TaskGroup) -> None:
        """Assign the streams that appear while the consumer runs (TR-548 3.6.7)."""
        async for found in self._discovery.appearing(lambda: self._streams, self._discover_now):
            await self._settle_withdrawn()
            self._leave()
            self._rename(self._discovery.named)
            # Meanwhile one of them may have been identified, and is followed.
            followed = {stream.id for stream in self._streams}
            new = [stream for stream in found if stream.id not in followed]
            for stream in new:
                self._emit(stream.id, "stream-found", "a stream that was not offered before")
            if new:
                group.create_task(self._start(new, group))

    def _rename(self, named: Mapping[str, StreamInfo]) -> None:
        """Tell the workers of streams that are offered under another uuid: nothing may ever come of
        what they read now (A20).
        """
        streams = [named.get(stream.id, stream) for stream in self._streams]
        changed = [one.uuid for one in streams] != [one.uuid for one in self._streams]
        self._streams = streams
        if changed:
            for worker in self._workers:
                worker.process.tell(self._assignment(worker))

    def _leave(self) -> None:
        """Stop following the streams that were left by a changed selection."""
        if not self._reselected:
            return
        self._reselected = False
        left = [one.id for one in self._streams if one.id not in self._discovery.named]
        for id_ in left:
            self._emit(id_, "stream-left", "it is not selected any more")
        self._follow_no_more(left)

    async def _settle_withdrawn(self) -> None:
        self._follow_no_more(await self._withdrawn.settle(self._read_streams()))

    def _follow_no_more(self, gone: Collection[str]) -> None:
        if not gone:
            return
        self._streams = [stream for stream in self._streams if stream.id not in gone]
        for worker in self._workers:
            for id_ in gone:
                worker.streams.pop(id_, None)
            worker.process.tell(self._assignment(worker))

    def _is_aligned(self) -> bool:
        health = self.health()
        for worker in self._workers if health.streams else ():
            for stream in worker.streams.values():
                if stream.failed and worker.failure is not None:
                    raise worker.failure
                check_readable(stream)
                if stream.phase is Phase.SWEEP_HELD:
                    raise SweepHeldError(
                        "a sweep is held: it would remove more than the guard allows",
                        where=stream.stream,
                        hint="compare with the provider (`instep audit`), then release it"
                        " (`instep sweep release`)",
                    )
        return health.aligned


class _Worker:
    """A worker process, its streams, and their health as last reported."""

    def __init__(
        self,
        number: int,
        process: WorkerProcess[WorkerReport],
        monotonic: Callable[[], float],
    ) -> None:
        self.number = number
        self.process = process
        self._monotonic = monotonic
        self._heard_s = self._reported_s = 0.0
        self.streams: dict[str, StreamHealth] = {}
        self.health: Health | None = None
        self.failure: InstepError | None = None
        """The fatal error with which it has ended."""
        self.silent = True
        """Whether its process has not reported yet."""
        self.kept = False
        """Whether it is kept running: from its first stream on."""
        self._before: dict[str, StreamHealth] = {}
        """What processes that have ended had counted."""

    def clear(self) -> None:
        """It has no streams any more."""
        self.streams, self._before = {}, {}
        self.kept = False
        self.begin()

    def begin(self) -> None:
        """A process begins."""
        self.health = self.failure = None
        self.silent = True
        self._heard_s = self._monotonic()

    def silent_s(self) -> float:
        """For how long it runs and has not reported, in seconds."""
        return 0.0 if self.process.pid is None else self._monotonic() - self._heard_s

    def reported_s(self) -> float:
        """How long ago it reported last, whether it runs or not."""
        return self._monotonic() - self._reported_s

    def store_age_s(self) -> float | None:
        """How long ago its store answered it; None: never yet."""
        if self.health is None or self.health.store_age_s is None:
            return None
        return self.health.store_age_s + self.reported_s()

    def heard_of(self) -> dict[str, StreamHealth]:
        """The health of its streams, with the age of what it said."""
        silent_s, reported_s = self.silent_s(), self.reported_s()
        return {
            id_: msgspec.structs.replace(stream.aged(reported_s), heard_s=silent_s)
            for id_, stream in self.streams.items()
        }

    def heard(self, report: WorkerReport) -> None:
        self._heard_s = self._reported_s = self._monotonic()
        if report.failure is not None:
            self.failure = report.failure.error()
        if report.health is None:
            return
        self.health = report.health
        for stream in report.health.streams:
            if stream.stream not in self.streams:
                continue
            self.streams[stream.stream] = counted_stream(stream, self._before.get(stream.stream))

    def lost(self, why: str) -> None:
        """Its process has ended: what is known of its streams is not of now."""
        self.health = None
        for id_, stream in self.streams.items():
            self.streams[id_] = disconnected(stream, why)
        self._before = dict(self.streams)
