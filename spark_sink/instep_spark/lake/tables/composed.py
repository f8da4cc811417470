"""`composed`: what the statements of CHANGE_ONLY streams amount to (TR-548 3.8.2.2), row by row.

Each row of `changes` in such a stream becomes a whole statement here, before any other table of the
pipeline sees it: these then take the rows of `composed` for those of `changes`. The changes are
merged in the driver, in order, over the entities that a chunk of rows speaks of; the last row of
each entity has what is needed to go on with it, so rows and state move in one commit.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec.structs import replace

from instep_spark.derivations import EVENT_DETAILS, EVENT_SQL
from instep_spark.lake.batches.micro_batch import COLUMNS, PendingRows, Segment, materialized
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.batches.stats import (
    StreamStats,
    Sweep,
    attempts_began,
    collect_stats,
    refine_stats,
)
from instep_spark.lake.sql.literals import StreamKey, in_any_stream, in_stream, of_streams, text
from instep_spark.lake.sql.supersede import RECORD
from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.composer import UNRESOLVED, Composer, Row, names_in
from instep_spark.lake.tables.schema import COMPOSED
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CHUNK_RECORDS", "ComposedTable", "arrow_rows", "chunk_of"]

CHUNK_RECORDS: Final = 10_000
"""Rows that are merged in one go: so much of a stream the driver holds."""
_US: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[dict[str, pa.DataType]] = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": _US,
    "ARRAY<STRING>": pa.list_(pa.string()),
}
_SCHEMA: Final = pa.schema([(column.name, _TYPES[column.type]) for column in COMPOSED.columns])
_CLOSED: Final = "last = false, names = NULL, oldest_attempt = NULL, state = NULL"


def arrow_rows(rows: DataFrame) -> list[Row]:
    """Rows with times in microseconds since 1970."""
    found = rows.toArrow()
    for at, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type):
            microseconds = found.column(at).cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
            found = found.set_column(at, field.name, microseconds)
    listed: list[Row] = found.to_pylist()
    return listed


def chunk_of(rows: DataFrame, key: StreamKey, begin: int, upto: int, kinds: str) -> list[Row]:
    """The rows of `changes` of one stream behind the first and up to the second ordinal."""
    bounds = f"ordinal > {begin} AND ordinal <= {upto} AND {kinds}"
    wanted = rows.where(f"{in_stream(key)} AND {bounds}")
    found = arrow_rows(wanted.selectExpr(*(f"`{name}`" for name in COLUMNS)))
    return sorted(found, key=itemgetter("ordinal"))


class ComposedTable(LakeTable):
    """The table `composed`: the entities of CHANGE_ONLY streams as whole statements. It is created
    when the first such stream comes.
    """

    feeds_others = True

    def __init__(self, place: LakePlace) -> None:
        super().__init__(COMPOSED, place)
        self.is_open = False
        self._changes = place.table("changes")

    def open(self, spark: SparkSession, *, to_replace: bool = False) -> None:
        super().open(spark, to_replace=to_replace)
        self.is_open = True

    def _making_again(self) -> str:
        return "move its folder away, and run"

    def apply(self, pending: PendingRows, segment: Segment) -> None:
        """Compose the rows of the segment in the streams that the part surveys."""
        for key in pending.stats_by_stream.keys() & segment.last.keys():
            begin, end = segment.begin[key], segment.last[key]
            while begin < end:
                upto = min(begin + CHUNK_RECORDS, end)
                rows = chunk_of(segment.rows, key, begin, upto, RECORD)
                stream_progress = replace(self.progress[key], ordinal=upto)
                self._compose(
                    segment.rows.sparkSession, rows, self.progress.moved({key: stream_progress})
                )
                begin = upto

    def _compose(self, spark: SparkSession, rows: list[Row], progress: TableProgress) -> None:
        if not rows:
            self.progress = progress  # durable with the next commit; read again it changes nothing
            return
        key = (rows[0]["consumer"], rows[0]["stream"])
        composer = Composer()
        for row in self._known(spark, key, names_in(rows)):
            composer.load(row)
        known = {row["id"] for row in composer.rows}
        stated = [out for row in rows if (out := composer.apply(row)) is not None]
        composer.finish(stated)
        if stated:
            self._write(spark, stated, known, progress)
        else:
            self.progress = progress  # durable with the next commit, likewise

    def _known(self, spark: SparkSession, key: StreamKey, names: Collection[str]) -> list[Row]:
        """Return the last rows of the entities with these names."""
        asked = pa.table({"name": pa.array(sorted(names), pa.string())})
        spark.createDataFrame(asked).createOrReplaceTempView("instep_names")
        lasting = f"SELECT * FROM {self.sql} t WHERE last AND {in_stream(key)}"
        found = spark.sql(f"""
            SELECT * FROM ({lasting}) LEFT SEMI JOIN (
                SELECT id FROM (SELECT id, explode(names) AS name FROM ({lasting}))
                LEFT SEMI JOIN instep_names USING (name)
            ) USING (id)
        """)
        return arrow_rows(found)

    def _write(
        self, spark: SparkSession, rows: list[Row], known: Collection[str], progress: TableProgress
    ) -> None:
        """Append rows; of the entities known before, those before are no longer the last ones."""
        first: dict[str, int] = {}
        for row in rows:
            if row["kind"] != UNRESOLVED and row["id"] in known:
                first.setdefault(row["id"], row["ordinal"])
        closing: list[Row] = [
            {"consumer": rows[0]["consumer"], "stream": rows[0]["stream"], "id": one, "ordinal": at}
            for one, at in first.items()
        ]
        both = [*rows, *closing]
        columns = [pa.array([row.get(f.name) for row in both], f.type) for f in _SCHEMA]
        marks = pa.array([False] * len(rows) + [True] * len(closing))
        table = pa.Table.from_arrays([*columns, marks], names=[*_SCHEMA.names, "known"])
        spark.createDataFrame(table).createOrReplaceTempView("instep_composed")
        names = ", ".join(f"`{name}`" for name in _SCHEMA.names)
        values = ", ".join(f"s.`{name}`" for name in _SCHEMA.names)
        # A row of a sweep that came late may stand where its entity is stated next.
        self.commit(
            spark,
            progress,
            f"""
            MERGE INTO {self.sql} t USING instep_composed s
            ON t.last AND s.known AND t.consumer = s.consumer AND t.stream = s.stream
               AND t.id = s.id AND {of_streams({(rows[0]["consumer"], rows[0]["stream"])})}
            WHEN MATCHED AND t.ordinal >= s.ordinal THEN DELETE
            WHEN MATCHED THEN UPDATE SET {_CLOSED}
            WHEN NOT MATCHED AND NOT s.known THEN INSERT ({names}) VALUES ({values})
            """,
        )

    def sweep(self, spark: SparkSession, sweeps: list[Sweep], progress: TableProgress) -> None:
        """Drop the changes, and forget the entities, that the attempts have not stated."""
        for sweep in sweeps:
            removed = "true"
            if sweep.readable is not None:
                names = ", ".join(map(text, sweep.readable))
                removed = f"class IN ({names})" if names else "false"
            if removed != "false":
                # Else what was not read may be a change that is stored.
                self._prune(spark, sweep)
            changed = ", ".join(
                f"{name} = CASE WHEN {removed} THEN {value} ELSE {name} END"
                for name, value in (a.split(" = ") for a in _CLOSED.split(", "))
            )
            self.commit(
                spark,
                self.progress,
                f"UPDATE {self.sql} SET {changed}, attempt = CASE WHEN {removed} THEN attempt "
                f"ELSE {sweep.attempt} END "
                f"WHERE last AND {in_stream(sweep.stream)} AND attempt < {sweep.attempt}",
            )
        self.commit_progress(spark, progress)

    def _prune(self, spark: SparkSession, sweep: Sweep) -> None:
        while True:
            stale = spark.sql(
                f"SELECT * FROM {self.sql} WHERE last AND {in_stream(sweep.stream)} "
                f"AND attempt >= {sweep.attempt} AND oldest_attempt < {sweep.attempt} "
                f"LIMIT {CHUNK_RECORDS}"
            )
            composer = Composer()
            for row in arrow_rows(stale):
                composer.load(row)
            known = {row["id"] for row in composer.rows}
            pruned = composer.prune(
                sweep.attempt,
                self.progress[sweep.stream].ordinal + 1,
                attempts_began(spark, self._changes, [sweep])[sweep.stream] if known else 0,
            )
            if not pruned:
                return
            composer.finish(pruned)
            self._write(spark, pruned, known, self.progress)

    # -- in place of rows of `changes` -----------------------------------------------------------

    def with_whole_statements(
        self, pending: PendingRows, segment: Segment, streams: Collection[StreamKey]
    ) -> tuple[PendingRows, Segment]:
        """The segment with whole statements for the changes of these streams, and its part with a
        survey of them.
        """
        keys = [key for key in segment.last if key in streams]
        if not keys:
            return pending, segment
        spark = segment.rows.sparkSession
        own = self._rows(spark, segment, keys, RECORD)
        if pending.small:
            own = materialized(own)
        stats_by_stream = refine_stats(collect_stats(own), own)
        others = segment.rows.where(f"NOT ({in_any_stream(keys)} AND {RECORD})")
        surveyed = {
            key: _as_composed(stats, stats_by_stream.get(key)) if key in streams else stats
            for key, stats in pending.stats_by_stream.items()
        }
        rows = others.unionByName(own)
        return replace(pending, stats_by_stream=surveyed), replace(segment, rows=rows, held=None)

    def with_unresolved(self, segment: Segment, streams: Collection[StreamKey]) -> Segment:
        """The segment with a row more for each change that could not be joined to anything."""
        keys = [key for key in segment.last if key in streams]
        if not keys:
            return segment
        own = self._rows(segment.rows.sparkSession, segment, keys, f"kind = '{UNRESOLVED}'")
        return replace(segment, rows=segment.rows.unionByName(own), held=None)

    def _rows(
        self, spark: SparkSession, segment: Segment, keys: list[StreamKey], kinds: str
    ) -> DataFrame:
        bounds = " OR ".join(
            f"({in_stream(key)} AND ordinal > {segment.begin[key]}"
            f" AND ordinal <= {segment.last[key]})"
            for key in keys
        )
        columns = ", ".join(
            (
                *("true AS whole" if c == "whole" else f"`{c}`" for c in COLUMNS),
                *(f"event.{name}" for name in EVENT_DETAILS),
            )
        )
        return spark.sql(
            f"SELECT {columns}, id FROM (SELECT *, {EVENT_SQL} AS event FROM {self.sql}) "
            f"WHERE ({bounds}) AND {kinds}"
        )


def _as_composed(raw: StreamStats, own: StreamStats | None) -> StreamStats:
    if own is None:
        return replace(raw, keyed=0, repeated=False, backwards=False)
    facts: dict[str, Any] = {"repeated": own.repeated, "backwards": own.backwards, "keyed": 0}
    return replace(raw, classes=own.classes | {""}, earliest_us=own.earliest_us, **facts)
