"""A sink in memory, for tests of sources and of programs that use a consumer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import msgspec

from instep.alignment.absence import is_held
from instep.errors import ConfigurationError, FencedError
from instep.model.batches import Batch, CommitResult, SweepStep
from instep.model.ordering import supersedes
from instep.model.position import Position
from instep.model.records import Record, Unreadable
from instep.model.streams import Mode, StreamInfo, SweepEstimate
from instep.ports.sink import Sink

__all__ = ["MemorySink", "MemoryStore"]


class _Entity(msgspec.Struct, frozen=True):
    record: Record
    lineage: int
    attempt: int
    proven: bool = True
    """Whether no unreadable record has singled it out."""


class _Stream(msgspec.Struct):
    info: StreamInfo | None = None
    position: Position = Position()
    entities: dict[str, _Entity] = {}
    swept: int = 0
    """The last attempt that has swept: what it has left unmarked is unproven (A17)."""
    unreadable: list[Unreadable] = []
    deviations: Counter[str] = msgspec.field(default_factory=Counter)


class MemoryStore:
    """The content of a `MemorySink`, which outlives it. Given to a second sink, it represents the
    same store, opened by another process or after a restart.
    """

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], _Stream] = {}

    def _stream(self, consumer: str, stream: str) -> _Stream:
        return self._streams.setdefault((consumer, stream), _Stream())


class MemorySink(Sink):
    """Keeps entities and positions as a real sink does (A1, A3, A4, the fence), in dictionaries.

    ::

        sink = MemorySink()
        async with Consumer("test", my_source, sink) as consumer:
            await consumer.aligned(timeout_s=10)
        assert sink.entities("alarms").keys() == {"a", "b"}

    It takes streams in `Mode.LOG` that state whole entities, and refuses others in `position`. It
    keeps no messages and no lease. What it holds is read at any time, also after `close`.
    """

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.failures: list[Exception] = []
        """Raised by the next commits, one each, which then change nothing."""
        self._store = store or MemoryStore()
        self._consumer = ""

    def entities(self, stream: str) -> dict[str, Record]:
        """The newest record of each entity of the stream, by its key."""
        return {key: one.record for key, one in self._stream(stream).entities.items()}

    def unreadable(self, stream: str) -> list[Unreadable]:
        """The unreadable records of the stream (A11), in the order of commit."""
        return list(self._stream(stream).unreadable)

    def deviations(self, stream: str) -> dict[str, int]:
        """Departures of the provider from its specification: kind → count (A10)."""
        return dict(self._stream(stream).deviations)

    @property
    def marks_keys(self) -> bool:
        """See `Sink`."""
        return True

    async def open(self, consumer: str) -> None:
        """See `Sink`."""
        self._consumer = consumer

    async def position(self, stream: StreamInfo) -> Position:
        """See `Sink`."""
        if stream.mode is not Mode.LOG or stream.partial_updates:
            raise ConfigurationError(
                "a sink in memory takes whole entities from a log that gives state alone",
                where=stream.id,
                hint='use SqlStore("sqlite://") for this stream',
            )
        kept = self._stream(stream.id)
        kept.info = stream
        return kept.position

    async def commit(self, batch: Batch) -> CommitResult:
        """See `Sink`. Nothing is awaited between its first change and its last."""
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        stream = self._stream(batch.stream)
        if stream.position.ordinal != batch.expects_ordinal:
            raise FencedError(
                "another process has committed",
                where=batch.stream,
                expected=batch.expects_ordinal,
            )
        written = deleted = 0
        position = batch.position
        unproven = _unproven(stream)
        for record in batch.records:
            known = stream.entities.get(record.key)
            if (
                known is not None
                and known.lineage == batch.lineage
                and supersedes(known.record, record)
            ):
                continue  # ignored, and not marked
            if record.ends:
                deleted += stream.entities.pop(record.key, None) is not None
            else:
                stream.entities[record.key] = _Entity(record, batch.lineage, position.attempt)
                written += 1
        for one in batch.unreadable:
            known = stream.entities.get(one.key or "")
            if known is not None:
                marked = _Entity(known.record, known.lineage, position.attempt, proven=False)
                stream.entities[known.record.key] = marked
        swept = 0
        if batch.sweep:
            swept, unproven = _sweep(stream, batch.sweep), position.unproven
        kept = _unproven(stream) - unproven
        stream.unreadable += batch.unreadable
        stream.deviations.update(batch.deviations)
        stream.position = position
        return CommitResult(
            written=written,
            deleted=deleted,
            swept=swept,
            kept=kept,
            sweep_done=batch.sweep is not None,
        )

    async def estimate_sweep(self, stream: str, attempt: int) -> SweepEstimate:
        """See `Sink`."""
        entities = self._stream(stream).entities.values()
        return SweepEstimate(len(entities), sum(one.attempt < attempt for one in entities))

    async def known_streams(self) -> Sequence[StreamInfo]:
        """See `Sink`."""
        streams = self._store._streams  # noqa: SLF001 - one class in two parts
        return [
            one.info
            for (consumer, _), one in streams.items()
            if consumer == self._consumer and one.info is not None
        ]

    async def close(self) -> None:
        """Do nothing: there is no connection. The content stays readable."""

    def _stream(self, stream: str) -> _Stream:
        return self._store._stream(self._consumer, stream)  # noqa: SLF001 - one class in two parts


def _unproven(stream: _Stream) -> int:
    """How many entities are unproven."""
    return sum(not one.proven or one.attempt < stream.swept for one in stream.entities.values())


def _sweep(stream: _Stream, step: SweepStep) -> int:
    """Remove all unmarked entities that nothing holds, in one step; how many."""
    unmarked = {key: one for key, one in stream.entities.items() if one.attempt < step.attempt}
    gone = [
        key
        for key, one in unmarked.items()
        if not is_held(step.holds, one.record, one.record.entity_class, one.lineage)
    ]
    for key in gone:
        del stream.entities[key]
    stream.swept = step.attempt
    return len(gone)
