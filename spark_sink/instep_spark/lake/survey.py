"""What the rows of a micro-batch are like, told by one look at their headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from instep_spark.lake.decide import ENTITY, IDENTITY, ignored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StreamKey", "Survey", "Sweep", "readable_of", "survey_of"]

StreamKey = tuple[str, str]
"""Consumer and stream."""


class Sweep(msgspec.Struct, frozen=True):
    """A row SWEEP of `changes`."""

    stream: StreamKey
    ordinal: int
    attempt: int
    readable: tuple[str, ...] | None = None
    """Classes that a baseline can prove absent; None: all."""


class Survey(msgspec.Struct, frozen=True):
    """What the rows of one stream are like."""

    first: int
    last: int
    rows: int
    repeated: int
    """Statements about an entity that an earlier one in the batch is about."""
    backwards: int
    """Statements that are older than the one before them about the same entity."""
    classes: frozenset[str]
    keyed: int
    """Statements that name a uuid beside the key."""
    partial: int
    """CHANGE_ONLY statements."""
    earliest_us: int | None
    """Smallest append time, in microseconds since 1970; None without records."""
    sweeps: tuple[Sweep, ...] = ()

    def until(self, ordinal: int) -> Survey:
        """The same, the rows behind an ordinal left out."""
        sweeps = tuple(sweep for sweep in self.sweeps if sweep.ordinal <= ordinal)
        return msgspec.structs.replace(self, last=min(self.last, ordinal), sweeps=sweeps)


def survey_of(rows: DataFrame) -> dict[StreamKey, Survey]:
    """By stream, from rows of `changes` with a column `id`."""
    spark = rows.sparkSession
    rows.createOrReplaceTempView("instep_survey")
    found = spark.sql(f"""
        WITH placed AS (
            SELECT consumer, stream, ordinal, kind, attempt, class, uuid, whole, lineage,
                   `partition`, record_offset, appended_at,
                   CASE WHEN kind = 'SWEEP' THEN named_struct(
                       'ordinal', ordinal, 'attempt', attempt) END AS sweep,
                   CASE WHEN {ENTITY} THEN lag(named_struct(
                       'lineage', lineage, 'partition', `partition`,
                       'record_offset', record_offset, 'appended_at', appended_at)) OVER (
                     PARTITION BY {", ".join(IDENTITY)}, {ENTITY} ORDER BY ordinal) END AS earlier
            FROM instep_survey
        )
        SELECT consumer, stream, min(ordinal) AS first, max(ordinal) AS last, count(*) AS rows,
               count_if(earlier IS NOT NULL) AS repeated,
               count_if({ignored("earlier", "placed")}) AS backwards,
               collect_set(class) AS classes,
               count_if(uuid <> '') AS keyed, count_if(NOT whole) AS partial,
               unix_micros(min(appended_at)) AS earliest_us,
               array_sort(collect_list(sweep)) AS sweeps
        FROM placed GROUP BY consumer, stream
    """)  # noqa: S608 — constants only
    counted = found.orderBy("consumer", "stream").collect()
    bodies: dict[tuple[str, str, int], str | None] = {}
    if any(row.sweeps for row in counted):
        # Apart, so that the bodies of all rows need not be read for those of a few.
        swept = rows.where("kind = 'SWEEP'").select("consumer", "stream", "ordinal", "body")
        bodies = {(r.consumer, r.stream, r.ordinal): r.body for r in swept.collect()}
    surveys: dict[StreamKey, Survey] = {}
    for row in counted:
        key = (row.consumer, row.stream)
        surveys[key] = Survey(
            row["first"],
            row["last"],
            row["rows"],
            row.repeated,
            row.backwards,
            frozenset(row.classes),
            row.keyed,
            row.partial,
            row.earliest_us,
            tuple(
                Sweep(key, s.ordinal, s.attempt, readable_of(bodies[*key, s.ordinal]))
                for s in row.sweeps
            ),
        )
    return surveys


def readable_of(body: str | None) -> tuple[str, ...] | None:
    """The classes that the body of a row SWEEP names; None: all."""
    if not body:
        return None
    stated = msgspec.json.decode(body).get("readable")
    return None if stated is None else tuple(stated)
