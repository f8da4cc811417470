"""Tables of what exists now: `entities`, and projections of it. MERGE by A3, mark and sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from instep.ports.lake import LakeEntityTable
from instep_spark.lake.batches.micro_batch import PendingRows, Segment
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.batches.stats import Sweep
from instep_spark.lake.merge import Merge
from instep_spark.lake.sql.dialect import Dialect
from instep_spark.lake.sql.literals import StreamKey, in_stream, of_streams, text
from instep_spark.lake.sql.supersede import (
    ENTITY,
    HEADER,
    IDENTITY,
    RECORD_KINDS,
    effective_rows,
    latest_per_entity,
    outdated,
    row_supersedes,
)
from instep_spark.lake.tables.base import LakeTable, rows_of_classes
from instep_spark.lake.tables.schema import ENTITIES, LAKE_TABLES, TableSchema
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DerivedTable", "EntitiesTable", "ProjectionTable", "SweepCount", "unmarked_by"]

_PROVEN: Final = pa.field("proven", pa.bool_(), nullable=False)


class SweepCount(msgspec.Struct, frozen=True):
    """What a sweep finds."""

    total: int
    """Entities of its stream."""
    unmarked: int
    """Those that its attempt did not mark."""
    removed: int
    """Those of them that it removes; the others are kept as not proven."""


def unmarked_by(sweep: Sweep) -> str:
    """SQL: the sweep removes the row (A5)."""
    return f"({in_stream(sweep.stream)} AND attempt < {sweep.attempt})"


class EntitiesTable(LakeTable):
    """Current state; `entities` itself, or a projection of it."""

    def __init__(self, place: LakePlace, table: TableSchema = ENTITIES) -> None:
        super().__init__(table, place)
        self._names = [column.name for column in table.columns]

    def project(self, rows: DataFrame) -> DataFrame:
        """The columns of the table, and `ends`, from rows of `changes`."""
        return rows.selectExpr("*", "true AS proven")

    def project_held(self, rows: pa.Table) -> pa.Table | None:
        """What `project` makes of the statements among rows that the driver holds, without a job of
        Spark, which takes half a second for 20,000 rows. None: it is left to Spark.
        """
        statement = pc.field("whole") & pc.field("kind").isin(RECORD_KINDS)
        statements = rows.filter(statement)
        return statements.append_column(_PROVEN, pa.repeat(True, statements.num_rows))

    def concerns(self, pending: PendingRows) -> bool:
        """Whether anything in the part can change this table."""
        del pending
        return True

    def apply(self, pending: PendingRows, segment: Segment) -> None:
        """Write, mark and end entities by the rows of the segment."""
        spark = segment.rows.sparkSession
        by_uuid = {key for key in segment.last if self._by_uuid(pending, key)}
        progress = self.after(segment, by_uuid)
        if not self.concerns(pending):
            self.progress = progress  # durable with the next commit; read again it changes nothing
            return
        fresh = f"NOT {row_supersedes('t', 's')}"
        in_order = not (pending.backwards or pending.repeated or by_uuid)
        held = self.project_held(segment.held) if in_order and segment.held is not None else None
        if held is not None:
            self.merge(spark, progress, self._merge(segment.last, fresh, by_uuid=False), held)
            return
        rows = segment.rows.where(ENTITY)
        if pending.backwards or by_uuid:
            (stored,) = self.stored_of(pending, segment, partial(_headers, segment))
            known = outdated(stored, self.progress.swept(by_uuid))
            rows, fresh = effective_rows(rows, known), "true"
        if pending.repeated or by_uuid:
            rows = latest_per_entity(rows)
        if by_uuid:
            rows = _marked(rows, segment)
        if by_uuid and "proven" in self._names:
            self._prove(spark, pending, segment)
        merge = self._merge(segment.last, fresh, by_uuid=bool(by_uuid))
        self.merge(spark, progress, merge, self.project(rows), pending)

    def _by_uuid(self, pending: PendingRows, key: StreamKey) -> bool:
        return self.progress[key].by_uuid or pending.stats_by_stream[key].keyed > 0

    def _merge(self, keys: Iterable[StreamKey], fresh: str, *, by_uuid: bool) -> Merge:
        taken = {name: f"s.`{name}`" for name in self._names}
        updates = dict(taken)
        if by_uuid:
            # The stream's key holds, because a TOMBSTONE may have nothing else.
            updates["key"] = "CASE WHEN s.token = '' THEN t.key ELSE s.key END"
        return Merge(IDENTITY, tuple(keys), updates, taken, counts=fresh, ends="s.ends")

    def _prove(self, spark: SparkSession, pending: PendingRows, segment: Segment) -> None:
        """Mark what a baseline shows to exist, also where a newer statement keeps its content."""
        if segment.held is not None and not _has_baseline(segment.held):
            return
        merge = Merge(
            IDENTITY,
            tuple(segment.last),
            {"attempt": "s.attempt", "proven": "true"},
            {},
            counts="(t.attempt < s.attempt OR NOT t.proven)",
        )
        shown = _shown(segment).withColumnRenamed("shown", "attempt")
        self.merge(spark, self.progress, merge, shown, pending)

    def count_sweep(self, spark: SparkSession, sweeps: list[Sweep]) -> dict[StreamKey, SweepCount]:
        """Count the entities of the stream of each sweep, and what the sweep finds."""
        unmarked = " OR ".join(unmarked_by(sweep) for sweep in sweeps)
        removed = " OR ".join(_removed(sweep) for sweep in sweeps)
        keys = [sweep.stream for sweep in sweeps]
        counts = spark.sql(f"""
            SELECT consumer, stream, count(*) AS total, count_if({unmarked}) AS unmarked,
                count_if({removed}) AS removed
            FROM {self.sql} t WHERE {of_streams(keys)} GROUP BY consumer, stream
        """).collect()
        by_stream = {
            (row.consumer, row.stream): SweepCount(row.total, row.unmarked, row.removed)
            for row in counts
        }
        return {key: by_stream.get(key, SweepCount(0, 0, 0)) for key in keys}

    def sweep(self, spark: SparkSession, sweeps: list[Sweep], progress: TableProgress) -> None:
        """Remove what the attempts did not mark (TR-548 ST-2.2 step 7)."""
        if "proven" in self._names:
            for sweep in sweeps:
                if sweep.readable is not None:
                    # No GET could show them: neither trusted nor dropped.
                    kept = f"{unmarked_by(sweep)} AND NOT {_removed(sweep)}"
                    marks = f"proven = false, attempt = {sweep.attempt}"
                    update = f"UPDATE {self.sql} SET {marks} WHERE {kept}"
                    self.commit(spark, self.progress, update)
        gone = " OR ".join(_removed(sweep) for sweep in sweeps)
        if not self.commit(spark, progress, f"DELETE FROM {self.sql} WHERE {gone}"):
            # Delta keeps no transaction of a DELETE that removes nothing.
            self.commit_progress(spark, progress)


class ProjectionTable(EntitiesTable):
    """A projection of the contents of some classes, with the marks and sweeps of `entities`."""

    def __init__(self, place: LakePlace, table: TableSchema, classes: tuple[str, ...]) -> None:
        super().__init__(place, table)
        self._classes = classes

    def concerns(self, pending: PendingRows) -> bool:
        # A header-only end names no class.
        return bool(pending.classes & {*self._classes, ""})

    def concerned(self, held: pa.Table) -> pa.Table:
        """Statements of the classes of the table, and all ends."""
        return rows_of_classes(held, self._classes)

    def of_classes(self, rows: DataFrame) -> DataFrame:
        """The same of rows of `changes` that Spark has."""
        wanted = ", ".join(map(text, self._classes))
        return rows.where(f"ends OR class IN ({wanted})")

    def project_held(self, rows: pa.Table) -> None:
        """None: the contents are taken apart by Spark."""
        del rows


class DerivedTable(ProjectionTable):
    """A table of entities that a derivation brings, such as `topology`."""

    def __init__(self, derived: LakeEntityTable, place: LakePlace) -> None:
        super().__init__(place, LAKE_TABLES[derived.name], derived.classes)
        self._derived = derived

    def project(self, rows: DataFrame) -> DataFrame:
        values = self._derived.values
        rows = self.of_classes(rows)
        landed = [f"`{name}`" for name in rows.columns if name not in values]
        once = (f"{sql} AS {name}" for name, sql in self._derived.once.items())
        made = (f"{sql} AS `{name}`" for name, sql in values.items())
        return rows.selectExpr("*", *once).selectExpr(*landed, *made)


def _marked(rows: DataFrame, segment: Segment) -> DataFrame:
    """Return `rows` with the mark of each baseline row of the segment that itself changes
    nothing.
    """
    if segment.held is not None and not _has_baseline(segment.held):
        return rows
    others = [f"`{name}`" for name in rows.columns if name != "attempt"]
    joined = rows.join(_shown(segment), ["consumer", "stream", "id"], "left")
    return joined.selectExpr(*others, "greatest(attempt, shown) AS attempt")


def _has_baseline(held: pa.Table) -> bool:
    records = held.filter(pc.is_in(held["kind"], pa.array(RECORD_KINDS)))
    return bool(pc.any(pc.equal(records["token"], "")).as_py())


def _shown(segment: Segment) -> DataFrame:
    """What a baseline shows to exist in the segment, with the last attempt that does."""
    shown = segment.rows.where(f"{ENTITY} AND token = '' AND NOT ends")
    shown = shown.groupBy("consumer", "stream", "id").agg({"attempt": "max"})
    renamed: DataFrame = shown.withColumnRenamed("max(attempt)", "shown")
    return renamed


def _headers(
    segment: Segment, table: str, named: Callable[[str], str], _dialect: Dialect
) -> list[str]:
    """The query of the stored statements of entities, by their headers."""
    columns = ", ".join(f"`{name}`" for name in (*IDENTITY, *HEADER))
    stored = f"(SELECT * FROM {table} t WHERE {of_streams(segment.last)})"
    return [f"SELECT {columns} FROM {named(stored)}"]


def _removed(sweep: Sweep) -> str:
    if sweep.readable is None:
        return unmarked_by(sweep)
    if not sweep.readable:
        return "false"
    return f"({unmarked_by(sweep)} AND class IN ({', '.join(map(text, sweep.readable))}))"
