"""A consumer joins one source to one sink: the asyncio runtime that users embed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from instep.alignment.audit import AuditReport, Finding
from instep.conformance import RuleBroken
from instep.errors import InstepError, SweepHeldError
from instep.model.freshness import StreamReport
from instep.model.streams import StreamInfo
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.conformance import LiveConformance
from instep.runtime.health import (
    ConsumerState,
    Health,
    StreamHealth,
    check_readable,
    withdrawn_stream,
)
from instep.runtime.lifecycle import LAST_REPORT_S, REPORTS_WITHIN, SinkService, first_error
from instep.runtime.retry import Environment, late_wait_s
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.assigned_streams import AssignedStreams
from instep.runtime.streams.audit import audit_stream
from instep.runtime.streams.discovery import StreamDiscovery
from instep.runtime.streams.entity_lookups import EntityLookups
from instep.runtime.streams.identification import StreamIdentification
from instep.runtime.streams.last_statements import LastStatements
from instep.runtime.streams.not_offered import NotOfferedStreams
from instep.runtime.streams.scheduled_audit import ScheduledAudit
from instep.runtime.streams.start_order import holds_others_up, streams_before
from instep.runtime.streams.worker import StreamWorker

__all__ = ["Consumer"]

_REPORT_PACE_S = 0.2
"""Shortest time, in seconds, between two reports of how fresh the streams are."""


class Consumer(SinkService):
    """Keeps a sink in step with the streams of a source across losses, restarts and repetitions.

    ::

        async with Consumer("optical-east", source, sink) as consumer:
            await consumer.aligned()
            ...

    Promised, for each stream:

    - Entities and position are one commit. After a crash at any time the store holds exactly what
      an earlier position covers, and the consumer continues after that position.
    - Every record received is applied, ignored because a newer one of its entity is stored, or kept
      in quarantine. None is dropped because of load: back-pressure stops the reading.
    - Records of one entity are applied in the order of its partition. Applying one twice changes
      nothing.
    - When `aligned` returns, the store holds every entity of the provider, and no other, as of some
      time after the call (eventual consistency, TR-548 3.17.1).
    - An entity is removed only because the provider ended it, or because an attempt that read the
      log from its start did not find it; never because of a lost connection or a guess.

    Not promised: order between entities or between streams. A lag beyond the compaction delay loses
    intermediate states, not the last one. While an attempt replays old records, a reader of the
    store may see an entity removed and created again.

    The consumer runs in tasks of the caller's loop. Cancelling it at any await loses nothing. Fatal
    errors are raised by `wait` and `aligned`, and shown by `health`. An error never looks like the
    end of a stream. An error of one stream alone (a 403, say) ends no other: `aligned` raises it,
    `health` shows it, and the stream is tried again late. Streams that appear later are followed.
    They all start at once, or in the order of their classes (`ConsumerSettings.start_order`).
    """

    def __init__(
        self,
        name: str,
        source: Source,
        sink: Sink,
        settings: ConsumerSettings | None = None,
        *,
        environment: Environment | None = None,
        assigned: AssignedStreams | None = None,
        conformance: LiveConformance | None = None,
    ) -> None:
        """Create a consumer; `environment` gives the clock and the jitter, and decides what is
        retried. `conformance` judges the provider meanwhile. `assigned` is for a worker process,
        which follows a part of the streams under the lease of whoever started it.
        """
        super().__init__(name, sink, settings, environment, conformance)
        if conformance is not None:
            conformance.listen(self._note_broken)
        self._assigned = assigned
        if assigned is not None:
            self._pair = None
        self._source = source
        self._discover_now = asyncio.Event()
        self._reselected = False
        """Whether its source may have left streams since the last discovery."""
        self._steady = self._environment.steady()
        self._workers: dict[str, StreamWorker] = {}
        self._statements = LastStatements()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        report = partial(self._emit, "")
        self._discovery = StreamDiscovery(
            source, sink, self._settings, self._environment, report=report, assigned=assigned
        )
        self._identification = StreamIdentification(
            self._discovery, source, sink, self._settings, self._environment, report=self._emit
        )
        self._audits = ScheduledAudit(
            source,
            sink,
            self._settings,
            # Each work of the consumer has workers of its own.
            lambda: self._workers.values(),  # noqa: PLW0108 - see above
            now=self._steady,
            monotonic=self._environment.monotonic,
            report=self._emit,
        )
        self._lookups = EntityLookups(
            sink,
            self._settings,
            lambda: self._workers.values(),  # noqa: PLW0108 - see above
            steady=self._steady,
            report=self._emit,
        )
        self._withdrawn = NotOfferedStreams(self._discovery, sink, report=self._emit)

    def __repr__(self) -> str:
        phases = ", ".join(f"{r.stream.id} {r.health().phase}" for r in self._workers.values())
        return f"<Consumer {self.name}: {self.health().state}{' | ' + phases if phases else ''}>"

    async def aligned(self, timeout_s: float | None = None) -> None:
        """Wait until every selected stream is aligned (TR-548 ST-2.2 step 8).

        Raises the fatal error of the consumer or of one of its streams, `SweepHeldError` if a
        sweep waits for a decision, `UnreadableStreamError` if nothing of a stream can be read, and
        `TimeoutError` after `timeout_s` (None: no timeout). Single records may be unreadable, and
        what they state is missing: `StreamHealth.unreadable`.
        """
        async with asyncio.timeout(timeout_s):
            await self._until(self._is_aligned)

    def health(self) -> Health:
        """The current health of the consumer and of each stream. Never waits."""
        streams = self._read_streams()
        state, error = self._state, self._error_text(self._discovery.last_error)
        if state is ConsumerState.RUNNING and not all(s.connected for s in streams):
            state = ConsumerState.RETRYING
        streams += map(withdrawn_stream, self._withdrawn.streams.values())
        if self._stands_by:
            state, streams = ConsumerState.STANDBY, []
        return Health(
            consumer=self.name,
            state=state,
            error=error,
            streams=tuple(streams),
            left=self._discovery.left,
            pair=self._pair_health(),
            loop_lag_s=self._lag.worst_s,
            store_age_s=self._store_age_s(),
            stale_after_s=self._settings.stale_after_s,
            conformance=self._conformance_report(),
        )

    def reconfigure(
        self, settings: ConsumerSettings, source: Mapping[str, Any] | None, where: str
    ) -> set[str]:
        """See `Service`. What a connection is opened with holds from the next one on."""
        left: set[str] = set()
        if source is not None:
            keys = self._source.reconfigure(source, where)
            left = {f"source.{key}" if key else "source." for key in keys}
            # Whoever assigns streams to a worker process leaves them, too.
            self._reselected = self._assigned is None
            self._discover_now.set()
        self._settings = settings
        self._discovery.settings = self._identification.settings = settings
        self._audits.reconfigure(settings)
        self._lookups.reconfigure(settings)
        for worker in self._workers.values():
            worker.reconfigure(settings)
        return left

    def realign(self, stream: str, reason: str = "asked for") -> None:
        """Begin a new attempt on a stream (TR-548 ST-2.2, client-driven). Raises `KeyError`."""
        self._workers[stream].realign(reason)

    def release_sweep(self, stream: str) -> None:
        """Release a held sweep of a stream (A6). Raises `KeyError`."""
        self._workers[stream].release_sweep()

    async def audit(
        self,
        stream: str | None = None,
        *,
        repair: bool = False,
        found: Callable[[Finding], None] | None = None,
    ) -> list[AuditReport]:
        """Compare the store with the log, over a second connection (TR-548 ST-2.3).

        Audits one stream, or all one after the other, while the consumer runs. `found` is called
        with each proven finding; with `repair` it is also repaired. Raises `AuditError`,
        `SourceError`, `SinkError`, and `KeyError` for an unknown stream.
        """
        audited = self._workers.values() if stream is None else [self._workers[stream]]
        return [
            await audit_stream(
                self._source,
                self._sink,
                worker.stream,
                settings=self._settings.alignment,
                now=self._steady,
                repair=repair,
                found=found,
            )
            for worker in list(audited)
        ]

    # -- inner parts -----------------------------------------------------------------------------

    async def _close(self) -> None:
        await self._source.close()

    async def _work(self) -> None:
        """Follow the streams until cancelled. Raises the first fatal error."""
        self._state = ConsumerState.STARTING
        self._workers, self._tasks = {}, {}
        self._withdrawn.forget()
        streams = await self._discovery.first(self._settle_withdrawn)
        self._state = ConsumerState.RUNNING
        try:
            async with asyncio.TaskGroup() as group:
                self._start(streams, group)
                if self._discovery.restart_suggested:
                    for worker in self._workers.values():
                        worker.restart_suggested()
                group.create_task(self._report_freshness())
                group.create_task(self._watch_monitors())
                group.create_task(self._audits.run())
                group.create_task(self._lookups.run())
                if self._assigned is None:
                    group.create_task(self._identification.run(group, self._identified(group)))
                await self._discover_further(group)
        except ExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            # Who reads the store learns that nobody follows the streams now.
            with contextlib.suppress(InstepError, TimeoutError):
                async with asyncio.timeout(LAST_REPORT_S):
                    await self._sink.report(self._reports(), self._settings.stale_after_s)
                    await self._tell_conformance(at_once=True)

    def _note_broken(self, stream: str, rule: str, broken: RuleBroken) -> None:
        """A rule was seen broken by a stream; what is of no stream concerns all of them."""
        for worker in self._workers.values():
            if stream in {"", worker.stream.uuid}:
                worker.note_broken(rule, broken)

    async def _report_freshness(self) -> None:
        """Tell the store how fresh the streams are: from time to time, and when that changes."""
        stale_after_s = self._settings.stale_after_s
        told: Sequence[tuple[object, ...]] = []
        due_s = 0.0
        while True:
            changed, now_s = self._changed, self._environment.monotonic()
            reports = self._reports()
            says = [
                (one.stream, one.connected, one.caught_up, one.readable, one.trouble, one.monitor)
                for one in reports
            ]
            if reports and (says != told or now_s >= due_s):
                # A store that is away hears nothing: then they are stale, as they should be.
                with contextlib.suppress(InstepError):
                    await self._tell_store(reports)
                told, due_s = says, now_s + stale_after_s / REPORTS_WITHIN
                # Each report is a commit, and what starts, or flaps, changes often.
                await asyncio.sleep(_REPORT_PACE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(stale_after_s / REPORTS_WITHIN):
                    await changed.wait()

    async def _watch_monitors(self) -> None:
        """Ask from time to time what the provider says of our reading, once something is read."""
        await self._until(lambda: any(one.health().caught_up for one in self._workers.values()))
        while True:
            for worker in list(self._workers.values()):
                await worker.read_monitor()
            self._wake()
            await asyncio.sleep(self._settings.monitor_every_s)

    def _reports(self) -> list[StreamReport]:
        return [worker.health().report for worker in self._workers.values()]

    def _start(self, streams: Sequence[StreamInfo], group: asyncio.TaskGroup) -> None:
        workers = {stream.id: self._worker(stream) for stream in streams}
        self._workers |= workers
        for id_, worker in workers.items():
            task = group.create_task(self._follow(worker), name=f"instep {self.name} {id_}")
            self._tasks[id_] = task

    def _identified(self, group: asyncio.TaskGroup) -> Callable[[StreamInfo], None]:
        """Follows a stream as soon as it is known which one it is. A worker that has lost it
        discovers it by itself; one that has not is told.
        """

        def follow(stream: StreamInfo) -> None:
            self._withdrawn.found(stream.id)
            if stream.id in self._workers:
                self._workers[stream.id].found(stream)
            else:
                self._start([stream], group)

        return follow

    async def _follow(self, worker: StreamWorker) -> None:
        """Follow one stream. What is fatal for it alone ends it for long, while others go on."""
        await self._turn(worker)
        while True:
            worker.failure = None
            try:
                await worker.run()
            except InstepError as error:
                others = [one for one in self._workers.values() if one is not worker]
                if error.retriable or not error.stream_only:
                    raise
                if all(one.failure is not None for one in others):
                    raise
                worker.failure = error
                self._emit(worker.stream.id, "stream-failed", str(error))
            await asyncio.sleep(late_wait_s(self._settings, self._environment))

    async def _turn(self, worker: StreamWorker) -> None:
        """Wait for the streams that come before it in the order of starting (ST-4.1)."""
        order = self._settings.start_order

        def first() -> list[str]:
            before = streams_before(worker.stream, self._workers.values(), order)
            return [one.stream.id for one in before if holds_others_up(one.health())]

        if waits_for := first():
            self._emit(worker.stream.id, "waiting", f"for {', '.join(waits_for)}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.start_wait_s):
                    await self._until(lambda: not first())

    async def _discover_further(self, group: asyncio.TaskGroup) -> None:
        """Follow the streams that appear while the consumer runs (TR-548 3.6.7)."""

        def followed() -> list[StreamInfo]:
            return [one.stream for one in self._workers.values()]

        changed = self._discover_now if self._assigned is None else self._assigned.changed
        async for found in self._discovery.appearing(followed, changed):
            await self._settle_withdrawn()
            self._leave()
            for id_, stream in self._discovery.named.items():
                if id_ in self._workers:
                    self._workers[id_].found(stream)
            # Meanwhile one of them may have been identified, and is followed.
            new = [stream for stream in found if stream.id not in self._workers]
            for stream in new:
                self._emit(stream.id, "stream-found", "a stream that was not offered before")
            self._start(new, group)

    async def _settle_withdrawn(self) -> None:
        """Stop following what is not stored any more: it was not offered, and is retired."""
        if self._assigned is None:
            gone = await self._withdrawn.settle(self._read_streams())
        else:
            gone = [id_ for id_ in self._workers if id_ not in self._assigned.ids]
        for id_ in gone:
            self._workers.pop(id_, None)
            if (task := self._tasks.pop(id_, None)) is not None:
                task.cancel()

    def _leave(self) -> None:
        """Stop following the streams that were left by a changed selection."""
        if not self._reselected:
            return
        self._reselected = False
        for id_ in [id_ for id_ in self._workers if id_ not in self._discovery.named]:
            self._workers.pop(id_)
            if (task := self._tasks.pop(id_, None)) is not None:
                task.cancel()
            self._emit(id_, "stream-left", "it is not selected any more")

    def _read_streams(self) -> list[StreamHealth]:
        """The health of the streams that are offered."""
        withdrawn = self._withdrawn.streams
        workers = [one.health() for id_, one in self._workers.items() if id_ not in withdrawn]
        return workers + self._identification.health()

    def _worker(self, stream: StreamInfo) -> StreamWorker:
        return StreamWorker(
            stream,
            self._source,
            self._sink,
            self._settings,
            self._environment,
            self._steady,
            report=self._emit,
            rediscover=lambda gone: self._discovery.again(gone, self._workers),
            statements=self._statements,
        )

    def _is_aligned(self) -> bool:
        health = self.health()
        for worker in self._workers.values() if health.streams else ():
            if worker.failure is not None:
                raise worker.failure
            check_readable(worker.health())
            if worker.sweep_held:
                raise SweepHeldError(
                    "a sweep is held: it would remove more than the guard allows",
                    where=worker.stream.id,
                    hint="compare with the provider (`instep audit`),"
                    " then call release_sweep or realign",
                )
        return health.aligned
