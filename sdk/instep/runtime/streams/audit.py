"""Drives the audit of one stream: reads over a second connection, and lets the store compare."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from instep.alignment.audit import (
    AuditReport,
    CatchUpDetector,
    Finding,
    check_auditable,
    check_standing,
)
from instep.alignment.settings import AlignmentSettings
from instep.errors import AuditError
from instep.model.position import Position
from instep.model.records import Record, RecordChunk
from instep.model.streams import Mode, Start, StreamInfo, StreamState
from instep.ports.audit import AuditMarks
from instep.ports.sink import Sink
from instep.ports.source import Feed, Source

__all__ = ["audit_stream"]

_ROUNDS = 8
_STALLED_S = 900.0
_SILENT = (StreamState.PAUSED, StreamState.ALIGNING)


async def audit_stream(
    source: Source,
    sink: Sink,
    stream: StreamInfo,
    *,
    settings: AlignmentSettings,
    now: Callable[[], float],
    repair: bool = False,
    found: Callable[[Finding], None] | None = None,
) -> AuditReport:
    """Audit a stream; with `repair`, correct what is proven wrong (TR-548 ST-2.3).

    `found` is called with each wrong entity. Raises `AuditError`, `SourceError`, `SinkError`.
    """
    check_auditable(stream)
    auditing = sink.audit(stream)
    # The response also shows the provider's clock.
    await source.state(stream)
    async with auditing as marks:
        position = await marks.position()
        check_standing(stream, position, None)
        # With a baseline, only the records after the store's position are needed from the log.
        begin = position if stream.mode is Mode.BASELINE and position.token else None
        start = Start.OLDEST if begin is None or begin.token is None else begin.token
        async with source.feed(stream, start) as feed:
            reading = _Reading(source, stream, feed, marks, settings, now, begin)
            if stream.mode is Mode.BASELINE:
                await reading.until_shown()
            await reading.until_arrived()
            rounds = open_ = 0
            while rounds < _ROUNDS and (open_ or not rounds):
                rounds += 1
                suspected_at = await marks.suspect()
                check_standing(stream, suspected_at, position)
                position = suspected_at
                reading.aim(position)
                await reading.until_arrived()
                open_ = await marks.judge(bogus=not reading.unreadable)
        check_standing(stream, await marks.position(), position)
        if repair:
            await marks.repair(position)
        await marks.attest(position)
        if found is not None:
            async for finding in marks.findings():
                found(finding)
        return AuditReport(
            stream=stream.id,
            counts=await marks.counts(),
            records=reading.records,
            unreadable=reading.unreadable,
            rounds=rounds,
        )


class _Reading:
    """The audit's reading: the second connection, and the baseline if the stream has one."""

    def __init__(
        self,
        source: Source,
        stream: StreamInfo,
        feed: Feed,
        marks: AuditMarks,
        settings: AlignmentSettings,
        now: Callable[[], float],
        begin: Position | None,
    ) -> None:
        self.records = 0
        self.unreadable = 0
        self._source, self._stream, self._feed, self._marks = source, stream, feed, marks
        self._tick_s = min(1.0, settings.quiet_s / 4)
        # The log may deliver what a GET shows with a delay.
        self._grace_s = settings.quiet_s if stream.mode is Mode.BASELINE else 0.0
        self._now = now
        self._received_s = now()
        quiet_s, unreached_quiet_s = settings.quiet_s, settings.unreached_quiet_s
        self._catch_up = CatchUpDetector(quiet_s, unreached_quiet_s, self._us(now()), begin)

    def aim(self, position: Position) -> None:
        self._catch_up.aim(position, self._us(self._now() + self._grace_s))

    async def until_shown(self) -> None:
        """Read the baseline and mark it, with the records that arrive meanwhile."""
        showing = asyncio.create_task(self._show())
        try:
            while not showing.done():
                await self._read()
            await showing
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)

    async def _show(self) -> None:
        pages = self._source.baseline(self._stream, self._us(self._now()))
        try:
            async for found in pages:
                chunk = found if isinstance(found, RecordChunk) else RecordChunk(found)
                self.unreadable += len(chunk.unreadable)
                page = [record for record in chunk.records if isinstance(record, Record)]
                known = [record for record in page if record.uuid]
                # Without a uuid (several rows may share one), a row matches no record of the log.
                self.unreadable += len(page) - len(known)
                self.records += len(page)
                await self._marks.mark(known)
        finally:
            if isinstance(pages, AsyncGenerator):
                await pages.aclose()

    async def until_arrived(self) -> None:
        """Read and mark until the position set by `aim` is passed."""
        self._received_s = self._now()
        arrived = False
        while not arrived:
            if self._now() - self._received_s > _STALLED_S:
                raise AuditError(
                    f"nothing to be read for {_STALLED_S:g} s, and the log is not at its end",
                    where=self._stream.id,
                    retriable=True,
                )
            await self._read()
            arrived = self._catch_up.arrived(self._us(self._now() - self._feed.unheard_s))

    async def _read(self) -> None:
        """Mark the records that arrive; if none do, query the state of the stream."""
        try:
            async with asyncio.timeout(self._tick_s):
                chunk = (await self._feed.receive()).decoded()
        except TimeoutError:
            await self._feed.ping()
            # An announced silence proves nothing about the end of the log.
            if await self._source.state(self._stream) in _SILENT:
                self._catch_up.silence_from(self._us(self._now()))
        else:
            self._received_s = self._now()
            self.records += len(chunk.records)
            self.unreadable += len(chunk.unreadable)
            await self._marks.mark([one for one in chunk.records if isinstance(one, Record)])
            self._catch_up.heard(chunk.records, self._us(self._now()))

    def _us(self, at_s: float) -> int:
        return int(at_s * 1_000_000) + self._feed.clock_offset_us
