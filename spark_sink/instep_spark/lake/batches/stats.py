"""Statistics of the rows of a micro-batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from instep_spark.lake.sql.literals import StreamKey, of_streams
from instep_spark.lake.sql.supersede import ENTITY, IDENTITY, RECORD_KINDS, row_supersedes
from instep_spark.session import ONE_TASK, configured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "CONTENT_BYTES",
    "BatchStats",
    "StreamStats",
    "Sweep",
    "attempts_began",
    "collect_stats",
    "content_bytes",
    "held_stats",
    "readable_of",
    "refine_stats",
]

HASHED_RECORDS: Final = 1_000_000
"""In each partition, this many rows are checked for two statements about one entity."""
_IN_PARTITION: Final = (1 << 33) - 1
"""The lower bits of an id that Spark makes count the rows of its partition."""
_STATED: Final = ("token", "lineage", "partition", "record_offset", "appended_at", "ends")
_SURVEYED: Final = (
    *("consumer", "stream", "ordinal", "kind", "class", "whole", "uuid", "attempt", "id"),
    *_STATED,
)


class Sweep(msgspec.Struct, frozen=True):
    """A row SWEEP of `changes`."""

    stream: StreamKey
    ordinal: int
    attempt: int
    readable: tuple[str, ...] | None = None
    """Classes that a baseline can prove absent; None: all."""


class StreamStats(msgspec.Struct, frozen=True):
    """Statistics of the rows of one stream."""

    first: int
    last: int
    rows: int
    repeated: bool
    """Whether several statements may be about one entity."""
    classes: frozenset[str]
    keyed: int
    """Statements that name a uuid beside the key."""
    partial: int
    """CHANGE_ONLY statements."""
    earliest_us: int | None
    """Smallest append time, in microseconds since 1970; None without records."""
    sweeps: tuple[Sweep, ...] = ()
    committed_us: int | None = None
    """Our time in the row `last`; None where these statistics end before it."""
    backwards: bool = False
    """Whether a statement is older than the one before it about the same entity."""

    def until(self, ordinal: int) -> StreamStats:
        """Return these statistics without the rows behind an ordinal."""
        sweeps = tuple(sweep for sweep in self.sweeps if sweep.ordinal <= ordinal)
        if ordinal >= self.last:
            return replace(self, sweeps=sweeps)
        return replace(self, last=ordinal, sweeps=sweeps, committed_us=None)


BatchStats = dict[StreamKey, StreamStats]


def collect_stats(rows: DataFrame) -> BatchStats:
    """Collect statistics by stream from rows of `changes` with a column `id`. It reads them once;
    `refine_stats` adds the rest.
    """
    spark = rows.sparkSession
    rows.createOrReplaceTempView("instep_survey")
    # Entities are compared by a hash each: no rows move. Two of one hash cost a look at all, and so
    # do more rows than a task should hold the hashes of.
    counted = spark.sql(f"""
        SELECT consumer, stream, min(ordinal) AS first, max(ordinal) AS last, count(*) AS rows,
               size(array_distinct(collect_list(CASE WHEN {ENTITY} AND place < {HASHED_RECORDS}
                   THEN xxhash64(id) END))) < count_if({ENTITY}) AS repeated,
               collect_set(class) AS classes,
               count_if(uuid <> '') AS keyed, count_if(NOT whole) AS partial,
               unix_micros(min(appended_at)) AS earliest_us,
               unix_micros(max_by(committed_at, ordinal)) AS committed_us,
               array_sort(collect_list(CASE WHEN kind = 'SWEEP' THEN named_struct(
                   'ordinal', ordinal, 'attempt', attempt) END)) AS sweeps
        FROM (SELECT *, monotonically_increasing_id() & {_IN_PARTITION} AS place FROM instep_survey)
        GROUP BY consumer, stream
    """).collect()
    # Sorted here: to sort a few rows, Spark would first sample them.
    return {
        (row.consumer, row.stream): StreamStats(
            row["first"],
            row["last"],
            row["rows"],
            row.repeated,
            frozenset(row.classes),
            row.keyed,
            row.partial,
            row.earliest_us,
            tuple(Sweep((row.consumer, row.stream), s.ordinal, s.attempt) for s in row.sweeps),
            row.committed_us,
        )
        for row in sorted(counted, key=lambda row: (row.consumer, row.stream))
    }


CONTENT_BYTES: Final = "sum(coalesce(octet_length(body), 0) + coalesce(octet_length(envelope), 0))"
"""SQL of Spark and DataFusion: the size of bodies and envelopes. To read them all takes as long as
all other statistics, so it is asked for few rows only."""


def content_bytes(rows: DataFrame) -> int:
    """`CONTENT_BYTES` of these rows."""
    with configured(rows.sparkSession, ONE_TASK):
        (found,) = rows.selectExpr(CONTENT_BYTES).collect()
    return int(found[0] or 0)


class _Statement(NamedTuple):
    """What decides which of two statements about an entity is newer, as Arrow has it."""

    token: str
    lineage: int
    partition: str
    record_offset: int
    appended_us: int
    ends: bool

    def supersedes(self, other: _Statement) -> bool:
        """`row_supersedes`."""
        if self.lineage != other.lineage:
            return False
        if not (self.token or other.token or other.ends):
            return False
        if min(self.record_offset, other.record_offset) >= 0 and self.partition == other.partition:
            return self.record_offset > other.record_offset
        return self.appended_us > other.appended_us


def held_stats(held: pa.Table) -> BatchStats:
    """The statistics of rows that the driver holds, without a job of Spark: what `collect_stats`
    and `refine_stats` find together, but that no two entities are taken for one.
    """
    columns = {name: held[name].to_pylist() for name in _SURVEYED}
    for name in ("appended_at", "committed_at"):
        columns[name] = held[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    own: dict[StreamKey, list[int]] = {}
    for at, key in enumerate(zip(columns["consumer"], columns["stream"], strict=True)):
        own.setdefault(key, []).append(at)
    return {key: _stats_of(key, own[key], columns, held["body"]) for key in sorted(own)}


def _stats_of(
    key: StreamKey, own: list[int], columns: Mapping[str, list[Any]], bodies: pa.ChunkedArray
) -> StreamStats:
    ordinal, kind, whole = columns["ordinal"], columns["kind"], columns["whole"]
    own = sorted(own, key=ordinal.__getitem__)
    header = [columns[name] for name in _STATED]
    last: dict[str, _Statement] = {}
    repeated = backwards = False
    for at in own:
        if kind[at] not in RECORD_KINDS or not whole[at]:
            continue
        entity, row = columns["id"][at], _Statement(*(values[at] for values in header))
        before = last.get(entity)
        if before is not None:
            repeated = True
            backwards = backwards or before.supersedes(row)
        last[entity] = row
    appended = [us for at in own if (us := columns["appended_at"][at]) is not None]
    return StreamStats(
        ordinal[own[0]],
        ordinal[own[-1]],
        len(own),
        repeated,
        frozenset(columns["class"][at] for at in own),
        sum(columns["uuid"][at] != "" for at in own),
        sum(not whole[at] for at in own),
        min(appended, default=None),
        tuple(
            Sweep(key, ordinal[at], columns["attempt"][at], readable_of(bodies[at].as_py()))
            for at in own
            if kind[at] == "SWEEP"
        ),
        columns["committed_at"][own[-1]],
        backwards,
    )


def refine_stats(stats_by_stream: BatchStats, rows: DataFrame) -> BatchStats:
    """Add to the statistics what only some rows need: the bodies of sweeps, and whether the
    statements about one entity come in the order of the log.
    """
    readable: dict[tuple[StreamKey, int], tuple[str, ...] | None] = {}
    if any(stats.sweeps for stats in stats_by_stream.values()):
        swept = rows.where("kind = 'SWEEP'").select("consumer", "stream", "ordinal", "body")
        readable = {
            ((row.consumer, row.stream), row.ordinal): readable_of(row.body)
            for row in swept.collect()
        }
    backwards: set[StreamKey] = set()
    if any(stats.repeated for stats in stats_by_stream.values()):
        rows.createOrReplaceTempView("instep_survey")
        found = rows.sparkSession.sql(f"""
            SELECT DISTINCT consumer, stream FROM (
                SELECT *, lag(named_struct(
                    'token', token, 'lineage', lineage, 'partition', `partition`,
                    'record_offset', record_offset, 'appended_at', appended_at)) OVER (
                  PARTITION BY {", ".join(IDENTITY)} ORDER BY ordinal) AS earlier
                FROM instep_survey WHERE {ENTITY}
            ) placed WHERE {row_supersedes("earlier", "placed")}
        """)
        backwards = {(row.consumer, row.stream) for row in found.collect()}
    return {
        key: replace(
            stats,
            sweeps=tuple(replace(s, readable=readable[key, s.ordinal]) for s in stats.sweeps),
            backwards=key in backwards,
        )
        for key, stats in stats_by_stream.items()
    }


def attempts_began(
    spark: SparkSession, changes: str, sweeps: Collection[Sweep]
) -> dict[StreamKey, int]:
    """The times when the attempts of these sweeps began, one of a stream, in microseconds since
    1970: what an attempt does not state was not in the log then.
    """
    attempts = {sweep.stream: sweep.attempt for sweep in sweeps}
    began = spark.sql(f"""
        SELECT consumer, stream, attempt, unix_micros(min(committed_at)) AS at_us
        FROM {changes} t
        WHERE kind IN ('ATTEMPT', 'SWEEP') AND {of_streams(attempts)}
          AND attempt BETWEEN {min(attempts.values())} AND {max(attempts.values())}
        GROUP BY consumer, stream, attempt
    """).collect()
    found = {((row.consumer, row.stream), row.attempt): row.at_us for row in began}
    return {stream: found[stream, attempt] for stream, attempt in attempts.items()}


def readable_of(body: str | None) -> tuple[str, ...] | None:
    """The classes that the body of a row SWEEP names; None: all."""
    if not body:
        return None
    stated = msgspec.json.decode(body).get("readable")
    return None if stated is None else tuple(stated)
