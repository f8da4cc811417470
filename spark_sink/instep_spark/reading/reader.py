"""Reads a lake for the command line, through delta-rs: beside whatever writes it, without a JVM.

It computes current state anew from `changes`, which the pipeline on Spark keeps ready. That suits a
look at a lake, and gets slower with the number of rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

import msgspec
import pyarrow as pa

from instep.errors import ConfigurationError, JournalOffError, SinkError
from instep.model.entities import Change, ChangeKind, Quarantined, StoredEntity, StreamStatus
from instep.model.holds import UnprovenReason
from instep.model.position import Phase, Position
from instep.model.records import RecordChunk
from instep.model.streams import StreamInfo, SweepEstimate
from instep.ports.reader import StoreReader, SweepReader
from instep_spark.landing import live_view
from instep_spark.landing.commit import LandingTables
from instep_spark.landing.stream_metadata import StreamMetadata
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.options import DeltaOptions
from instep_spark.reading.change_filter import to_microseconds

__all__ = ["DeltaReader"]

T = TypeVar("T")

_PAGE_RECORDS: Final = 2_000
_CONSUMERS: Final = """
    SELECT consumer, stream, max(committed_at) AS at FROM {changes}
    GROUP BY consumer, stream ORDER BY consumer, stream
"""
_DEVIATIONS: Final = """
    SELECT name, sum(count) AS times FROM {{stream_facts}}
    WHERE consumer = {consumer} AND stream = {stream} AND fact = 'DEVIATION' GROUP BY name
"""
_QUARANTINED: Final = """
    SELECT count(*) AS records FROM {{quarantine}}
    WHERE consumer = {consumer} AND stream = {stream}
"""
_QUARANTINE: Final = "SELECT * FROM {quarantine} ORDER BY received_at, digest"
_ROWS: Final = """
    SELECT ordinal, key, class, token, appended_at, attempt, body, envelope, uuid FROM {{changes}}
    WHERE consumer = {consumer} AND stream = {stream}
        AND ordinal >= {first} AND ordinal <= {last} ORDER BY ordinal
