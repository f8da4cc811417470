"""`stream_health`: how each stream was followed, minute by minute (A6, A8 and A10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from instep.alignment.lag import AT_RISK_SHARE, Fidelity
from instep_spark.lake.batches.micro_batch import (
    PendingRows,
    Segment,
    local_relation,
    without_contents,
)
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.merge import Merge
from instep_spark.lake.sql.dialect import DATAFUSION
from instep_spark.lake.sql.literals import of_streams, text
from instep_spark.lake.sql.supersede import RECORD
from instep_spark.lake.tables.base import LakeTable
from instep_spark.lake.tables.composer import UNRESOLVED
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable
from instep_spark.lake.tables.schema import HEALTH
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["StreamHealthTable"]

_NO_FACTS: Final = """
    SELECT '' AS consumer, '' AS stream, '' AS fact, '' AS name, 0L AS count, '' AS body,
           CAST(NULL AS TIMESTAMP) AS at
    WHERE false"""
_FACTS: Final = "SELECT consumer, stream, fact, name, count, body, at FROM {}"
_ZONE: Final = f"""CASE
    WHEN worst > retention THEN '{Fidelity.LOST}'
    WHEN worst > retention * {AT_RISK_SHARE} THEN '{Fidelity.AT_RISK}'
    WHEN worst > compaction THEN '{Fidelity.REDUCED}'
    WHEN worst IS NOT NULL THEN '{Fidelity.FULL}' END"""

# A mean of means would depend, in its last bits, on how micro-batches were cut (L1). The sum of a
# mean is the whole number that it was made of.
_MEAN_S: Final = """(
    coalesce(CAST(round(known_mean_s * (1e6D * known_timed)) AS BIGINT), 0) + coalesce(delays_us, 0)
    ) / (1e6D * nullif(timed_records + known_timed, 0))"""


class StreamHealthTable(LakeTable):
    """The table `stream_health`. The row of a minute grows as long as rows of that minute come."""

    def __init__(self, place: LakePlace) -> None:
        super().__init__(HEALTH, place)
        self.facts = place.table("stream_facts")
        self.facts_by_driver: DeltaRsTable | None = None
        self._facts_at = place.location("stream_facts")

    def use_driver(
        self,
        spark: SparkSession,
        storage_options: Mapping[str, str] | None = None,
        *,
        proven: bool = False,
    ) -> None:
        """See `LakeTable`."""
        super().use_driver(spark, storage_options, proven=proven)
        if self.by_driver is not None and self.facts_by_driver is None:
            self.facts_by_driver = DeltaRsTable(self._facts_at, storage_options)

    def concerned(self, held: pa.Table) -> pa.Table:
        """All rows, without their contents."""
        return without_contents(held)

    def apply(
        self, pending: PendingRows, segment: Segment, decided: TableProgress, *, has_facts: bool
    ) -> None:
        """Add the rows of the segment; `decided` has the sweeps that `entities` held."""
        spark = segment.rows.sparkSession
        # A row about several entities comes once for each.
        rows = segment.rows.dropDuplicates(["consumer", "stream", "ordinal", "kind"])
        rows.createOrReplaceTempView("instep_rows")
        facts = self._facts(spark) if has_facts else spark.sql(_NO_FACTS)
        facts.createOrReplaceTempView("instep_facts")
        self._stored(spark, segment).createOrReplaceTempView("instep_minutes")
        held = [
            f"({text(key[0])}, {text(key[1])}, {deferred.ordinal},"
            f" '{deferred.unmarked} of {deferred.total}')"
            for key in pending.stats_by_stream
            for deferred in decided[key].deferred
        ]
        values = ", ".join(held or ["('', '', 0, '')"])
        minutes = spark.sql(f"""
            WITH held AS (
                SELECT * FROM VALUES {values} AS v(consumer, stream, ordinal, told)
            ), minutes AS (
                SELECT r.consumer, r.stream, date_trunc('MINUTE', committed_at) AS minute,
                    max(r.ordinal) AS ordinal, count_if({RECORD}) AS records,
                    count(delay_us) AS timed_records,
                    sum(delay_us) AS delays_us, max(delay_us) / 1e6D AS worst,
                    max(attempt) AS attempt, count_if(kind = 'ATTEMPT') AS realignments,
                    count_if(kind = 'SWEEP') AS sweeps, max(told) AS sweep_held,
                    count_if(kind = '{UNRESOLVED}') AS left_out
                FROM (SELECT *, CASE WHEN {RECORD} AND token <> '' THEN
                          unix_micros(committed_at) - unix_micros(appended_at) END
                          AS delay_us FROM instep_rows) r
                LEFT JOIN held h ON r.kind = 'SWEEP' AND r.consumer = h.consumer
                    AND r.stream = h.stream AND r.ordinal = h.ordinal
                GROUP BY r.consumer, r.stream, date_trunc('MINUTE', committed_at)
            ), declared AS (
                SELECT consumer, stream,
                    CAST(get_json_object(max_by(body, at), '$.compaction_delay_s') AS DOUBLE)
                        AS compaction,
                    CAST(get_json_object(max_by(body, at), '$.tombstone_retention_s') AS DOUBLE)
                        AS retention
                FROM instep_facts WHERE fact = 'STREAM' GROUP BY consumer, stream
            ), deviating AS (
                SELECT consumer, stream, date_trunc('MINUTE', at) AS minute,
                       sum(count) AS deviations
                FROM instep_facts WHERE fact = 'DEVIATION'
                GROUP BY consumer, stream, date_trunc('MINUTE', at)
            ), joined AS (
                SELECT m.*, e.read_delay_s AS known_mean_s, e.records AS known_records,
                    CASE WHEN e.read_delay_s IS NOT NULL
                        THEN coalesce(e.timed_records, e.records) ELSE 0 END AS known_timed,
                    greatest(m.worst, e.worst_read_delay_s) AS worst_read_delay_s,
                    e.realignments AS known_realignments, e.sweeps AS known_sweeps,
                    e.sweep_held AS known_held, e.left_out AS known_left_out,
                    compaction, retention,
                    coalesce(d.deviations, 0) AS deviations
                FROM minutes m
                LEFT JOIN instep_minutes e USING (consumer, stream, minute)
                LEFT JOIN declared USING (consumer, stream)
                LEFT JOIN deviating d USING (consumer, stream, minute)
            )
            SELECT consumer, stream, minute, ordinal,
                records + coalesce(known_records, 0) AS records,
                timed_records + known_timed AS timed_records,
                {_MEAN_S} AS read_delay_s,
                worst_read_delay_s, {_ZONE.replace("worst", "worst_read_delay_s")} AS zone,
                attempt, realignments + coalesce(known_realignments, 0) AS realignments,
                sweeps + coalesce(known_sweeps, 0) AS sweeps,
                coalesce(sweep_held, known_held) AS sweep_held, deviations,
                left_out + coalesce(known_left_out, 0) AS left_out
            FROM joined
        """)
        taken = {column.name: f"s.`{column.name}`" for column in self.table.columns}
        # A MERGE of Spark would compute these few rows twice.
        merge = Merge(("consumer", "stream", "minute"), tuple(segment.last), taken, taken)
        self.merge(spark, self.after(segment), merge, minutes, pending)

    def _facts(self, spark: SparkSession) -> DataFrame:
        """The facts of all streams."""
        found = None
        if self.facts_by_driver is not None:
            found = self.facts_by_driver.query(_FACTS.format("t"))
        return (
            spark.sql(_FACTS.format(self.facts)) if found is None else local_relation(spark, found)
        )

    def _stored(self, spark: SparkSession, segment: Segment) -> DataFrame:
        """The minutes of the segment that the table has."""
        if segment.held is not None and self.by_driver is not None:
            first = pc.min(segment.held["committed_at"]).cast(pa.int64()).as_py()
            since = f"minute >= date_trunc('MINUTE', {DATAFUSION.time_of(first or 0)})"
            own = of_streams(segment.last)
            found = self.by_driver.query(f"SELECT * FROM t WHERE {own} AND {since}")
            if found is not None:
                return local_relation(spark, found)
        return self.read(spark)
