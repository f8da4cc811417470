"""Drives one stream: opens it, reads it, commits, and executes the effects of the alignment.

`instep.alignment.machine` decides about attempts and sweeps, `instep.runtime.retry` about retries.
One task owns the alignment; others read the next records meanwhile and query the state of a silent
stream (`instep.runtime.streams.read_ahead`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from instep.alignment.audit import Finding, Verdict
from instep.alignment.commit_batches import is_incremental
from instep.alignment.continuity import partition_of
from instep.alignment.effects import EstimateSweep, Notice, ProbeOldest, ReadBaseline, Reopen
from instep.alignment.lookups import WrongEntities
from instep.alignment.machine import Alignment, AlignmentStatus
from instep.alignment.reading_progress import ReadingProgress
from instep.conformance import RuleBroken
from instep.errors import InstepError, SinkError, SourceError, StreamGoneError, TokenRefusedError
from instep.model.batches import Batch
from instep.model.entities import StoredEntity
from instep.model.freshness import ProviderMonitor
from instep.model.lookups import EntityProof, LookupAnswer, LookupVerdict
from instep.model.position import Phase, Position
from instep.model.records import RecordChunk, RecordHeader
from instep.model.streams import Start, StreamInfo, StreamState
from instep.ports.sink import Sink
from instep.ports.source import Feed, Source
from instep.runtime.health import StreamHealth
from instep.runtime.retry import Environment, ReconnectPacing, is_retried_late
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.ages import StreamAges
from instep.runtime.streams.last_statements import LastStatements
from instep.runtime.streams.read_ahead import ReadAhead
from instep.runtime.tracing import Tracing

__all__ = ["StreamWorker"]

_log: Final = logging.getLogger("instep.streams")
_CLOCK_NOISE_US = 100_000
"""A clock that differs by no more was not set."""
_SAMPLE_BYTES = 80
_REASON_BYTES = 200
_REFRESH_S = 10.0
"""Longest wait, in seconds, for what is declared of a stream before it is opened again."""
_DISPLACED_S = 5.0
"""A first connection that is closed so soon after a second one was opened was closed for it."""
_BOTH_S = 1.0
"""Two connections that end within this time, in seconds, were lost together."""

Report = Callable[[str, str, str, Mapping[str, int]], None]
"""Called with the stream, the kind, the text and the ids of an event."""


class _ReopenStream(Exception):
    """The alignment requests that the stream is opened again."""


class StreamWorker:
    """Keeps one stream aligned until it is cancelled or fails with a fatal error.

    Cancelling `run` at any await leaves the store as the last commit left it.
    """

    def __init__(  # noqa: PLR0913, PLR0915 - its consumer makes it
        self,
        stream: StreamInfo,
        source: Source,
        sink: Sink,
        settings: ConsumerSettings,
        environment: Environment,
        now: Callable[[], float],
        *,
        report: Report,
        rediscover: Callable[[StreamInfo], Awaitable[StreamInfo]],
        statements: LastStatements | None = None,
    ) -> None:
        """`statements`: what the other streams of the consumer have stated."""
        self.stream = stream
        self._source = source
        self._sink = sink
        self._settings = settings
        self._now = now
        self._environment = environment
        self._report = report
        self._rediscover = rediscover
        self._left_s = now()
        """When the last connection ended."""
        self._suggests_restart = False
        """Whether an error since the last commit suggests that the provider was restarted."""
        self._probed_s: float | None = None
        """When a second connection was opened beside the present one."""
        self._wrong = WrongEntities()
        self._proofs: list[EntityProof] = []
        """What single requests have proven, and the next commit says."""
        self._probing = False
        self._lookup: asyncio.Task[LookupAnswer | None] | None = None
        self._statements = statements or LastStatements()
        self._core: Alignment | None = None
        self._feed: Feed | None = None
        self._read_ahead: ReadAhead | None = None
        self.failure: Exception | None = None
        """The error that has ended it, while other streams of the consumer go on."""
        self._clock_offset_us = stream.clock_offset_us
        self._dated_by: tuple[int, int] | None = None
        """`_clock` as the last baseline was dated by it."""
        self._gone = False
        self._moved_to: StreamInfo | None = None
        """What it is found to be now, where that is to be read instead."""
        self._connected_before = False
        self._opened_s = 0.0
        """When the stream was last opened."""
        self._read_s = 0.0
        """When the last readable record came."""
        self._ages = StreamAges(now)
        self._tracing = Tracing(stream=stream.id)
        self._realign_reason = ""
        """The reason of a requested realignment, kept while the position is unknown."""
        self._feed_realign = ""
        """Why the feed of this connection requested a realignment."""
        self._position = Position()
        """The committed position, as last known."""
        self._ask_release_s = 0.0
        """When the store is asked next whether a held sweep was released."""
        self._progress = ReadingProgress()
        self._pacing = ReconnectPacing(settings, environment)
        self._no_progress = ""
        """How far the last connections came, where they came no further than those before."""
        self._last_error = ""
        self._succeeded = False
        """Whether anything of this stream was ever committed, also by an earlier process."""
        self._records = 0
        self._quarantined = 0
        self._gave_way = 0
        self._deviations: dict[str, int] = {}
        self._broken: dict[str, int] = {}
        """Rules that were seen broken since the last chunk …"""
        self._broken_samples: dict[str, bytes] = {}
        """… and what was found first."""
        self._monitor: ProviderMonitor | None = None

    def __repr__(self) -> str:
        health = self.health()
        link = "connected" if health.connected else health.last_error or "not connected"
        return f"<StreamWorker {self.stream.id}: {health.phase}, attempt {health.attempt}, {link}>"

    async def run(self) -> None:
        """Connect, and reconnect, until cancelled. Raises the fatal error."""
        while True:
            wait_s = await self._connection()
            await asyncio.sleep(wait_s)

    def release_sweep(self) -> None:
        """Release a held sweep (A6). Raises `IllegalTransition` if none is held."""
        if self._core is not None:
            self._core.release_sweep()

    @property
    def sweep_held(self) -> bool:
        """Whether a sweep is held and was not released."""
        return self._core is not None and self._core.status().sweep_held

    def realign(self, reason: str) -> None:
        """Request a new attempt (TR-548 ST-2.2, client-driven)."""
        if self._core is None:
            self._realign_reason = reason
        else:
            self._core.realign(reason)
            if self._read_ahead is not None:
                self._read_ahead.wake()

    @property
    def may_be_audited(self) -> bool:
        """Whether its store is in step now, so that an audit proves something, and the provider is
        not known to allow one connection only.
        """
        core = self._core
        if core is None or self._feed is None or not core.caught_up:
            return False
        continuity = core.position.continuity
        return core.position.phase is Phase.ALIGNED and not continuity.second_connection_refused

    def second_connection_opened(self) -> None:
        """A second connection is opened beside this one. Where this one is closed for it, the
        provider allows one only (A2).
        """
        self._probed_s = self._now()

    def audited(self, findings: Sequence[Finding]) -> None:
        """An audit has compared all of the stream, and has found this."""
        self._wrong.compared(findings)
        self._ages.audited()

    @property
    def may_be_looked_into(self) -> bool:
        """Whether single entities may be asked for: its store is in step, and no probe is under
        way.
        """
        core = self._core
        aligned = core is not None and core.caught_up and core.position.phase is Phase.ALIGNED
        return aligned and self._feed is not None and not self._probing

    @property
    def attempt(self) -> int:
        """The attempt that has aligned it."""
        return self._position.attempt

    @property
    def known_s(self) -> float:
        """Up to when nothing of the stream is missing, by the clock of the worker. Where a silent
        peer cannot be told from one that is gone, no such time is known, and now counts.
        """
        health = self.health()
        lacks_s = health.behind_s if health.heard_within_s is not None else 0.0
        return self._now() - (lacks_s or 0.0)

    def restart_suggested(self) -> None:
        """Something suggests that the provider was restarted since the last connection (A2)."""
        self._suggests_restart = True
        if self._core is not None:
            self._core.restart_suggested()

    def found(self, stream: StreamInfo) -> None:
        """A discovery has found it so. Under another uuid, nothing may ever come of what is read
        now: it is left for that (A20).
        """
        moved = stream.endpoint == self.stream.endpoint and stream.uuid != self.stream.uuid
        if moved and self._feed is not None:
            self._moved_to = stream
            self.realign("the provider offers the stream under another uuid")

    async def look_up(self, entity: StoredEntity) -> LookupAnswer | None:
        """Ask for one entity; None: it cannot be asked for, or the stream needs a probe now."""
        self._lookup = asyncio.create_task(self._source.look_up(self.stream, entity))
        try:
            async with asyncio.timeout(_REFRESH_S):
                await asyncio.wait([self._lookup])
            return None if self._lookup.cancelled() else self._lookup.result()
        except TimeoutError:
            return LookupAnswer(LookupVerdict.UNKNOWN, reason=f"no answer in {_REFRESH_S:g} s")
        except SourceError as error:
            return LookupAnswer(LookupVerdict.UNKNOWN, reason=str(error))
        finally:
            self._lookup.cancel()

    def looked_at(self, key: str, verdict: Verdict | None) -> bool:
        """One entity was compared by itself; None: it is right. Returns whether it is found wrong
        for the first time.
        """
        return self._wrong.looked(key, verdict)

    def all_looked_at(self) -> None:
        """Each entity was compared by itself."""
        self._ages.audited()

    def prove(self, proof: EntityProof) -> None:
        """Commit what was proven of a single entity (A17)."""
        self._proofs.append(proof)
        if self._read_ahead is not None:
            self._read_ahead.wake()

    def reconfigure(self, settings: ConsumerSettings) -> None:
        """Take over changed settings. What a connection is opened with holds from the next on."""
        self._settings = self._pacing.settings = settings
        if self._core is not None:
            self._core.reconfigure(settings.alignment)

    async def read_monitor(self) -> None:
        """Ask the provider what it says of our reading (TR-548 3.18). It is an extra: a provider
        that has none, or does not answer, costs nothing.
        """
        if self._feed is None:
            return
        before, self._monitor = self._monitor, None
        with contextlib.suppress(InstepError, TimeoutError):
            async with asyncio.timeout(_REFRESH_S):
                self._monitor = await self._source.monitor(self.stream)
        found = self._monitor
        if found is not None and found.difference and (before is None or not before.difference):
            self._tell("monitor-differs", found.difference)

    def note_broken(self, rule: str, broken: RuleBroken) -> None:
        """A rule was seen broken: it is counted as a deviation with the next chunk."""
        self._broken[rule] = self._broken.get(rule, 0) + 1
        self._broken_samples.setdefault(rule, broken.reason.encode()[:_REASON_BYTES])

    def _status(self) -> AlignmentStatus:
        return AlignmentStatus() if self._core is None else self._core.status()

    def health(self) -> StreamHealth:
        status = self._status()
        known_us = 0 if self._core is None else self._core.lag.watermark_us
        health = StreamHealth(
            stream=self.stream.id,
            phase=status.phase,
            attempt=status.attempt,
            unproven=status.unproven,
            caught_up=status.caught_up,
            records=self._records,
            read_delay_s=status.read_delay_s,
            fidelity=status.fidelity,
            attempts_without_alignment=self._position.unaligned_attempts,
            unreadable=status.unreadable,
            refused=status.refused,
            readable=status.readable,
            refusal=status.refusal,
            opened_at_us=int(self._opened_s * 1_000_000),
            read_at_us=int(self._read_s * 1_000_000),
            stale_after_s=self._settings.stale_after_s,
            no_progress="" if status.phase is Phase.ALIGNED else self._no_progress,
            connected=self._feed is not None,
            last_error=self._last_error,
            deviations=dict(self._deviations),
            quarantined=self._quarantined,
            compaction_delay_s=self.stream.compaction_delay_s,
            tombstone_retention_s=self.stream.tombstone_retention_s,
            unprovable=tuple(sorted(self.stream.unprovable)),
            endpoint=self.stream.endpoint,
            failed=self.failure is not None,
            monitor=self._monitor,
            wrong=self._wrong.counts(),
        )
        known_s = (known_us - self._clock_offset_us) / 1e6 if known_us else 0.0
        return self._ages.add_to(health, status, known_s)

    def _tell(self, kind: str, text: str) -> None:
        at = self._position
        self._report(self.stream.id, kind, text, {"attempt": at.attempt, "ordinal": at.ordinal})

    # -- one connection --------------------------------------------------------------------------

    async def _connection(self) -> float:
        """Open the stream and follow it. Returns the wait in seconds before the next connection.

        Raises the error that is fatal, or the last one of too many.
        """
        opened_s: float | None = None
        failure: Exception | None = None
        try:
            core = await self._prepared()
            start = core.start(self._provider_us())
            async with self._source.feed(self.stream, start) as feed:
                opened_s = self._now()
                await self._follow(core, feed, start)
        except _ReopenStream:
            pass
        except Exception as error:
            self._failed(error, opened=opened_s is not None)
            if self._environment.process_error(error) is not None:
                raise
            failure = error
        finally:
            if opened_s is not None:
                self._left_s = self._now()
            self._ages.disconnected(self._status())
            self._feed = self._read_ahead = None
            if self._core is not None:
                self._core.closed()
        wait_s = self._pace(opened_s, failure)
        if failure is not None and self._pacing.exhausted:
            raise failure
        return wait_s

    def _pace(self, opened_s: float | None, failure: Exception | None) -> float:
        """The wait before the next connection; tells where there is no progress (A16)."""
        reason, self._feed_realign = self._feed_realign, ""
        lasted_s = 0.0 if opened_s is None else self._now() - opened_s
        if opened_s is not None:
            self._progress.ended(self._position)
        aligned = self._position.phase is Phase.ALIGNED
        # What a feed asks for is no progress, whatever was committed before.
        progress = not self._progress.fruitless and not reason
        wait_s = self._pacing.wait_s(
            fruitful=lasted_s >= self._settings.healthy_after_s and (progress or aligned),
            reopens=failure is None,
            stalled=self._progress.stalled,
            late=is_retried_late(failure),
        )
        if reason and self._pacing.reopenings > 1:
            self._last_error = reason
            times = self._pacing.reopenings
            self._no_progress = f"realigned {times} times in a row: {reason}"
        elif opened_s is not None and self._progress.stalled:
            self._no_progress = (
                f"{self._progress.fruitless} connections in a row came no further; the last read"
                f" {self._position.attempt_records:,} records of attempt {self._position.attempt}"
                f" in {lasted_s:,.1f} s"
            )
            if failure is not None:
                self._no_progress += f": {self._last_error}"
        else:
            self._no_progress = ""
            return wait_s
        self._tell("no-progress", self._no_progress)
        return wait_s

    async def _prepared(self) -> Alignment:
        if self._gone:
            self._adopt(await self._rediscover(self.stream))
            self._gone = False
        elif self._moved_to is not None:
            self._adopt(self._moved_to)
        elif self._connected_before:
            # What is declared may wait, the stream may not.
            with contextlib.suppress(SourceError, TimeoutError):
                async with asyncio.timeout(_REFRESH_S):
                    await self._refresh()
        self._moved_to = None
        if self._core is None:
            self._position = await self._sink.position(self.stream)
            self._succeeded = self._succeeded or self._position.ordinal > 0
            self._core = Alignment(
                self.stream,
                self._position,
                self._settings.alignment,
                latest_only=self._sink.latest_only,
                marks_keys=self._sink.marks_keys,
            )
            if self._suggests_restart:
                self._core.restart_suggested()
            if self._realign_reason:
                self._core.realign(self._realign_reason)
                self._realign_reason = ""
        return self._core

    async def _refresh(self) -> None:
        """Adopt what is declared of the stream now."""
        try:
            found = await self._source.refresh(self.stream)
        except StreamGoneError:
            # A provider that was restarted may give its streams other uuids.
            self.restart_suggested()
            found = await self._rediscover(self.stream)
        self._adopt(found)

    def _adopt(self, found: StreamInfo) -> None:
        """Follow the stream as it was found now."""
        if _log_of(found) != _log_of(self.stream):
            # The log or its retentions differ: the alignment begins from the committed position. A
            # requested realignment stays requested until its attempt has begun.
            if self._core is not None:
                self._realign_reason = self._core.realign_reason
            self._core = None
        self.stream = found
        self._clock_offset_us = found.clock_offset_us

    def _failed(self, error: Exception, *, opened: bool) -> None:
        self._last_error = str(error) or type(error).__name__
        if isinstance(error, SourceError):
            self._note_restart(error)
        if self._succeeded and isinstance(error, InstepError):
            error.retry_late()
        if isinstance(error, TokenRefusedError) and self._core is not None:
            self._core.token_refused()
        elif isinstance(error, StreamGoneError) or (isinstance(error, SourceError) and not opened):
            # A stream that cannot be opened may have moved (TR-548 ST-4.2).
            self._gone = True
        elif isinstance(error, SinkError):
            # The batch may still be durable: only the store knows the position. A requested
            # realignment is not stored, so it is kept here.
            if self._core is not None:
                self._core.closed()
                self._realign_reason = self._core.realign_reason
            self._core = None
        self._tell("disconnected", self._last_error)

    def _note_restart(self, error: SourceError) -> None:
        """Note what the end of a connection, or an opening that failed, suggests (A2)."""
        if error.suggests_restart:
            self.restart_suggested()
        probed_s, self._probed_s = self._probed_s, None
        if probed_s is not None and self._now() - probed_s <= _DISPLACED_S and self._core:
            self._core.second_connection_refused()

    async def _follow(self, core: Alignment, feed: Feed, start: str | Start) -> None:
        self._feed = feed
        self._probed_s = None
        # It holds for the whole connection: a new offset would move what was heard before.
        self._clock_offset_us = feed.clock_offset_us
        self._connected_before = True
        self._feed_realign = ""
        self._opened_s = self._now()
        core.opened(
            self._provider_us(), feed.clock_error_us, left_us=self._provider_us(self._left_s)
        )
        self._last_error = ""
        self._tell("connected", f"from {_place_of(start)}")
        read_ahead = self._read_ahead = ReadAhead(
            feed,
            self._source,
            self.stream,
            self._settings,
            self._now,
            compacts=self._sink.latest_only and not is_incremental(self.stream),
        )
        self._ages.connected(feed, read_ahead)
        self._tracing.look()
        async with read_ahead.listening():
            await self._carry_out(core)
            while True:
                wait_s = 0.0 if core.has_pending_commit else read_ahead.tick_s
                chunk = await read_ahead.take(wait_s)
                if chunk is None:
                    await self._handle(core, read_ahead, None)
                else:
                    with self._tracing.chunk(chunk, read_ahead.taken_s):
                        await self._handle(core, read_ahead, chunk)
                if self._proofs:
                    await self._commit_proofs(core)
                phase = core.position.phase
                read_ahead.aligned = core.caught_up and phase is Phase.ALIGNED
                if phase is Phase.SWEEP_HELD or core.awaits_confirmation:
                    await self._ask_for_release(core)

    async def _handle(
        self, core: Alignment, read_ahead: ReadAhead, chunk: RecordChunk | None
    ) -> None:
        if chunk is not None and chunk.realign:
            self._feed_realign = chunk.realign
        if self._broken and chunk is not None:
            chunk = self._with_broken(chunk)
        again = True
        while again:
            since_s, until_s = read_ahead.silence_s()
            core.listened(self._provider_us(since_s), self._provider_us(until_s))
            if chunk is None:
                batch = core.tick(
                    self._provider_us(),
                    read_ahead.state,
                    stated_elsewhere_us=self._statements.elsewhere_us(self.stream),
                )
            else:
                batch = core.receive(chunk, self._provider_us())
            if batch is not None:
                await self._commit(core, batch)
                if chunk is not None and chunk.records:
                    self._read_s = self._now()
            again = await self._carry_out(core)

    def _with_broken(self, chunk: RecordChunk) -> RecordChunk:
        """The chunk with the rules that were seen broken before it, as deviations."""
        deviations = {**chunk.deviations, **self._broken}
        samples = {**chunk.samples, **self._broken_samples}
        self._broken, self._broken_samples = {}, {}
        return msgspec.structs.replace(chunk, deviations=deviations, samples=samples)

    async def _commit_proofs(self, core: Alignment) -> None:
        proofs, self._proofs = tuple(self._proofs), []
        batch = core.proven_singly(proofs)
        if batch is not None:
            await self._commit(core, batch)
            await self._carry_out(core)

    async def _commit(self, core: Alignment, batch: Batch) -> None:
        with self._tracing.commit(batch), self._ages.committing():
            result = await self._sink.commit(batch)
        self._succeeded = True
        self._suggests_restart = self._suggests_restart and not core.is_proven
        # Counts records of the log, also those that were compacted; baseline rows have no place in
        # it.
        stated = batch.position.records - core.durable.records
        self._records += stated or len(batch.records)
        if batch.records:
            self._statements.note(self.stream, self._provider_us())
        self._quarantined += len(batch.unreadable)
        if result.gave_way and not self._gave_way:
            text = "the quarantine is full: its oldest records give way to others"
            self._tell("quarantine-full", text)
        self._gave_way += result.gave_way
        for kind, times in batch.deviations.items():
            if kind not in self._deviations:
                sample = batch.samples.get(kind)
                text = kind if sample is None else f"{kind}: {ascii(sample[:_SAMPLE_BYTES])[1:]}"
                self._tell("deviation", text)
            self._deviations[kind] = self._deviations.get(kind, 0) + times
        core.committed(batch, result)
        at = self._position = core.durable
        if _log.isEnabledFor(logging.DEBUG):
            what = (self.stream.id, at.ordinal, at.attempt, len(batch.records), at.token)
            _log.debug("%s: commit %d of attempt %d is durable: %d records up to %s", *what)
        if self._feed is not None:
            self._feed.committed(core.durable)

    async def _carry_out(self, core: Alignment) -> bool:
        """Execute the effects of the alignment. True: the chunk must be passed to the alignment
        again.
        """
        again = False
        while effects := core.effects():
            for effect in effects:
                match effect:
                    case Notice():
                        self._tell(effect.kind, effect.text)
                    case ProbeOldest():
                        await self._probe(core, effect.partition)
                        again = True
                    case EstimateSweep():
                        if core.compares_baseline and await self._clock_was_set_back():
                            core.realign("the provider's clock was set back after the baseline")
                            continue
                        estimate = await self._sink.estimate_sweep(self.stream.id, effect.attempt)
                        # The held sweep may have been released while the store counted.
                        if core.position.phase is not Phase.SWEEPING:
                            core.sweep_estimated(estimate)
                    case ReadBaseline():
                        await self._baseline(core)
                    case Reopen():
                        raise _ReopenStream(effect.reason)
        return again

    async def _probe(self, core: Alignment, partition: str | None) -> None:
        """Read the oldest record of the log over a second connection (A2)."""
        read_ahead = self._read_ahead
        assert read_ahead is not None
        opened = False
        self._probed_s = None
        self._probing = True
        if self._lookup is not None:
            self._lookup.cancel()
        try:
            async with self._source.probe(self.stream) as feed:
                opened = True
                self._probed_s = self._now()
                oldest = await self._oldest(feed, partition)
        except (SourceError, TimeoutError) as error:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BOTH_S):
                    await read_ahead.ended.wait()
            if read_ahead.ended.is_set():
                # It ended with the first one: the doubt is decided on the next connection.
                self._probed_s = None
                raise
            refused = opened or (isinstance(error, SourceError) and "status" in error.data)
            core.probe_failed(refused=refused)
            return
        finally:
            self._probing = False
        core.probed(oldest)

    async def _oldest(self, feed: Feed, partition: str | None) -> RecordHeader | None:
        """The first record of a partition, None: of any; None where it stays silent."""
        settings = self._settings.alignment
        until_s = self._now() + settings.unreached_quiet_s
        while True:
            try:
                async with asyncio.timeout(settings.quiet_s):
                    chunk = await feed.receive()
            except TimeoutError:
                state = StreamState.UNKNOWN
                with contextlib.suppress(InstepError):
                    state = await self._source.state(self.stream)
                if state is StreamState.ACTIVE or self._now() >= until_s:
                    return None
                continue
            for record in chunk.records:
                if partition is None or partition_of(record) == partition:
                    return record

    async def _baseline(self, core: Alignment) -> None:
        """Read current state while the read-ahead buffers the stream: its bound stops the reading
        of the stream, not of the baseline.
        """
        self._dated_by = self._clock
        _, error_us = self._clock
        pages = self._source.baseline(self.stream, max(0, self._provider_us() - error_us))
        try:
            async for page in pages:
                await self._commit(core, core.baseline_page(page))
        finally:
            # A commit that fails must not leave a request open until garbage is collected.
            if isinstance(pages, AsyncGenerator):
                await pages.aclose()
        core.baseline_read(self._provider_us())

    async def _clock_was_set_back(self) -> bool:
        """Whether the provider's clock shows less than it would have run to since the baseline was
        dated, also by another connection. Of a baseline that another process has read, only the
        time since our connection is known.
        """
        _, error_us = self._clock
        offset_us, dated_error_us = self._dated_by or self._clock
        try:
            async with asyncio.timeout(_REFRESH_S):
                found = await self._source.refresh(self.stream)
        except (SourceError, TimeoutError):
            return False
        if found is self.stream:
            return False
        return offset_us - found.clock_offset_us > max(error_us, dated_error_us) + _CLOCK_NOISE_US

    # -- beside it -------------------------------------------------------------------------------

    async def _ask_for_release(self, core: Alignment) -> None:
        """Check from time to time whether another process has released the held sweep (`instep
        sweep release`), or has confirmed that what the provider does not state is gone (A19).
        """
        waits = self.sweep_held or core.awaits_confirmation
        if not waits or self._now() < self._ask_release_s:
            return
        self._ask_release_s = self._now() + self._settings.poll_state_s
        with contextlib.suppress(InstepError):
            released = await self._sink.is_sweep_released(self.stream.id, core.position.attempt)
            if released and core.awaits_confirmation:
                core.confirm_empty()
            elif released and self.sweep_held:
                self.release_sweep()

    @property
    def _clock(self) -> tuple[int, int]:
        """The offset of the provider's clock as this connection shows it, and the error of that."""
        return self._clock_offset_us, self._feed.clock_error_us if self._feed is not None else 0

    def _provider_us(self, at_s: float | None = None) -> int:
        """Convert a time of our clock in seconds (None: now) to the provider's clock in
        microseconds.
        """
        at_s = self._now() if at_s is None else at_s
        return int(at_s * 1_000_000) + self._clock_offset_us


def _place_of(start: str | Start) -> str:
    """Where a stream was opened, for an event."""
    if start is Start.LATEST:
        return "the latest record"
    return "the start" if start is Start.OLDEST else start


def _log_of(stream: StreamInfo) -> StreamInfo:
    """What is declared of the log itself, without where it is found and what the clock shows."""
    return msgspec.structs.replace(stream, clock_offset_us=0, details={})