"""


class DeltaReader(SweepReader, StoreReader):
    """Reads a lake beside the consumer that writes it; see `StoreReader`. Raises `SinkError`."""

    def __init__(self, options: DeltaOptions, *, clock_us: Callable[[], int]) -> None:
        self._options = options
        self._clock_us = clock_us
        self._writer = DeltaRsWriter(options)
        self._opened = False

    async def streams(self) -> list[StreamStatus]:
        """See `StoreReader`."""

        def read() -> list[StreamStatus]:
            return [self._status(row) for row in self._writer.query(_CONSUMERS).to_pylist()]

        return await self._run(read)

    def _status(self, row: dict[str, Any]) -> StreamStatus:
        writer, consumer, stream = self._writer, row["consumer"], row["stream"]
        infos = {one.id: one for one in self._stream_metadata(consumer).streams()}
        names = {"consumer": writer.text(consumer), "stream": writer.text(stream)}
        landing = LandingTables(writer, self._options, consumer, self._clock_us)
        counts = writer.query(_DEVIATIONS.format_map(names)).to_pylist()
        quarantined = writer.query(_QUARANTINED.format_map(names))["records"][0].as_py()
        return StreamStatus(
            consumer=consumer,
            stream=stream,
            position=_position(landing.state(stream).position, infos.get(stream)),
            info=_plain(infos.get(stream)),
            entities=live_view.estimate_sweep(writer, consumer, stream, 0).total,
            quarantined=quarantined,
            deviations={one["name"]: int(one["times"]) for one in counts},
            updated_at_us=to_microseconds(row["at"]),
        )

    async def entities(
        self,
        *,
        consumer: str | None = None,
        stream: str | None = None,
        entity_class: str | None = None,
        key: str | None = None,
        unproven: bool = False,
    ) -> AsyncIterator[StoredEntity]:
        """Entities in the order of their newest statements. Of a CHANGE_ONLY stream the newest
        change is shown; the composed entities are in the pipeline's `entities`.
        """
        if unproven:
            raise ConfigurationError(
                "a lake does not say which entities are unproven",
                hint="its `entities` has the attempt that has met each",
            )
        for row in await self._rows(_CONSUMERS):
            if consumer not in (None, row["consumer"]) or stream not in (None, row["stream"]):
                continue
            async for entity in self._entities(row["consumer"], row["stream"]):
                if entity_class in (None, entity.entity_class) and key in (None, entity.key):
                    yield entity

    async def _entities(self, consumer: str, stream: str) -> AsyncIterator[StoredEntity]:
        writer = self._writer

        def find() -> pa.Array:
            query = live_view.live(writer, consumer, stream)
            return writer.query(f"{query} ORDER BY ordinal")["ordinal"].combine_chunks()

        def withdrawn() -> bool:
            known = self._stream_metadata(consumer).streams()
            return any(one.id == stream and one.not_offered_since_us for one in known)

        live = await self._run(find)
        unproven = UnprovenReason.NOT_OFFERED.value if await self._run(withdrawn) else ""
        names = {"consumer": writer.text(consumer), "stream": writer.text(stream)}
        for at in range(0, len(live), _PAGE_RECORDS):
            page = live[at : at + _PAGE_RECORDS].to_pylist()
            wanted = set(page)
            for first, last in _runs(page):
                query = _ROWS.format(first=first, last=last, **names)
                rows = await self._rows(query)
                for row in rows:
                    if row["ordinal"] in wanted:
                        yield _entity(consumer, stream, row, unproven)

    async def changes(
        self,
        cursor: int = 0,
        *,
        consumer: str | None = None,
        stream: str | None = None,
        entity_class: str | None = None,
        change: ChangeKind | None = None,
        follow: bool = False,
        epoch: str = "",
    ) -> AsyncIterator[Change]:
        """A lake's journal is the table `changes` itself. Raises `JournalOffError`."""
        del cursor, consumer, stream, entity_class, change, follow, epoch
        none: list[Change] = []
        for one in none:
            yield one
        raise JournalOffError(
            "a lake keeps its changes in its table",
            where=self._options.location("changes"),
            hint="read the Delta table `changes` with any engine, as a stream if you like",
        )

    async def quarantine(
        self, *, consumer: str | None = None, stream: str | None = None, id: int | None = None
    ) -> AsyncIterator[Quarantined]:
        """Records in quarantine, oldest first, numbered in this order."""
        for number, row in enumerate(await self._rows(_QUARANTINE), 1):
            chosen = consumer in (None, row["consumer"]) and stream in (None, row["stream"])
            if chosen and id in (None, number):
                yield Quarantined(
                    id=number,
                    stream=row["stream"],
                    reason=row["reason"],
                    token=row["token"],
                    received_at_us=to_microseconds(row["received_at"]),
                    raw=row["raw"],
                    consumer=row["consumer"],
                )

    async def replay(self, id: int, chunk: RecordChunk) -> int:  # noqa: ARG002
        """Not in a lake. Raises `SinkError`."""
        self._refuse("a record in a lake's quarantine cannot be replayed")

    async def drop(
        self,
        ids: Sequence[int] | None = None,  # noqa: ARG002
        *,
        stream: str | None = None,  # noqa: ARG002
    ) -> int:
        """Not in a lake. Raises `SinkError`."""
        self._refuse("a record in a lake's quarantine cannot be dropped")

    def _refuse(self, what: str) -> NoReturn:
        raise SinkError(
            what,
            where=self._options.location("quarantine"),
            hint="a lake is append-only: realign the stream, so that the provider states it again",
        )

    async def estimate_sweep(self, consumer: str, stream: str, attempt: int) -> SweepEstimate:
        """See `SweepReader`."""
        return await self._run(
            lambda: live_view.estimate_sweep(self._writer, consumer, stream, attempt)
        )

    async def release_sweep(self, consumer: str, stream: str, attempt: int) -> None:
        """See `SweepReader`."""
        await self._run(lambda: self._stream_metadata(consumer).release(stream, attempt))

    async def close(self) -> None:
        """See `StoreReader`."""
        self._writer.close()

    def _stream_metadata(self, consumer: str) -> StreamMetadata:
        return StreamMetadata(self._writer, consumer, self._clock_us)

    async def _rows(self, query: str) -> list[dict[str, Any]]:
        return await self._run(lambda: list(self._writer.query(query).to_pylist()))

    async def _run(self, work: Callable[[], T]) -> T:
        def opened() -> T:
            if not self._opened:
                self._writer.open(None)
                self._opened = True
            return work()

        return await asyncio.to_thread(opened)


def _plain(info: StreamInfo | None) -> dict[str, Any]:
    return {} if info is None else msgspec.to_builtins(info)


def _runs(ordinals: Sequence[int]) -> list[tuple[int, int]]:
    """Return first and last of the ranges of these ordinals. A scan reads what lies in between, so
    ordinals that are far apart are not read as one range.
    """
    runs: list[tuple[int, int]] = []
    for ordinal in ordinals:
        if runs and ordinal - runs[-1][1] <= _PAGE_RECORDS:
            runs[-1] = (runs[-1][0], ordinal)
        else:
            runs.append((ordinal, ordinal))
    return runs


def _position(position: Position, info: StreamInfo | None) -> Position:
    """The position as readers are shown it: nothing stays aligned that is not offered (A20)."""
    if info is None or not info.not_offered_since_us:
        return position
    return msgspec.structs.replace(position, phase=Phase.NOT_OFFERED)


def _entity(consumer: str, stream: str, row: dict[str, Any], unproven: str) -> StoredEntity:
    return StoredEntity(
        stream=stream,
        key=row["key"],
        entity_class=row["class"],
        token=row["token"],
        appended_at_us=to_microseconds(row["appended_at"]),
        attempt=row["attempt"],
        body=(row["body"] or "").encode(),
        envelope=(row["envelope"] or "").encode(),
        uuid=row["uuid"],
        proven=not unproven,
        unproven=unproven,
        consumer=consumer,
    )
