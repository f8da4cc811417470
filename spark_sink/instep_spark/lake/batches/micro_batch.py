"""Finds the rows of `changes` that a table lacks: bounded per stream by ordinals, not by files.

A micro-batch is a hint: it gives the ordinal up to which `changes` may be read. Where its own rows
are all that a table lacks, they are used; where it comes late, again, out of order or with a gap,
the rows are read from `changes` itself. So what a table holds depends on `changes` alone (L1), and
the cost follows the rows that it lacks (L4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from instep.errors import SinkError
from instep_spark.derivations import EVENT_DETAILS, EVENT_SQL
from instep_spark.identity import DEFAULT_ID
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.batches.stats import (
    BatchStats,
    collect_stats,
    content_bytes,
    refine_stats,
)
from instep_spark.lake.sql.literals import StreamKey, rows_behind, rows_between
from instep_spark.lake.sql.supersede import RECORD_KINDS
from instep_spark.session import driver_memory_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "COLUMNS",
    "CONTENTS",
    "NAMED_ENTITIES",
    "SMALL_RECORDS",
    "MicroBatch",
    "PendingRows",
    "Segment",
    "content_counts",
    "local_relation",
    "materialized",
    "without_contents",
]

SMALL_RECORDS: Final = 100_000
"""Up to this number of rows, the driver holds them: that costs less than reading them from files
again for each statement …"""
SMALL_BYTES: Final = 128 << 20
"""… if their contents have no more bytes than this, …"""
_UNKNOWN_BYTES: Final = 1 << 30
_SHARE: Final = 16
"""… and than this part of the memory that the driver was given: each table has some of them."""

NAMED_ENTITIES: Final = 2_000
"""So many entities a condition names at most."""
_GLOBAL: Final = "global_temp"
COLUMNS: Final = (
    *("consumer", "stream", "ordinal", "key", "kind", "token", "partition", "record_offset"),
    *("appended_at", "event_at", "class", "parent_address", "attempt", "lineage", "whole", "ends"),
    *("uuid", "body", "envelope", "committed_at"),
)
"""The columns of `changes` that the tables are built from …"""
CONTENTS: Final = ("body", "envelope")
"""… and those that are long."""


def materialized(rows: DataFrame) -> DataFrame:
    """Return the same rows as a local relation, so that the next queries on them are planned and
    run at once.
    """
    return _local(rows.toArrow(), rows)


def _local(held: pa.Table, like: DataFrame) -> DataFrame:
    return like.sparkSession.createDataFrame(held, like.schema)


def local_relation(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows as a relation with a schema: Spark Connect refuses to infer one from no rows."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 — half a second

    return spark.createDataFrame(rows, from_arrow_schema(rows.schema))


def content_counts(held: pa.Table) -> bool:
    """Whether contents may have to be compared: a row is of a baseline, or of no known place in the
    log.
    """
    records = held.filter(pc.is_in(held["kind"], pa.array(RECORD_KINDS)))
    baseline = pc.any(pc.equal(records["token"], "")).as_py()
    return bool(baseline or pc.any(pc.less(records["record_offset"], 0)).as_py())


def without_contents(held: pa.Table) -> pa.Table:
    """These rows without bodies and envelopes."""
    for name in CONTENTS:
        at = held.schema.get_field_index(name)
        held = held.set_column(at, held.field(at), pa.nulls(held.num_rows, held.field(at).type))
    return held


class PendingRows(msgspec.Struct, frozen=True):
    """The rows that one table lacks, with their statistics."""

    rows: Any
    """DataFrame of `changes` with a column `id`."""
    stats_by_stream: BatchStats
    held: pa.Table | None = None
    """The same rows, where they are few enough to be held by the driver."""
    whole: pa.Table | None = None
    """These rows before they were narrowed to what a table needs of them."""

    def in_session(
        self, spark: SparkSession, concerned: Callable[[pa.Table], pa.Table] | None = None
    ) -> PendingRows:
        """The same rows for another session of the same Spark; of those that the driver holds only
        what `concerned` leaves.
        """
        if self.held is not None:
            held = self.held if concerned is None else concerned(self.held)
            if held.column_names == self.held.column_names:
                rows = spark.createDataFrame(held, self.rows.schema)
            else:  # a table has added what it reads of them
                rows = local_relation(spark, held)
            return replace(self, rows=rows, held=held, whole=self.held)
        name = f"instep_{uuid4().hex}"
        self.rows.createGlobalTempView(name)
        try:
            return replace(self, rows=spark.table(f"{_GLOBAL}.{name}"))
        finally:
            self.rows.sparkSession.catalog.dropGlobalTempView(name)

    @property
    def small(self) -> bool:
        """Whether the rows are few enough for the driver to hold what is built from them."""
        return self.held is not None

    def ids(self) -> list[str] | None:
        """The ids that the rows had when they were read. None: the driver does not hold them."""
        if self.held is None:
            return None
        found: list[str] = pc.drop_null(pc.unique(self.held["id"])).to_pylist()
        return found

    def content_counts(self) -> bool:
        """Whether contents may have to be compared."""
        return self.held is None or content_counts(self.held)

    @property
    def classes(self) -> frozenset[str]:
        return frozenset().union(*(stats.classes for stats in self.stats_by_stream.values()))

    @property
    def repeated(self) -> bool:
        return any(stats.repeated for stats in self.stats_by_stream.values())

    @property
    def backwards(self) -> bool:
        return any(stats.backwards for stats in self.stats_by_stream.values())

    def cut(self, cuts: Mapping[StreamKey, Sequence[int]]) -> Iterator[Segment]:
        """The rows in segments that end, in each stream, with these ordinals; the last segment has
        what lies behind them. A segment may have no rows.
        """
        count = max((len(ordinals) for ordinals in cuts.values()), default=0)
        for number in range(count + 1):
            begin: dict[StreamKey, int] = {}
            last: dict[StreamKey, int] = {}
            for key, stats in self.stats_by_stream.items():
                ends = [*cuts.get(key, ()), stats.last]
                if number < len(ends):
                    before = ends[number - 1] if number else stats.first - 1
                    if before < ends[number]:
                        begin[key], last[key] = before, ends[number]
            rows, held = (self.rows, self.held) if count == 0 else self._between(begin, last)
            seen = {
                key: (ordinal, stats.committed_us)
                for key, ordinal in last.items()
                if (stats := self.stats_by_stream[key]).last == ordinal
                and stats.committed_us is not None
            }
            yield Segment(rows, begin, last, number, seen, held)

    def _between(
        self, begin: dict[StreamKey, int], last: dict[StreamKey, int]
    ) -> tuple[DataFrame, pa.Table | None]:
        """Return the rows of these streams behind the ordinal in `begin` and up to the one in
        `last`.
        """
        rows: DataFrame = self.rows
        if self.held is None:
            return rows_between(rows, begin, last), None
        wanted = pc.scalar(False)
        for (consumer, stream), upto in last.items():
            own = (pc.field("consumer") == consumer) & (pc.field("stream") == stream)
            behind = pc.field("ordinal") > begin[consumer, stream]
            wanted |= own & behind & (pc.field("ordinal") <= upto)
        held = self.held.filter(wanted)
        return _local(held, rows), held


class Segment(msgspec.Struct, frozen=True):
    """Rows of a part, between two ordinals in each of their streams."""

    rows: Any
    begin: dict[StreamKey, int]
    """By stream: the rows lie behind this ordinal …"""
    last: dict[StreamKey, int]
    """… and end with this one."""
    number: int
    seen: dict[StreamKey, tuple[int, int]]
    """See `StreamProgress.seen`; by stream, where the segment has the last row."""
    held: pa.Table | None = None
    """The rows, where the driver holds them."""


class MicroBatch:
    """Rows of `changes` up to some ordinals; `after` gives what is new to a table."""

    def __init__(
        self,
        rows: DataFrame,
        changes: DataFrame,
        where: str,
        resolve: Callable[[PendingRows], PendingRows],
    ) -> None:
        """`rows`: a micro-batch; `changes`: the whole table, read where the batch is not enough;
        `resolve` gives rows the ids of their entities.
        """
        self._rows = rows
        self._changes = changes
        self._where = where
        self._resolve = resolve
        self._landed: dict[frozenset[tuple[StreamKey, int]], PendingRows] = {}
        self._resolved: dict[frozenset[tuple[StreamKey, int]], PendingRows] = {}
        self._reading = threading.Lock()

    def after(self, progress: TableProgress) -> PendingRows:
        """Return the rows behind `progress`, up to the last row of the micro-batch in each stream.

        Raises `SinkError` where `changes` has lost rows that the table lacks.
        """
        begin = _begin_of(progress)
        with self._reading:  # tables that ask at the same time nearly always ask for the same rows
            if begin not in self._resolved:
                self._resolved[begin] = self._resolve(self._landed_after(progress))
            return self._resolved[begin]

    def landed_after(self, progress: TableProgress) -> PendingRows:
        """Return the same rows as `after`, whose ids are what each row alone tells."""
        with self._reading:
            return self._landed_after(progress)

    def _landed_after(self, progress: TableProgress) -> PendingRows:
        begin = _begin_of(progress)
        if begin not in self._landed:
            pending = self._read_pending(self._rows, progress)
            if not _dense(pending, progress):
                bounds = collect_stats(self._with_id(self._rows))
                pending = self._read_pending(_bounded(self._changes, bounds), progress)
                self._refuse_holes(pending, progress)
            self._landed[begin] = pending
        return self._landed[begin]

    def _read_pending(self, rows: DataFrame, progress: TableProgress) -> PendingRows:
        rows = self._with_id(_behind(rows, progress))
        stats_by_stream = collect_stats(rows)
        held = None
        count = sum(stats.rows for stats in stats_by_stream.values())
        if count <= SMALL_RECORDS and content_bytes(rows) <= _limit_bytes(rows.sparkSession):
            held = rows.toArrow()
            rows = _local(held, rows)
        return PendingRows(rows, refine_stats(stats_by_stream, rows), held)

    def _with_id(self, rows: DataFrame) -> DataFrame:
        columns = [f"`{name}`" for name in COLUMNS]
        read = rows.selectExpr(*columns, f"{EVENT_SQL} AS event")
        return read.selectExpr(
            *columns, *(f"event.{name}" for name in EVENT_DETAILS), f"{DEFAULT_ID} AS id"
        )

    def _refuse_holes(self, pending: PendingRows, progress: TableProgress) -> None:
        for key, stats in pending.stats_by_stream.items():
            begin = progress[key].ordinal
            if stats.first != begin + 1 or stats.rows != stats.last - begin:
                raise SinkError(
                    f"changes lacks rows of {key[0]} / {key[1]} between {begin} and {stats.last}",
                    where=self._where,
                    hint="a row must stay until every table has it: restore changes, or the table "
                    "that lacks them",
                )


def _limit_bytes(spark: SparkSession) -> int:
    memory_bytes = driver_memory_bytes(spark)
    return min(SMALL_BYTES, (_UNKNOWN_BYTES if memory_bytes is None else memory_bytes) // _SHARE)


def _begin_of(progress: TableProgress) -> frozenset[tuple[StreamKey, int]]:
    return frozenset((key, at.ordinal) for key, at in progress.by_stream.items())


def _dense(pending: PendingRows, progress: TableProgress) -> bool:
    return all(
        stats.first == progress[key].ordinal + 1 and stats.rows == stats.last - stats.first + 1
        for key, stats in pending.stats_by_stream.items()
    )


def _behind(rows: DataFrame, progress: TableProgress) -> DataFrame:
    """Rows with a larger ordinal than their stream has in `progress`: what a table lacks (L4)."""
    by_stream = {
        key: stream_progress.ordinal
        for key, stream_progress in progress.by_stream.items()
        if stream_progress.ordinal
    }
    return rows_behind(rows, by_stream)


def _bounded(changes: DataFrame, stats_by_stream: BatchStats) -> DataFrame:
    """Rows of `changes` up to the last ordinal of each stream surveyed."""
    ends = {key: stats.last for key, stats in stats_by_stream.items()}
    return rows_between(changes, dict.fromkeys(ends, 0), ends)
