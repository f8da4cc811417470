"""The Delta sink: committed records in the table `changes`, with the position they came from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar, Unpack

import msgspec

from instep.errors import SinkError
from instep.model.batches import Batch, CommitResult
from instep.model.freshness import StreamReport
from instep.model.position import Position
from instep.model.streams import Retirement, StreamInfo, SweepEstimate
from instep.ports.sink import Sink
from instep.runtime.group_commit import GatheringQueue, GroupCommitter, PendingCommit
from instep_spark.landing import live_view
from instep_spark.landing.commit import LandingTables
from instep_spark.landing.grouping import WaitingBatch, group_size, wait_s
from instep_spark.landing.retirement import retire
from instep_spark.landing.stream_metadata import StreamMetadata
from instep_spark.landing.unproven_counts import UnprovenCounts
from instep_spark.landing.writers.base import Writer
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.options import DeltaOptions, DeltaSinkOptions

__all__ = ["DeltaSink", "create_writer", "now_us"]

T = TypeVar("T")


def now_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000


def create_writer(options: DeltaOptions) -> Writer:
    """The writer that the options name, not yet open."""
    if options.writer == "rust":
        return DeltaRsWriter(options)
    from instep_spark.landing.writers.spark import SparkWriter  # noqa: PLC0415 — pyspark takes its time to import

    return SparkWriter(options)


class DeltaSink(Sink):
    """A sink over Delta tables; see `instep.ports.sink.Sink`.

    Promised: a commit takes place whole or not at all, whatever is cancelled or killed; the
    position is never ahead of the rows (A1); each record of an attempt is a row once, as far back
    as `dedup_window.REMEMBERED_RECORDS`; of two processes that commit on one stream of one
    consumer, one gets `FencedError`. The event loop never waits for the lake: one worker thread
    does.

    Not promised: current state, which the pipeline on Spark makes of these rows. What the alignment
    asks of it (`estimate_sweep`) is counted from all rows of the stream when it is asked.

    Keyword arguments are those of `DeltaOptions`. Raises `ConfigurationError` for what does not
    fit.
    """

    def __init__(
        self,
        url: str,
        *,
        clock_us: Callable[[], int] = now_us,
        monotonic_s: Callable[[], float] = time.monotonic,
        **options: Unpack[DeltaSinkOptions],
    ) -> None:
        self.options = DeltaOptions.read({"url": url, **options}, "DeltaSink")
        self._clock_us = clock_us
        self._now_s = monotonic_s
        self._writer = create_writer(self.options)
        self._landing: LandingTables | None = None
        self._stream_metadata: StreamMetadata | None = None
        self._unproven: UnprovenCounts | None = None
        self._consumer: str | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="instep-delta")
        self._waiting = GatheringQueue[_PendingBatch](
            max(self.options.group_records, self.options.commit_records)
        )
        self._committer = GroupCommitter(self._waiting, self._closed_error)
        self._commits: asyncio.Task[None] | None = None
        self._records: dict[str, int] = {}
        """Records of the log by stream, as far as they are landed."""
        self._last_s = float("-inf")
        self._closed = False

    async def open(self, consumer: str) -> None:
        """Create the tables or check that they are this consumer's. Raises `SinkError`."""
        await self._run(partial(self._writer.open, consumer))
        self._consumer = consumer
        self._landing = LandingTables(self._writer, self.options, consumer, self._clock_us)
        self._stream_metadata = StreamMetadata(self._writer, consumer, self._clock_us)
        self._unproven = UnprovenCounts(self._writer, consumer, self._now_s)

    async def known_streams(self) -> list[StreamInfo]:
        """See `Sink`."""
        return await self._run(self._opened[1].streams)

    async def position(self, stream: StreamInfo) -> Position:
        """Return the position that the table has; keeps the stream's description in
        `stream_facts`.
        """
        landing, stream_metadata = self._opened

        def enter() -> Position:
            landing.forget(stream.id)
            stream_metadata.enter(stream)
            return landing.state(stream.id).position

        position = await self._run(enter)
        self._records[stream.id] = position.records
        return position

    async def identities(self, stream: str) -> frozenset[int]:
        """See `Sink`."""
        return await self._run(partial(live_view.identities, self._writer, self._name, stream))

    async def mark_offered(self, stream: str, *, offered: bool) -> None:
        """See `Sink`: readers learn it from `stream_facts`."""
        await self._run(partial(self._opened[1].mark_offered, stream, offered=offered))

    async def retire(self, stream: str, *, proven_by: Collection[str] | None = None) -> Retirement:
        """See `Sink`: a sweep that removes every entity is landed. With `proven_by` all is removed
        or nothing: where those streams state, proven, each entity of this one.
        """
        landing, stream_metadata = self._opened
        return await self._run(
            partial(
                retire,
                self._writer,
                landing,
                stream_metadata,
                self._name,
                stream,
                proven_by,
            )
        )

    async def commit(self, batch: Batch) -> CommitResult:
        """Commit all of the batch in one commit of the table, or nothing. Raises `SinkError`.

        Returns when it is durable; waits for room where the batches of other streams have more than
        `group_records`. After a cancellation the commit took place whole or not at all; `position`
        shows which.
        """
        _ = self._opened
        if self._commits is None:
            self._commits = asyncio.create_task(self._commit_all(), name="instep delta")
        pending = _PendingBatch(batch=batch)
        # After a realignment a log may have fewer records than before.
        await self._waiting.put(pending, max(0, self._size(batch).records))
        return await pending.wait()

    async def estimate_sweep(self, stream: str, attempt: int) -> SweepEstimate:
        """See `Sink`."""
        return await self._run(
            partial(live_view.estimate_sweep, self._writer, self._name, stream, attempt)
        )

    async def is_sweep_released(self, stream: str, attempt: int) -> bool:
        """See `Sink`."""
        return await self._run(partial(self._opened[1].released, stream, attempt))

    async def report(
        self,
        reports: Sequence[StreamReport],
        stale_after_s: float,  # noqa: ARG002 - of the port
    ) -> None:
        """See `Sink`: what providers say of our reading is kept, where it has changed. That this
        process was heard is not: each time would be a commit of the table.
        """
        await self._run(partial(self._opened[1].keep_monitors, reports))

    async def close(self) -> None:
        """Wait for a commit that is under way; one that has not begun is not made."""
        self._committer.close(self._closed_error())
        if self._commits is not None:
            await asyncio.shield(asyncio.gather(self._commits, return_exceptions=True))
        if self._closed:
            return
        self._closed = True
        stream_metadata = self._stream_metadata

        def end() -> None:
            try:
                if stream_metadata is not None:
                    stream_metadata.flush()
            finally:
                self._writer.close()

        try:
            await self._run(end)
        finally:
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<DeltaSink {self.options.url} consumer={self._consumer!r}>"

    # -- inner parts -----------------------------------------------------------------------------

    async def _commit_all(self) -> None:
        """Commit what waits until the sink is closed; under load the next group gathers while one
        is written.
        """
        waiting = self._waiting
        try:
            while waiting.error is None:
                if not waiting:
                    await waiting.arrival()
                    continue
                sizes = [self._size(pending.batch) for pending in waiting]
                delay_s = wait_s(self.options, sizes, self._now_s() - self._last_s)
                # What comes meanwhile counts for the decision, too.
                if delay_s and await waiting.arrival(delay_s):
                    continue
                count = group_size(self.options, sizes, groups=self._writer.groups)
                with suppress(Exception):  # it is raised where the answer is awaited
                    await self._committer.commit_next(self._commit_group, count)
        finally:
            self._committer.close(self._closed_error())

    async def _commit_group(self, group: list[_PendingBatch]) -> Sequence[CommitResult | Exception]:
        if not group:
            return []
        self._last_s = self._now_s()
        batches = [pending.batch for pending in group]
        try:
            return await self._run(partial(self._land, batches))
        finally:
            for batch in batches:
                self._records[batch.stream] = batch.position.records

    def _size(self, batch: Batch) -> WaitingBatch:
        """Return the size of a batch without decoding it: the worker thread decodes."""
        before = self._records.get(batch.stream, 0)
        return WaitingBatch(batch.stream, batch.position.records - before)

    def _land(self, batches: list[Batch]) -> list[CommitResult | SinkError]:
        landing, stream_metadata = self._opened
        for batch in batches:
            if batch.sweep is not None:
                # First, so that no sweep is landed whose reasons are kept nowhere.
                stream_metadata.prove(batch.stream, batch.sweep)
        results = landing.commit(batches)
        for batch in batches:
            if batch.deviations:
                stream_metadata.count(batch.stream, batch.deviations)
        return [self._counted(*one) for one in zip(batches, results, strict=True)]

    def _counted(self, batch: Batch, result: CommitResult | SinkError) -> CommitResult | SinkError:
        if isinstance(result, SinkError) or self._unproven is None:
            return result
        more = self._unproven.landed(batch)
        return msgspec.structs.replace(result, kept=more) if more else result

    async def _run(self, work: Callable[[], T]) -> T:
        """Run in the worker thread; a commit that has begun comes to its end, whoever waits."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        return await asyncio.shield(future)

    @property
    def _opened(self) -> tuple[LandingTables, StreamMetadata]:
        if self._landing is None or self._stream_metadata is None:
            raise SinkError(
                "the lake is not open",
                where=self.options.url,
                hint="call open(consumer) first",
            )
        return self._landing, self._stream_metadata

    def _closed_error(self) -> SinkError:
        return SinkError("the sink was closed meanwhile", where=self.options.url)

    @property
    def _name(self) -> str:
        _ = self._opened
        assert self._consumer is not None
        return self._consumer


class _PendingBatch(PendingCommit[CommitResult], kw_only=True):
    """A batch whose caller waits for its commit."""

    batch: Batch
