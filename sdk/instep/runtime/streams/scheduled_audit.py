"""Audits the streams of a consumer from time to time (`ConsumerSettings.audit_share`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from instep.alignment.audit import Finding
from instep.alignment.audit_schedule import AuditSchedule
from instep.errors import AuditError, InstepError, SourceError
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.audit import audit_stream
from instep.runtime.streams.worker import StreamWorker

__all__ = ["ScheduledAudit", "text_of"]

_LOOK_S: Final = 1.0
_NAMED: Final = 3
"""Entities that an event names; the figure counts all."""

Report = Callable[[str, str, str], None]
"""Called with the stream, the kind and the text of an event."""


class ScheduledAudit:
    """One stream at a time, over a second connection, and only while it is aligned: a pass ends
    where the stream is not any more. Nothing is repaired: `instep audit --repair` does that.
    """

    def __init__(
        self,
        source: Source,
        sink: Sink,
        settings: ConsumerSettings,
        workers: Callable[[], Iterable[StreamWorker]],
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        report: Report,
    ) -> None:
        self._source, self._sink = source, sink
        self._settings = settings
        self._changed = asyncio.Event()
        self._workers = workers
        self._now, self._monotonic = now, monotonic
        self._report = report
        self._schedule = AuditSchedule(settings.audit_share)

    async def run(self) -> None:
        """Audit the streams, one after the other, until cancelled."""
        while True:
            if not self._schedule.share:
                await self._changed.wait()
            self._changed.clear()
            workers = {one.stream.id: one for one in self._workers()}
            retention = {id_: one.stream.tombstone_retention_s for id_, one in workers.items()}
            self._schedule.follow(retention, self._monotonic())
            ready = [id_ for id_, one in workers.items() if one.may_be_audited]
            chosen = self._schedule.due(ready, self._monotonic())
            if chosen is not None:
                await self._pass(workers[chosen])
            await asyncio.sleep(_LOOK_S)

    def reconfigure(self, settings: ConsumerSettings) -> None:
        """Take over changed settings. A pass that is under way goes on."""
        if self._settings.audit_share != settings.audit_share:
            self._schedule = AuditSchedule(settings.audit_share)
        self._settings = settings
        self._changed.set()

    async def _pass(self, worker: StreamWorker) -> None:
        """Audit one stream, as long as it stays as it is."""
        stream = worker.stream
        findings: list[Finding] = []
        audit = asyncio.create_task(
            audit_stream(
                self._source,
                self._sink,
                stream,
                settings=self._settings.alignment,
                now=self._now,
                found=findings.append,
            )
        )
        # Where the provider allows one connection only, it closes the first for this one.
        worker.second_connection_opened()
        try:
            while not audit.done() and worker.may_be_audited:
                await asyncio.wait([audit], timeout=_LOOK_S)
        finally:
            audit.cancel()
            (result,) = await asyncio.gather(audit, return_exceptions=True)
        now_s, retention_s = self._monotonic(), stream.tombstone_retention_s
        if isinstance(result, AuditError) and not result.retriable:
            self._schedule.leave_out(stream.id)
            self._report(stream.id, "not-audited", str(result))
            return
        if isinstance(result, SourceError) and "status" in result.data:
            # The provider refuses a second connection: it is asked no more often than that.
            self._schedule.passed(stream.id, retention_s, now_s)
            return
        if isinstance(result, (InstepError, asyncio.CancelledError)):
            # An alignment began meanwhile, or the provider was away: nothing is proven.
            self._schedule.put_off(stream.id, retention_s, now_s)
            return
        if isinstance(result, BaseException):
            raise result
        self._schedule.passed(stream.id, retention_s, now_s)
        worker.audited(findings)
        if findings:
            self._report(stream.id, "entities-wrong", text_of(findings))


def text_of(findings: Sequence[Finding]) -> str:
    """What an event says of entities that are wrong."""
    named = [f"{one.key} ({one.entity_class}) is {one.verdict}" for one in findings[:_NAMED]]
    more = f" and {len(findings) - _NAMED:,} more" if len(findings) > _NAMED else ""
    return f"not as the provider states it: {', '.join(named)}{more}"
