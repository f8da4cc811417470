"""Base of `entity_history` and of tables of episodes: rows that are open until a statement or a
sweep closes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from instep_spark.lake.batches.micro_batch import (
    SMALL_RECORDS,
    PendingRows,
    Segment,
)
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.batches.stats import Sweep, attempts_began
from instep_spark.lake.merge import Merge
from instep_spark.lake.sql.dialect import Dialect
from instep_spark.lake.sql.literals import of_streams
from instep_spark.lake.sql.supersede import (
    END_TOKEN,
    ENTITY,
    HEADER,
    IDENTITY,
    RECORD,
    effective_rows,
    news,
    outdated,
    row_supersedes,
)
from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.identities import landed_rows, resolved_rows
from instep_spark.lake.tables.schema import TableSchema
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["END_PLACE", "SAME", "SHOWN", "IntervalTable"]

SHOWN: Final = "coalesce(token = '' AND NOT ends AND NOT told.ends AND told.digest = digest, false)"
"""SQL: the row is of a baseline, and shows what the row before it, `told`, has stated."""
SAME: Final = """coalesce(
    NOT earlier.ends AND NOT ends AND earlier.lineage = lineage
    AND earlier.`partition` = `partition` AND earlier.record_offset = record_offset
    AND earlier.appended_at = appended_at
    AND (record_offset >= 0 OR earlier.digest = digest), false)"""
"""SQL: the row repeats the statement `earlier` (a redelivery, or a new attempt)."""
END_PLACE: Final = ("lineage", "partition", "record_offset", "appended_at")
"""The place of the statement that ended a row stands in columns of these names behind `end_`. It is
null after an update, and after a sweep, which has none.
"""
_LAST_END: Final = {
    **{name: f"end_{name}" for name in END_PLACE},
    "ordinal": "coalesce(end_ordinal, ordinal)",
    "token": f"'{END_TOKEN}'",
}
"""What is remembered of the statement that ended a row last: column → SQL."""
_WHO: Final = "o.consumer, o.stream, o.id"
_SWEPT_AT: Final = "timestamp_micros(s.swept_us)"


class IntervalTable(LakeTable):
    """A table with one open row at most for each entity."""

    def __init__(self, table: TableSchema, place: LakePlace) -> None:
        super().__init__(table, place)
        self.updated = [column.name for column in table.columns]
        """What changes in an open row."""
        self.content: tuple[str, ...] = ()
        """The columns of an open row that are read only to compare what it states with what a
        baseline shows, or with a statement whose place is not known."""
        self.remembered: Mapping[str, tuple[str, str]] = {}
        """What the rows of an entity that follow closed ones need of these: name → the column, and
        the one that is largest in the row to take it from."""
        self._changes = place.table("changes")
        self._composed = place.table("composed")
        self._identities = place.table("identities")

    def concerns(self, pending: PendingRows) -> bool:
        """Whether anything in the part can change this table."""
        raise NotImplementedError

    def apply(self, pending: PendingRows, segment: Segment) -> None:
        """Open and close rows by the statements of the segment."""
        spark = segment.rows.sparkSession
        by_uuid = {
            key
            for key in segment.last
            if self.progress[key].by_uuid or pending.stats_by_stream[key].keyed
        }
        progress = self.after(segment, by_uuid)
        if not self.concerns(pending):
            self.progress = progress  # durable with the next commit; read again it changes nothing
            return
        rows = segment.rows.where(ENTITY)
        stored, closed = self._known(pending, segment)
        closed.createOrReplaceTempView("instep_closed")
        ended = closed.where("lineage IS NOT NULL")
        compare = effective_rows if pending.backwards or by_uuid else news
        swept = self.progress.swept(by_uuid)
        rows = compare(rows, outdated(stored, swept), outdated(ended, swept))
        rows.createOrReplaceTempView("instep_rows")
        touched = rows.select(*IDENTITY).distinct()
        stored.join(touched, list(IDENTITY), "semi").createOrReplaceTempView("instep_open")
        moved: DataFrame | pa.Table = spark.sql(self.moved(segment.held))
        if pending.whole is not None and segment.held is not None:
            moved = self.completed(pending.collected(moved), pending.whole)
        self.merge(spark, progress, self._merge(segment), moved, pending)

    def _merge(self, segment: Segment) -> Merge:
        taken = {column.name: f"s.`{column.name}`" for column in self.table.columns}
        return Merge(
            IDENTITY,
            tuple(segment.last),
            {name: taken[name] for name in self.updated},
            taken,
            within={"open": "true"},
            matching_if="known",
        )

    def moved(self, held: pa.Table | None) -> str:
        """Return the query for the changes that `instep_rows` cause: new rows, and open ones
        (`known`) that change. `instep_open` has the open rows of their entities, `instep_closed`
        what is remembered of the closed ones. `held`: the rows, where the driver holds them.
        """
        raise NotImplementedError

    def completed(self, moved: pa.Table, whole: pa.Table) -> pa.Table:
        """Add to what `moved` finds what `concerned` has left out of the rows `whole`."""
        del whole
        return moved

    def closed_since(self, earliest_us: int, dialect: Dialect) -> str:
        """SQL: a closed row may matter to a statement that was appended then or later."""
        raise NotImplementedError

    def close(self, ordinal: str, at: str) -> str:
        """The assignments that close a row by a sweep; SQL for its ordinal and for the time."""
        raise NotImplementedError

    def _known(self, pending: PendingRows, segment: Segment) -> tuple[DataFrame, DataFrame]:
        """Return the open rows of the entities that the segment names, and what is remembered of
        their closed ones.
        """
        composed = bool(self.progress.changing() & segment.last.keys())
        content = composed or pending.content_counts()
        stored, closed = self.stored_of(
            pending,
            segment,
            lambda table, named, dialect: self._known_queries(
                pending, segment, table, named, dialect, content=content
            ),
        )
        return stored, closed

    def _known_queries(
        self,
        pending: PendingRows,
        segment: Segment,
        table: str,
        named: Callable[[str], str],
        dialect: Dialect,
        *,
        content: bool,
    ) -> tuple[str, str]:
        """Return the queries of both; `named` leaves of a relation the rows of the entities.
        Without `content`, the columns of `self.content` are null.
        """
        columns = ", ".join(
            f"CAST(NULL AS STRING) AS `{column.name}`"
            if column.name in self.content and not content
            else f"`{column.name}`"
            for column in self.table.columns
        )
        earliest_us = min(
            s.earliest_us for s in pending.stats_by_stream.values() if s.earliest_us is not None
        )
        who, own = ", ".join(IDENTITY), of_streams(segment.last)
        last_end = ", ".join(
            f"{dialect.last_of(of, 'ordinal')} FILTER (WHERE end_lineage IS NOT NULL) AS `{name}`"
            for name, of in _LAST_END.items()
        )
        remembered = ", ".join(
            f"{dialect.last_of(*of)} AS {name}" for name, of in self.remembered.items()
        )
        stored = f"(SELECT * FROM {table} t WHERE open AND {own})"
        since = self.closed_since(earliest_us, dialect)
        closed = f"(SELECT * FROM {table} t WHERE NOT open AND {since} AND {own})"
        return (
            f"SELECT {columns} FROM {named(stored)}",
            f"SELECT {who}, {last_end}, {remembered} FROM {named(closed)} GROUP BY {who}",
        )

    def sweep(self, spark: SparkSession, sweeps: list[Sweep], progress: TableProgress) -> None:
        """Close the open rows that the attempts did not state (TR-548 ST-2.2 step 7), all in one
        statement.

        What an attempt stated is read from `changes`: so the table needs no marks of its own, and
        a realignment that finds everything in place rewrites nothing.
        """
        due = of_streams(sweep.stream for sweep in sweeps)
        self._sweeps(spark, sweeps).createOrReplaceTempView("instep_sweeps")
        victims = spark.sql(f"""
            SELECT {_WHO}, v.swept_ordinal, v.swept_us
            FROM (SELECT * FROM {self.sql} t WHERE open AND {due}) o
            JOIN instep_sweeps v USING (consumer, stream)
            LEFT ANTI JOIN ({self._stated(sweeps)}) m
                ON o.consumer = m.consumer AND o.stream = m.stream AND o.id = m.id
                AND (m.token = '' OR NOT {row_supersedes("o", "m")})
            WHERE o.ordinal <= v.swept_ordinal
              AND (v.readable IS NULL OR array_contains(v.readable, {self.class_of_row()}))
        """)
        few = victims.limit(SMALL_RECORDS + 1).toArrow()
        if few.num_rows == 0:
            self.progress = progress  # durable with the next commit; made again it changes nothing
            return
        if few.num_rows <= SMALL_RECORDS:
            victims = spark.createDataFrame(few)
        victims.createOrReplaceTempView("instep_victims")
        self.commit(
            spark,
            progress,
            f"""
            MERGE INTO {self.sql} t USING instep_victims s
            ON t.open AND t.consumer = s.consumer AND t.stream = s.stream AND t.id = s.id AND {due}
            WHEN MATCHED THEN UPDATE SET {self.close("s.swept_ordinal", _SWEPT_AT)}
            """,
        )

    def _sweeps(self, spark: SparkSession, sweeps: list[Sweep]) -> DataFrame:
        """Return the sweeps as a relation, each with the time when its attempt began."""
        keys = [sweep.stream for sweep in sweeps]
        began_us = attempts_began(spark, self._changes, sweeps)
        columns = {
            "consumer": pa.array([consumer for consumer, _ in keys], pa.string()),
            "stream": pa.array([stream for _, stream in keys], pa.string()),
            "swept_attempt": pa.array([sweep.attempt for sweep in sweeps], pa.int64()),
            "swept_ordinal": pa.array([sweep.ordinal for sweep in sweeps], pa.int64()),
            "swept_us": pa.array([began_us[stream] for stream in keys], pa.int64()),
            "readable": pa.array([sweep.readable for sweep in sweeps], pa.list_(pa.string())),
        }
        return spark.createDataFrame(pa.table(columns)).hint("broadcast")

    def _stated(self, sweeps: list[Sweep]) -> str:
        """Return the query of what the attempts have stated, up to the places of the sweeps."""
        changing = [s for s in sweeps if self.progress[s.stream].by_change]
        joined = [s for s in sweeps if self.progress[s.stream].by_uuid and s not in changing]
        sources = [
            (landed_rows(self._changes), ENTITY, [s for s in sweeps if s not in joined + changing]),
            (resolved_rows(self._changes, self._identities), ENTITY, joined),
            (self._composed, RECORD, changing),
        ]
        header = ", ".join(f"`{name}`" for name in (*IDENTITY, *HEADER, "ends"))
        # The literals tell by the statistics of files which of them to read.
        return " UNION ALL ".join(
            f"""SELECT {header} FROM (
                SELECT * FROM {source} t WHERE {of_streams(s.stream for s in own)}
                AND attempt >= {min(s.attempt for s in own)}
                AND ordinal <= {max(s.ordinal for s in own)})
            JOIN instep_sweeps USING (consumer, stream)
            WHERE {entity} AND NOT ends AND attempt >= swept_attempt AND ordinal <= swept_ordinal
            """
            for source, entity, own in sources
            if own
        )

    def class_of_row(self) -> str:
        """SQL: the class of an open row `o`."""
        raise NotImplementedError
