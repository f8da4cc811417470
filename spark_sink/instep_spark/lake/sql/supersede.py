"""Rule A3 in Spark SQL: which statements of a micro-batch count, compared with what is stored.

A statement counts unless a newer one of the same lineage is stored (A3). Tables with a past
remember ends, too: a statement older than the end of its entity has been read before (L1).

In general the statements of an entity are compared one after the other. Nearly always they come in
the order of the log, and then the last of them counts. Only where a batch goes backwards (a
redelivery, a new attempt), all are compared, by their headers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from instep.model.ordering import SPARK_PLACE, Place, supersedes_sql
from instep_spark.lake.sql.literals import NAMED_STREAMS, StreamKey, in_stream, ordinals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "END_TOKEN",
    "ENTITY",
    "HEADER",
    "IDENTITY",
    "OUTDATED",
    "RECORD",
    "RECORD_KINDS",
    "effective_rows",
    "end_supersedes",
    "latest_per_entity",
    "news",
    "outdated",
    "row_supersedes",
]

IDENTITY: Final = ("consumer", "stream", "id")
"""The columns that identify an entity in a lake."""
HEADER: Final = ("token", "lineage", "partition", "record_offset", "appended_at", "ordinal")
"""The columns of a stored statement that the comparison needs, and its place in `changes`."""
RECORD_KINDS: Final = ("CREATE_UPDATE", "DELETE", "TOMBSTONE", "CHANGE")
RECORD: Final = f"kind IN {RECORD_KINDS}"
"""Rows of `changes` that are records."""
ENTITY: Final = f"({RECORD} AND whole)"
"""Rows of `changes` that state an entity. A CHANGE_ONLY row is not among them: `composed` has its
entity whole."""

OUTDATED: Final = -1
"""Stands for the lineage of a statement that compares with no log, and with no other baseline."""
END_TOKEN: Final = "end"  # noqa: S105 — of a record
"""Stands for the token of a remembered end, of which only that it is no baseline's is of use."""

_STATE: Final = (
    "STRUCT<alive: BOOLEAN, token: STRING, lineage: BIGINT, partition: STRING, "
    "record_offset: BIGINT, appended_at: TIMESTAMP, counting: STRING, recent: STRING>"
)
_RECENT_BYTES: Final = 4_096
"""`counting` and `recent` are the ordinals that count. To append to a text, Spark copies it: for
each statement so many bytes at most, and all of them once in hundreds of statements."""


def row_supersedes(stored: str, row: str) -> str:
    """SQL: the statement `stored` is newer than `row`, which therefore changes nothing (A3).

    Of two baselines the later one counts, whatever our clock said (A14). Both are aliases, or
    structs with the columns of `HEADER`, and `row` has `ends`; a NULL is never newer.
    """
    baselines = f"{stored}.token = '' AND {row}.token = '' AND NOT {row}.ends"
    places = Place.of(stored, SPARK_PLACE), Place.of(row, SPARK_PLACE)
    return f"({supersedes_sql(*places, nullable=True)} AND NOT ({baselines}))"


def outdated(stored: DataFrame, swept: Mapping[StreamKey, int]) -> DataFrame:
    """Return stored statements, or ends, as they compare since the last sweep of their stream was
    made (A14). `swept`: the ordinals of these sweeps.

    A baseline that is read after a sweep is newer than all that was stored then, as it is newer
    than another baseline. What a baseline had read then compares with nothing.
    """
    made = {key: ordinal for key, ordinal in swept.items() if ordinal}
    if not made:
        return stored
    if len(made) > NAMED_STREAMS:
        of_stream = ordinals(stored.sparkSession, swept=made)
        joined = stored.join(of_stream, ["consumer", "stream"], "left")
    else:
        cases = (f"WHEN {in_stream(key)} THEN {ordinal}L" for key, ordinal in made.items())
        joined = stored.selectExpr("*", f"CASE {' '.join(cases)} END AS swept")
    others = [f"`{name}`" for name in stored.columns if name not in ("lineage", "token")]
    return joined.selectExpr(
        *others,
        f"CASE WHEN token = '' AND ordinal <= swept THEN {OUTDATED}L ELSE lineage END AS lineage",
        "CASE WHEN ordinal <= swept THEN '' ELSE token END AS token",
    )


def latest_per_entity(rows: DataFrame) -> DataFrame:
    """Return the row with the largest ordinal of each entity."""
    last = rows.groupBy(*IDENTITY).agg({"ordinal": "max"})
    last = last.withColumnRenamed("max(ordinal)", "ordinal")
    return rows.join(last, [*IDENTITY, "ordinal"])


