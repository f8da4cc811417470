"""`instep follow --entities`: what is true of each entity, kept in memory while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, cast

from instep.alignment.settings import AlignmentSettings
from instep.config.file import PluginConfiguration
from instep.config.plugins import build_sink
from instep.model.batches import Batch, CommitResult
from instep.model.entities import Change
from instep.model.position import Position
from instep.model.streams import Retirement, StreamInfo, SweepEstimate
from instep.ports.audit import AuditMarks
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.consumer import Consumer
from instep.runtime.settings import ConsumerSettings
from instep.runtime.supervision import until_first_ended
from instep_tapi.cli.follow_printer import FollowPrinter

__all__ = ["PrintingSink", "follow_entities"]

_NAME: Final = "follow"
_IN_MEMORY: Final = {"url": "sqlite://", "journal": "bodies", "journal_retention_records": 50_000}
"""The journal is read after each commit, so it need not be longer than one."""
_SAID: Final = frozenset(
    {"disconnected", "stream-found", "stream-failed", "failed-over", "redelivered", "aligned"}
    | {"unproven", "lost", "no-progress", "deviation", "undiscovered"}
)
"""Events of the consumer that are printed, on stderr."""


async def follow_entities(source: Source, printer: FollowPrinter) -> None:
    """Print each change of an entity until the printer is full: the log says what is true now
    (created), and from then on what happens; after a loss also what went unseen (swept).

    Memory grows with the entities of the provider. Raises what does not pass by itself.
    """
    # Nobody could release a sweep that is held: there is no store to look at.
    settings = ConsumerSettings(alignment=AlignmentSettings(sweep_guard_share=1.0))
    part = PluginConfiguration("sql", _NAME, dict(_IN_MEMORY), {}, {})
    sink = PrintingSink(build_sink(part), printer)
    consumer = Consumer(_NAME, source, sink, settings)
    said = asyncio.create_task(_say_events(consumer, printer))
    await asyncio.sleep(0)
    try:
        async with consumer:
            await until_first_ended(consumer.wait(), printer.full.wait())
    finally:
        said.cancel()
        await asyncio.gather(said, return_exceptions=True)


async def _say_events(consumer: Consumer, printer: FollowPrinter) -> None:
    async for event in consumer.events():
        if event.kind in _SAID:
            level = logging.INFO if event.kind in {"aligned", "stream-found"} else logging.WARNING
            printer.say(f"{event.stream or event.consumer}: {event.kind}: {event.text}", level)


class _Journal(Protocol):
    """The store that is wrapped: it tells its changes."""

    def changes(self, cursor: int = 0) -> AsyncIterator[Change]: ...


class PrintingSink(Sink):
    """A store that prints what each commit has changed before the commit returns: a slow reader of
    the output slows down the reading of the streams.
    """

    def __init__(self, store: Sink, printer: FollowPrinter) -> None:
        self._store = store
        self._printer = printer
        self._cursor = 0
        self._printing = asyncio.Lock()

    async def commit(self, batch: Batch) -> CommitResult:
        result = await self._store.commit(batch)
        async with self._printing:
            async for change in cast("_Journal", self._store).changes(self._cursor):
                self._cursor = change.cursor
                self._printer.change(change)
            self._printer.flush()
        return result

    async def open(self, consumer: str) -> None:
        await self._store.open(consumer)

    async def position(self, stream: StreamInfo) -> Position:
        self._printer.profile(stream)
        return await self._store.position(stream)

    async def known_streams(self) -> Sequence[StreamInfo]:
        return await self._store.known_streams()

    async def identities(self, stream: str) -> AbstractSet[int] | None:
        return await self._store.identities(stream)

    async def mark_offered(self, stream: str, *, offered: bool) -> None:
        await self._store.mark_offered(stream, offered=offered)

    async def retire(self, stream: str, *, proven_by: Collection[str] | None = None) -> Retirement:
        return await self._store.retire(stream, proven_by=proven_by)

    async def estimate_sweep(self, stream: str, attempt: int) -> SweepEstimate:
        return await self._store.estimate_sweep(stream, attempt)

    def audit(self, stream: StreamInfo) -> AbstractAsyncContextManager[AuditMarks]:
        return self._store.audit(stream)

    async def close(self) -> None:
        await self._store.close()
