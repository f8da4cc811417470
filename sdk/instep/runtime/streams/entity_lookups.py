"""Asks for single entities: those that something unreadable may be about (A17), and from time to
time each of them (`ConsumerSettings.audit_share`). `instep.alignment.lookups` decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from instep.alignment.audit import Finding
from instep.alignment.lookups import LookupReason, LookupResult, LookupScheduler
from instep.errors import InstepError
from instep.model.alike import agrees, completed
from instep.model.entities import StoredEntity
from instep.model.lookups import EntityProof, LookupAnswer, LookupVerdict
from instep.ports.lookups import EntityRows
from instep.ports.sink import Sink
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.scheduled_audit import Report, text_of
from instep.runtime.streams.worker import StreamWorker

__all__ = ["EntityLookups"]

_LOOK_S: Final = 1.0
_AWAY_S: Final = 10.0
"""The wait after an error of the store."""
_PAGE: Final = 100


class _Place:
    """How far the entities of a stream were asked for, in the order of their rows."""

    def __init__(self) -> None:
        self.after = 0
        self.keys: deque[str] = deque()


class _Stream:
    """One stream that is looked into, while its worker lasts."""

    def __init__(self, worker: StreamWorker, rows: EntityRows, looks: LookupScheduler) -> None:
        self.worker, self.rows, self.looks = worker, rows, looks
        self.classes = worker.stream.shown
        self.attempt = worker.attempt
        self.places = {one: _Place() for one in LookupReason}
        self.entities = 0
        self.skipped = False
        """Whether entities were left out in this cycle: not all is compared then."""


class EntityLookups:
    """One request at a time, and no more of them than `ConsumerSettings.lookups_per_s`; none while
    a stream aligns, or beside a probe of it.
    """

    def __init__(
        self,
        sink: Sink,
        settings: ConsumerSettings,
        workers: Callable[[], Iterable[StreamWorker]],
        *,
        steady: Callable[[], float],
        report: Report,
    ) -> None:
        """`steady` is the clock of the workers."""
        self._sink, self._settings, self._workers = sink, settings, workers
        self._steady, self._report = steady, report
        self._changed = asyncio.Event()
        self._streams: dict[str, _Stream] = {}

    async def run(self) -> None:
        """Ask, one entity after the other, until cancelled."""
        while True:
            if not self._settings.lookups_per_s:
                await self._changed.wait()
            self._changed.clear()
            asked = False
            try:
                for stream in self._followed():
                    asked = await self._next(stream) or asked
            except InstepError:
                # The store is away: its worker says so.
                await asyncio.sleep(_AWAY_S)
            if not asked:
                await asyncio.sleep(_LOOK_S)

    def reconfigure(self, settings: ConsumerSettings) -> None:
        """Take over changed settings; a changed share begins its cycles anew."""
        if self._settings.audit_share != settings.audit_share:
            self._streams.clear()
        self._settings = settings
        self._changed.set()

    def _followed(self) -> list[_Stream]:
        """The streams that may be looked into now."""
        found: dict[str, _Stream] = {}
        for worker in self._workers():
            id_, settings = worker.stream.id, self._settings
            known = self._streams.get(id_)
            if known is None or known.worker is not worker or known.classes != worker.stream.shown:
                rows = self._sink.entity_rows(worker.stream) if worker.stream.shown else None
                if rows is None:
                    continue
                confirm_s = settings.alignment.empty_confirm_s
                looks = LookupScheduler(settings.audit_share, confirm_s, self._steady())
                known = _Stream(worker, rows, looks)
            found[id_] = known
        self._streams = found
        return [one for one in found.values() if one.worker.may_be_looked_into]

    async def _next(self, stream: _Stream) -> bool:
        """Ask for what is due next of a stream. Returns whether anything was."""
        if stream.attempt != stream.worker.attempt:
            stream.attempt = stream.worker.attempt
            stream.looks.attempt_ended(self._steady())
            stream.places[LookupReason.UNPROVEN] = _Place()
        look = stream.looks.due(self._steady(), unproven=stream.worker.health().unproven)
        if look is None:
            return False
        if look.reason is LookupReason.AGAIN:
            await self._ask(stream, look.key)
        elif look.reason is LookupReason.CONTROL:
            key = await self._key(stream, LookupReason.CONTROL, {look.entity_class})
            if key is not None and key != look.key:
                await self._ask(stream, key)
            stream.looks.controlled(look.key)
        else:
            await self._take(stream, look.reason)
        return True

    async def _take(self, stream: _Stream, reason: LookupReason) -> None:
        """Ask for the next entity of those that are unproven, or of all."""
        now_s = self._steady()
        classes = stream.looks.allowed(stream.classes, now_s)
        stream.skipped = stream.skipped or classes != stream.classes
        key = await self._key(stream, reason, classes)
        if reason is LookupReason.UNPROVEN:
            if key is None:
                stream.looks.round_ended(now_s)
        elif key is None:
            stream.looks.nothing_to_sample(now_s)
        else:
            stream.looks.sampled(stream.entities, now_s)
        if key is not None:
            await self._ask(stream, key)

    async def _key(
        self, stream: _Stream, reason: LookupReason, classes: Iterable[str]
    ) -> str | None:
        """The next entity of these classes; after the last one the first again, but for the
        unproven ones, of which None is the end of a round.
        """
        place, wanted = stream.places[reason], frozenset(classes)
        unproven = reason is LookupReason.UNPROVEN
        if place.keys:
            return place.keys.popleft()
        if place.after == 0 and reason is LookupReason.SAMPLE:
            stream.entities = await stream.rows.count(stream.classes)
        page = await stream.rows.page(wanted, place.after, _PAGE, unproven=unproven)
        ended = not page and place.after > 0
        if ended:
            place.after = 0
            if reason is LookupReason.SAMPLE:
                await self._cycle_ended(stream)
            if not unproven:
                page = await stream.rows.page(wanted, 0, _PAGE)
        if not page:
            return None
        place.after = page[-1].row
        place.keys.extend(one.key for one in page)
        return place.keys.popleft()

    async def _cycle_ended(self, stream: _Stream) -> None:
        """Each entity had its turn. Where no audit compares the stream whole, all that is stored
        was compared now.
        """
        stream.entities = await stream.rows.count(stream.classes)
        whole = not stream.skipped and stream.entities == await stream.rows.count(None)
        if whole and not stream.worker.may_be_audited:
            stream.worker.all_looked_at()
        stream.skipped = False

    async def _ask(self, stream: _Stream, key: str) -> None:
        """Ask for one entity, and follow what the answer proves."""
        before = await stream.rows.entity(key)
        answer = None if before is None else await stream.worker.look_up(before)
        stored = None if answer is None else await stream.rows.entity(key)
        if stored is None or answer is None:
            stream.skipped = stream.skipped or before is not None
            stream.looks.gone(key)
            stream.worker.looked_at(key, None)
            return
        await asyncio.sleep(1 / self._settings.lookups_per_s if self._settings.lookups_per_s else 0)
        if not stream.worker.may_be_looked_into:
            return
        result = stream.looks.answered(
            key,
            stored.entity_class,
            stored.token,
            answer,
            self._steady(),
            agrees=answer.verdict is LookupVerdict.SHOWN
            and agrees(answer.body, stored.body, answer.contained),
            known_s=stream.worker.known_s,
        )
        if answer.verdict is LookupVerdict.UNKNOWN:
            stream.skipped = True
        if result is not None:
            self._follow(stream, stored, answer, result)

    def _follow(
        self, stream: _Stream, stored: StoredEntity, answer: LookupAnswer, result: LookupResult
    ) -> None:
        worker = stream.worker
        if not stored.proven:
            body = b""
            if result is LookupResult.STALE:
                body = completed(answer.body, stored.body, answer.contained)
            exists = result is not LookupResult.BOGUS
            worker.prove(EntityProof(stored.key, stored.token, exists, body))
            return
        verdict = result.verdict
        new = worker.looked_at(stored.key, verdict)
        if new and verdict is not None and stream.looks.share:
            finding = Finding(
                stream=worker.stream.id,
                key=stored.key,
                entity_class=stored.entity_class,
                verdict=verdict,
                token=stored.token,
            )
            self._report(worker.stream.id, "entities-wrong", text_of([finding]))