def end_supersedes(end: str, row: str) -> str:
    """SQL: the statement `row` was made before `end`, by which its entity has ended (L1)."""
    # An end is looked up by its time. So both must tell that it came later.
    return f"({row_supersedes(end, row)} AND {end}.appended_at >= {row}.appended_at)"


def news(rows: DataFrame, stored: DataFrame, ended: DataFrame) -> DataFrame:
    """Return those of `rows` that neither the stored statement nor the last end of their entity
    supersedes; `rows` are in the order of the log.
    """
    place = ", ".join(f"'{name}', `{name}`" for name in HEADER)
    alive = stored.selectExpr(*IDENTITY, f"named_struct('alive', true, {place}) AS stored")
    gone = ended.selectExpr(*IDENTITY, f"named_struct('alive', false, {place}) AS stored")
    known = alive.unionByName(gone.join(alive, list(IDENTITY), "anti"))
    joined = rows.join(known, list(IDENTITY), "left").alias("r")
    newer = f"stored.alive AND {row_supersedes('stored', 'r')}"
    before = f"NOT stored.alive AND {end_supersedes('stored', 'r')}"
    return joined.where(f"stored IS NULL OR NOT ({newer} OR {before})").drop("stored")


def effective_rows(rows: DataFrame, stored: DataFrame, ended: DataFrame | None = None) -> DataFrame:
    """Return those of `rows` that count by A3, compared one by one; `stored` has the headers of the
    entities that exist, `ended` those of the ends that are remembered. None: no end is.

    Exact for any order: A3 is none, so no window finds a maximum by it.
    """
    spark = rows.sparkSession
    headers = ", ".join(f"`{name}`" for name in (*IDENTITY, *HEADER))
    rows.selectExpr(
        *(f"`{name}`" for name in (*IDENTITY, *HEADER, "ends"))
    ).createOrReplaceTempView("instep_fold_rows")
    stored.selectExpr(*(f"`{name}`" for name in (*IDENTITY, *HEADER))).createOrReplaceTempView(
        "instep_fold_stored"
    )
    gone, remembered = "", "false"
    if ended is not None:
        ended.selectExpr(*(f"`{name}`" for name in (*IDENTITY, *HEADER))).createOrReplaceTempView(
            "instep_fold_ended"
        )
        gone = f"""UNION ALL
            SELECT {headers}, true AS ends, true AS known FROM instep_fold_ended
            LEFT SEMI JOIN instep_fold_rows USING (consumer, stream, id)"""
        # An end of nothing is not remembered: no table would show it to the next micro-batch.
        remembered = f"""row.batch AND NOT coalesce(stored.alive, false)
            AND (row.ends OR {end_supersedes("stored", "row")})"""
    full = f"coalesce(octet_length(stored.recent) >= {_RECENT_BYTES}, false)"
    chosen = spark.sql(f"""
        WITH entries AS (
            SELECT {headers}, ends, false AS known FROM instep_fold_rows
            UNION ALL
            SELECT {headers}, false AS ends, true AS known FROM instep_fold_stored
            LEFT SEMI JOIN instep_fold_rows USING (consumer, stream, id)
            {gone}
        ), folded AS (
            SELECT consumer, stream, id, aggregate(
                array_sort(collect_list(named_struct(
                    'batch', NOT known, 'ordinal', ordinal, 'token', token, 'lineage', lineage,
                    'partition', `partition`, 'record_offset', record_offset,
                    'appended_at', appended_at, 'ends', ends))),
                CAST(NULL AS {_STATE}),
                (stored, row) -> CASE
                    WHEN row.batch AND stored.alive AND {row_supersedes("stored", "row")}
                        THEN stored
                    WHEN {remembered} THEN stored
                    ELSE CAST(named_struct(
                        'alive', NOT row.ends, 'token', row.token, 'lineage', row.lineage,
                        'partition', row.`partition`, 'record_offset', row.record_offset,
                        'appended_at', row.appended_at,
                        'counting', CASE WHEN {full} THEN concat_ws(',', stored.counting,
                            stored.recent) ELSE stored.counting END,
                        'recent', CASE WHEN NOT row.batch THEN stored.recent
                            WHEN {full} THEN CAST(row.ordinal AS STRING)
                            ELSE concat_ws(',', stored.recent, row.ordinal) END)
                        AS {_STATE}) END,
                stored -> concat_ws(',', stored.counting, stored.recent)) AS counting
            FROM entries GROUP BY consumer, stream, id
        )
        SELECT consumer, stream, id, explode(transform(
            split(counting, ','), counted -> CAST(counted AS BIGINT))) AS ordinal
        FROM folded WHERE counting <> ''
    """)
    return rows.join(chosen, [*IDENTITY, "ordinal"])
