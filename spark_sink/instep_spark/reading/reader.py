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

from instep.errors import JournalOffError, SinkError
from instep.model.entities import Change, ChangeKind, Quarantined, StoredEntity, StreamStatus
from instep.model.freshness import ProviderMonitor
from instep.model.position import Phase, Position
from instep.model.records import RecordChunk
from instep.model.streams import Retirement, StreamInfo, SweepEstimate
from instep.ports.reader import RetirementReader, StoreReader, SweepReader
from instep_spark.landing import live_view
from instep_spark.landing.commit import LandingTables
from instep_spark.landing.retirement import retire
from instep_spark.landing.stream_metadata import StreamMetadata
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.options import DeltaOptions
from instep_spark.reading.change_filter import to_microseconds
from instep_spark.reading.proofs import PROOF_FACTS, StreamProofs

__all__ = ["DeltaReader"]

T = TypeVar("T")

_PAGE_RECORDS: Final = 2_000
_CONSUMERS: Final = """
    SELECT consumer, stream, max(committed_at) AS at FROM {changes}
    GROUP BY consumer, stream ORDER BY consumer, stream
"""
_RETIRED: Final = """
    SELECT consumer, stream FROM {stream_facts} WHERE fact IN ('STREAM', 'RETIRED')
    GROUP BY consumer, stream
    HAVING max(CASE WHEN fact = 'RETIRED' THEN at END) >= max(CASE WHEN fact = 'STREAM' THEN at END)
"""
_COUNTS: Final = """
    SELECT class, count(*) AS total, sum(CASE WHEN proven THEN 0 ELSE 1 END) AS unproven
    FROM ({live}) AS live GROUP BY class
"""
_DEVIATIONS: Final = """
    SELECT name, sum(count) AS times FROM {{stream_facts}}
    WHERE consumer = {consumer} AND stream = {stream} AND fact = 'DEVIATION' GROUP BY name
"""
_MONITOR: Final = """
    SELECT body, at FROM {{stream_facts}}
    WHERE consumer = {consumer} AND stream = {stream} AND fact = 'MONITOR'
    ORDER BY at DESC LIMIT 1
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


class DeltaReader(SweepReader, RetirementReader, StoreReader):
    """Reads a lake beside the consumer that writes it; see `StoreReader`. Raises `SinkError`."""

    def __init__(self, options: DeltaOptions, *, clock_us: Callable[[], int]) -> None:
        self._options = options
        self._clock_us = clock_us
        self._writer = DeltaRsWriter(options)
        self._opened = False

    async def streams(self) -> list[StreamStatus]:
        """See `StoreReader`."""

        def read() -> list[StreamStatus]:
            return [self._status(row) for row in self._kept()]

        return await self._run(read)

    def _kept(self) -> list[dict[str, Any]]:
        """Consumers and streams that are not retired."""
        retired = {
            (row["consumer"], row["stream"]) for row in self._writer.query(_RETIRED).to_pylist()
        }
        rows = self._writer.query(_CONSUMERS).to_pylist()
        return [row for row in rows if (row["consumer"], row["stream"]) not in retired]

    def _proofs(self, consumer: str, stream: str, info: StreamInfo | None) -> StreamProofs:
        names = {"consumer": self._writer.text(consumer), "stream": self._writer.text(stream)}
        facts = self._writer.query(PROOF_FACTS.format_map(names)).to_pylist()
        return StreamProofs(facts, 0 if info is None else info.not_offered_since_us)

    def _status(self, row: dict[str, Any]) -> StreamStatus:
        writer, consumer, stream = self._writer, row["consumer"], row["stream"]
        infos = {one.id: one for one in self._stream_metadata(consumer).streams()}
        names = {"consumer": writer.text(consumer), "stream": writer.text(stream)}
        landing = LandingTables(writer, self._options, consumer, self._clock_us)
        counts = writer.query(_DEVIATIONS.format_map(names)).to_pylist()
        quarantined = writer.query(_QUARANTINED.format_map(names))["records"][0].as_py()
        live = live_view.live(writer, consumer, stream)
        found = writer.query(_COUNTS.format(live=live)).to_pylist()
        total = sum(one["total"] for one in found)
        unproven = {one["class"]: one["unproven"] for one in found if one["unproven"]}
        proofs = self._proofs(consumer, stream, infos.get(stream))
        return StreamStatus(
            consumer=consumer,
            stream=stream,
            position=_position(landing.state(stream).position, infos.get(stream)),
            info=_plain(infos.get(stream)),
            entities=total,
            unproven=total if proofs.withdrawn else sum(unproven.values()),
            unproven_because=proofs.because(unproven),
            quarantined=quarantined,
            deviations={one["name"]: int(one["times"]) for one in counts},
            monitor=_monitor(writer.query(_MONITOR.format_map(names)).to_pylist()),
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
        for row in await self._rows(_CONSUMERS):
            if consumer not in (None, row["consumer"]) or stream not in (None, row["stream"]):
                continue
            async for entity in self._entities(row["consumer"], row["stream"]):
                chosen = entity_class in (None, entity.entity_class) and key in (None, entity.key)
                if chosen and not (unproven and entity.proven):
                    yield entity

    async def _entities(self, consumer: str, stream: str) -> AsyncIterator[StoredEntity]:
        writer = self._writer

        def find() -> tuple[pa.Table, StreamProofs]:
            query = live_view.live(writer, consumer, stream)
            found = writer.query(f"{query} ORDER BY ordinal").combine_chunks()
            infos = {one.id: one for one in self._stream_metadata(consumer).streams()}
            return found, self._proofs(consumer, stream, infos.get(stream))

        live, proofs = await self._run(find)
        names = {"consumer": writer.text(consumer), "stream": writer.text(stream)}
        for at in range(0, len(live), _PAGE_RECORDS):
            page = live.slice(at, _PAGE_RECORDS)
            ordinals, attempts, proven = (
                page[name].to_pylist() for name in ("ordinal", "attempt", "proven")
            )
            marks = dict(zip(ordinals, zip(attempts, proven, strict=True), strict=True))
            for first, last in _runs(ordinals):
                query = _ROWS.format(first=first, last=last, **names)
                for row in await self._rows(query):
                    if row["ordinal"] in marks:
                        yield _entity(consumer, stream, row, marks[row["ordinal"]], proofs)

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

    async def retire(self, consumer: str, stream: str) -> Retirement:
        """See `RetirementReader`: a sweep that removes every entity is landed."""

        def work() -> Retirement:
            metadata = self._stream_metadata(consumer)
            landing = LandingTables(self._writer, self._options, consumer, self._clock_us)
            return retire(self._writer, landing, metadata, consumer, stream, None)

        return await self._run(work)

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


_read_monitor: Final = msgspec.json.Decoder(ProviderMonitor).decode


def _monitor(facts: list[dict[str, Any]]) -> ProviderMonitor | None:
    """What the provider said last, and since when; of the newest fact."""
    if not facts or facts[0]["body"] is None:
        return None
    said = _read_monitor(facts[0]["body"])
    return msgspec.structs.replace(said, since_us=to_microseconds(facts[0]["at"]))


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


def _entity(
    consumer: str,
    stream: str,
    row: dict[str, Any],
    mark: tuple[int, bool],
    proofs: StreamProofs,
) -> StoredEntity:
    attempt, proven = mark
    appended_at_us = to_microseconds(row["appended_at"])
    unproven = proofs.unproven(row["class"], proven=proven)
    proven_by, proven_at_us = proofs.proof(
        attempt=attempt, token=row["token"], appended_at_us=appended_at_us, met=proven
    )
    return StoredEntity(
        stream=stream,
        key=row["key"],
        entity_class=row["class"],
        token=row["token"],
        appended_at_us=appended_at_us,
        attempt=attempt,
        body=(row["body"] or "").encode(),
        envelope=(row["envelope"] or "").encode(),
        uuid=row["uuid"],
        proven=not unproven,
        unproven=unproven,
        proven_at_us=proven_at_us,
        proven_by=proven_by,
        consumer=consumer,
    )
