"""Drives the audit of one stream: reads the second connection, and has the store compare."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from instep.audit import (
    Arriving,
    Auditable,
    AuditMarks,
    AuditReport,
    Finding,
    check_auditable,
    check_standing,
)
from instep.errors import AuditError
from instep.ports import Feed, ProvesLife, Sink, Source, Start, StreamInfo
from instep.position import Position
from instep.records import StreamState
from instep.settings import AlignmentSettings

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
    """Audit a stream, and repair what is proven wrong if asked to (TR-548 ST-2.3).

    `found` is told each entity that is wrong. Raises `AuditError`, `SourceError`, `SinkError`.
    """
    check_auditable(stream)
    if not isinstance(sink, Auditable):
        raise AuditError("this kind of store cannot be audited", where=stream.id)
    # The answer also tells the provider's clock.
    await source.state(stream)
    async with sink.audit(stream) as marks, source.feed(stream, Start.OLDEST) as feed:
        reading = _Reading(source, stream, feed, marks, settings, now)
        await reading.until_arrived()
        position: Position | None = None
        rounds = open_ = 0
        while rounds < _ROUNDS and (open_ or not rounds):
            rounds += 1
            stands = await marks.suspect()
            check_standing(stream, stands, position)
            position = stands
            reading.aim(position)
            await reading.until_arrived()
            open_ = await marks.judge(bogus=not reading.unreadable)
        if repair and position is not None:
            await marks.repair(position)
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
    """The second connection."""

    def __init__(
        self,
        source: Source,
        stream: StreamInfo,
        feed: Feed,
        marks: AuditMarks,
        settings: AlignmentSettings,
        now: Callable[[], float],
    ) -> None:
        self.records = 0
        self.unreadable = 0
        self._source, self._stream, self._feed, self._marks = source, stream, feed, marks
        self._tick_s = min(1.0, settings.quiet_s / 4)
        self._now = now
        self._arriving = Arriving(settings.quiet_s, settings.unreached_quiet_s, self._now_us())

    def aim(self, position: Position) -> None:
        self._arriving.aim(position, self._now_us())

    async def until_arrived(self) -> None:
        """Read and mark until the aim is passed."""
        heard_s = self._now()
        while True:
            try:
                async with asyncio.timeout(self._tick_s):
                    delivery = (await self._feed.receive()).opened()
            except TimeoutError:
                if isinstance(self._feed, ProvesLife):
                    await self._feed.ping()
                # A silence that the provider announces says nothing about the head of the log.
                if await self._source.state(self._stream) in _SILENT:
                    self._arriving.silence_from(self._now_us())
                if self._now() - heard_s > _STALLED_S:
                    raise AuditError(
                        f"nothing to be read for {_STALLED_S:g} s, and the log is not at its end",
                        where=self._stream.id,
                        retriable=True,
                    ) from None
            else:
                heard_s = self._now()
                self.records += len(delivery.records)
                self.unreadable += len(delivery.unreadable)
                await self._marks.mark(delivery.records)
                self._arriving.heard(delivery.records, self._now_us())
            unheard_s = self._feed.unheard_s if isinstance(self._feed, ProvesLife) else 0.0
            if self._arriving.arrived(self._us(self._now() - unheard_s)):
                return

    def _now_us(self) -> int:
        return self._us(self._now())

    def _us(self, at_s: float) -> int:
        return int(at_s * 1_000_000) + self._feed.clock_offset_us
