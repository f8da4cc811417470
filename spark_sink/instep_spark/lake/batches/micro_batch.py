"""Finds the rows of `changes` that a table lacks: bounded per stream by ordinals, not by files.

A micro-batch is by stream the ordinal up to which `changes` is read. So what a table holds depends
on `changes` alone (L1), and the cost follows the rows that it lacks (L4).
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
    CONTENT_BYTES,
    BatchStats,
    collect_stats,
    content_bytes,
    held_stats,
    refine_stats,
)
from instep_spark.lake.sql.datafusion import between_sql
from instep_spark.lake.sql.literals import StreamKey, rows_between
from instep_spark.lake.sql.supersede import RECORD_KINDS
from instep_spark.session import ONE_TASK, configured, driver_memory_bytes

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

_ONE_JOB_RECORDS: Final = 20_000
_ONE_JOB: Final = {
    **ONE_TASK,
    # To compile the plan takes a third of the time that it then takes to run it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
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

    def collected(self, rows: DataFrame) -> pa.Table:
        """What is built from the rows, where that is small, for the driver to hold. `rows` may read
        no table.
        """
        if self.held is None or self.held.num_rows > _ONE_JOB_RECORDS:
            return rows.toArrow()
        with configured(rows.sparkSession, _ONE_JOB):
            return rows.toArrow()

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
        spark: SparkSession,
        changes: str,
        upto: Mapping[StreamKey, int],
        where: str,
        resolve: Callable[[PendingRows], PendingRows],
        ask: Callable[[str], pa.Table | None] | None = None,
    ) -> None:
        """`changes`: SQL for the table; `upto`: by stream the last row of the micro-batch;
        `resolve` gives rows the ids of their entities. `ask` asks
        `changes`, as `t`, by SQL of DataFusion, where the driver can read it itself: that takes no
        job of Spark.
        """
        self._spark = spark
        self._changes = changes
        self._upto = upto
        self._where = where
        self._resolve = resolve
        self._ask = ask
        self._landed: dict[frozenset[tuple[StreamKey, int]], PendingRows] = {}
        self._resolved: dict[frozenset[tuple[StreamKey, int]], PendingRows] = {}
        self._reading = threading.Lock()

    def after(self, progress: TableProgress) -> PendingRows:
        """Return the rows behind `progress`, up to the last row of the micro-batch in each stream.

        Raises `SinkError` where `changes` has lost rows that the table lacks.
        """
        lacking = self._lacking(progress)
        with self._reading:  # tables that ask at the same time nearly always ask for the same rows
            if lacking not in self._resolved:
                self._resolved[lacking] = self._resolve(self._landed_behind(lacking))
            return self._resolved[lacking]

    def landed_after(self, progress: TableProgress) -> PendingRows:
        """Return the same rows as `after`, whose ids are what each row alone tells."""
        with self._reading:
            return self._landed_behind(self._lacking(progress))

    def _lacking(self, progress: TableProgress) -> frozenset[tuple[StreamKey, int]]:
        """The streams of which a table with this progress lacks rows, and where it stands (L4)."""
        return frozenset(
            (key, begin)
            for key, last in self._upto.items()
            if (begin := progress[key].ordinal) < last
        )

    def _landed_behind(self, lacking: frozenset[tuple[StreamKey, int]]) -> PendingRows:
        if lacking not in self._landed:
            begin = dict(sorted(lacking))
            pending = self._read(begin, {key: self._upto[key] for key in begin})
            self._refuse_holes(pending, begin)
            self._landed[lacking] = pending
        return self._landed[lacking]

    def _read(self, begin: Mapping[StreamKey, int], upto: Mapping[StreamKey, int]) -> PendingRows:
        count = sum(last - begin[key] for key, last in upto.items())
        limit = _limit_bytes(self._spark) if count <= SMALL_RECORDS else -1
        rows = self._read_by_driver(begin, upto, limit) if limit >= 0 else None
        held = None if rows is None else rows.toArrow()
        if rows is None:
            changes = self._spark.sql(f"SELECT * FROM {self._changes}")
            rows = _with_id(rows_between(changes, begin, upto))
            held = rows.toArrow() if limit >= 0 and content_bytes(rows) <= limit else None
        if held is None:
            return PendingRows(rows, refine_stats(collect_stats(rows), rows))
        return PendingRows(_local(held, rows), held_stats(held), held)

    def _read_by_driver(
        self, begin: Mapping[StreamKey, int], upto: Mapping[StreamKey, int], limit: int
    ) -> DataFrame | None:
        """The rows, read without Spark. None: the driver cannot, or there are more bytes."""
        if self._ask is None:
            return None
        between = between_sql(begin, upto)
        size = self._ask(f"SELECT {CONTENT_BYTES} AS size FROM {between}")
        if size is None or (size["size"][0].as_py() or 0) > limit:
            return None
        found = self._ask(f"SELECT {', '.join(_quoted(COLUMNS))} FROM {between}")
        return None if found is None else _with_id(local_relation(self._spark, found))

    def _refuse_holes(self, pending: PendingRows, begin: Mapping[StreamKey, int]) -> None:
        for key, behind in begin.items():
            last = self._upto[key]
            found = pending.stats_by_stream.get(key)
            if found is None or (found.first, found.last, found.rows) != (
                *(behind + 1, last),
                last - behind,
            ):
                raise SinkError(
                    f"changes lacks rows of {key[0]} / {key[1]} between {behind} and {last}",
                    where=self._where,
                    hint="a row must stay until every table has it: restore changes, or the table "
                    "that lacks them",
                )


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def _with_id(rows: DataFrame) -> DataFrame:
    """Rows of `changes` with what is read from their envelopes, and the ids that each alone
    tells.
    """
    columns = _quoted(COLUMNS)
    read = rows.selectExpr(*columns, f"{EVENT_SQL} AS event")
    return read.selectExpr(
        *columns, *(f"event.{name}" for name in EVENT_DETAILS), f"{DEFAULT_ID} AS id"
    )


def _limit_bytes(spark: SparkSession) -> int:
    memory_bytes = driver_memory_bytes(spark)
    return min(SMALL_BYTES, (_UNKNOWN_BYTES if memory_bytes is None else memory_bytes) // _SHARE)
