"""What a table has still to take from `changes`: bounded per stream by ordinals, not by files.

A micro-batch of Structured Streaming is a hint: it says up to which ordinal `changes` may be read.
Where its own rows are all that a table lacks, they are used; where it comes late, again, out of
order or with a gap (a new checkpoint over a compacted table gives files in any order), the rows are
read from `changes` itself. So what a table holds depends on `changes` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from instep.errors import SinkError
from instep_spark.lake.decide import ENTITY, IDENTITY, ignored
from instep_spark.lake.stamp import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Batch",
    "Part",
    "Segment",
    "StreamKey",
    "Survey",
    "Sweep",
    "fixed",
    "of_streams",
    "text",
]

StreamKey = tuple[str, str]
"""Consumer and stream."""

SMALL_RECORDS: Final = 5_000
"""Up to here, rows are better held by the driver than read again from files for each statement."""

_COLUMNS: Final = (
    *("consumer", "stream", "ordinal", "key", "kind", "token", "partition", "record_offset"),
    *("appended_at", "event_at", "class", "parent_address", "attempt", "lineage", "whole", "ends"),
    *("uuid", "body", "envelope", "committed_at"),
)


def fixed(rows: DataFrame) -> DataFrame:
    """The same rows as a local relation: what is asked of them next plans and runs at once."""
    return rows.sparkSession.createDataFrame(rows.toArrow(), rows.schema)


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


class Part(msgspec.Struct, frozen=True):
    """The rows that one table lacks, with what is known of them."""

    rows: Any
    """DataFrame of `changes` with a column `id`."""
    surveys: dict[StreamKey, Survey]

    @property
    def small(self) -> bool:
        """Whether the rows are few enough to be held by the driver."""
        return sum(survey.rows for survey in self.surveys.values()) <= SMALL_RECORDS

    @property
    def last(self) -> dict[StreamKey, int]:
        """The ordinal to which each stream leads."""
        return {key: survey.last for key, survey in self.surveys.items()}

    @property
    def classes(self) -> frozenset[str]:
        return frozenset().union(*(survey.classes for survey in self.surveys.values()))

    @property
    def repeated(self) -> bool:
        return any(survey.repeated for survey in self.surveys.values())

    @property
    def backwards(self) -> bool:
        return any(survey.backwards for survey in self.surveys.values())

    def cut(self, cuts: Mapping[StreamKey, Sequence[int]]) -> Iterator[Segment]:
        """The rows in segments that end, in each stream, with these ordinals; the last segment has
        what lies behind them. A segment may have no rows.
        """
        count = max((len(ordinals) for ordinals in cuts.values()), default=0)
        for number in range(count + 1):
            bounds: dict[StreamKey, tuple[int, int]] = {}
            for key, survey in self.surveys.items():
                ends = [*cuts.get(key, ()), survey.last]
                if number < len(ends):
                    begin = ends[number - 1] if number else survey.first - 1
                    if begin < ends[number]:
                        bounds[key] = (begin, ends[number])
            rows = self.rows if count == 0 else _between(self.rows, bounds)
            yield Segment(rows, {key: end for key, (_, end) in bounds.items()}, number)


class Segment(msgspec.Struct, frozen=True):
    """Rows of a part, up to an ordinal in each of their streams."""

    rows: Any
    last: dict[StreamKey, int]
    number: int


class Batch:
    """Rows of `changes` up to some ordinals; `after` gives what is new to a table."""

    def __init__(self, rows: DataFrame, changes: DataFrame, where: str) -> None:
        """`rows`: a micro-batch; `changes`: the whole table, read where the batch is not enough."""
        self._rows = rows
        self._changes = changes
        self._where = where
        self._parts: dict[str, Part] = {}

    def after(self, progress: Progress) -> Part:
        """What lies behind `progress`, up to the last row of the micro-batch in each stream.

        Raises `SinkError` where `changes` has lost rows that the table lacks.
        """
        name = progress.encode()
        if name not in self._parts:
            part = self._part(self._rows, progress)
            if not _dense(part, progress):
                bounds = _survey(self._with_id(self._rows))
                part = self._part(_bounded(self._changes, bounds), progress)
                self._refuse_holes(part, progress)
            self._parts[name] = part
        return self._parts[name]

    def _part(self, rows: DataFrame, progress: Progress) -> Part:
        rows = self._with_id(_behind(rows, progress))
        surveys = _survey(rows)
        if sum(survey.rows for survey in surveys.values()) <= SMALL_RECORDS:
            rows = fixed(rows)
        return Part(rows, surveys)

    def _with_id(self, rows: DataFrame) -> DataFrame:
        columns = [f"`{name}`" for name in _COLUMNS]
        return rows.selectExpr(*columns, "CASE WHEN uuid <> '' THEN uuid ELSE key END AS id")

    def _refuse_holes(self, part: Part, progress: Progress) -> None:
        for key, survey in part.surveys.items():
            begin = progress[key].ordinal
            whole = survey.rows == survey.last - survey.first + 1
            if not whole or (begin and survey.first != begin + 1):
                raise SinkError(
                    f"changes lacks rows of {key[0]} / {key[1]} between {begin} and {survey.last}",
                    where=self._where,
                    hint="a row must stay until the pipeline has read it: restore the table, or "
                    "move the tables of the pipeline away and let them be made anew",
                )


def _dense(part: Part, progress: Progress) -> bool:
    return all(
        survey.first == progress[key].ordinal + 1 and survey.rows == survey.last - survey.first + 1
        for key, survey in part.surveys.items()
    )


def _behind(rows: DataFrame, progress: Progress) -> DataFrame:
    """Rows with a larger ordinal than their stream has in `progress`."""
    spark = rows.sparkSession
    stands = [(*key, stand.ordinal) for key, stand in progress.stands.items() if stand.ordinal]
    if not stands:
        return rows
    if len(stands) == 1:
        ((consumer, stream, ordinal),) = stands
        one = "consumer = {c} AND stream = {s} AND ordinal <= {o}"
        return rows.where(f"NOT ({one.format(c=text(consumer), s=text(stream), o=ordinal)})")
    known = spark.createDataFrame(stands, "consumer STRING, stream STRING, known BIGINT")
    joined = rows.join(known.hint("broadcast"), ["consumer", "stream"], "left")
    return joined.where("known IS NULL OR ordinal > known").drop("known")


def _between(rows: DataFrame, bounds: dict[StreamKey, tuple[int, int]]) -> DataFrame:
    """Rows of these streams behind the first and up to the second ordinal."""
    limits = [(*key, *pair) for key, pair in bounds.items()]
    known = rows.sparkSession.createDataFrame(
        limits, "consumer STRING, stream STRING, begin BIGINT, upto BIGINT"
    )
    joined = rows.join(known.hint("broadcast"), ["consumer", "stream"])
    return joined.where("ordinal > begin AND ordinal <= upto").drop("begin", "upto")


def _bounded(changes: DataFrame, surveys: dict[StreamKey, Survey]) -> DataFrame:
    """Rows of `changes` up to the last ordinal of each stream surveyed."""
    ends = [(*key, survey.last) for key, survey in surveys.items()]
    spark = changes.sparkSession
    known = spark.createDataFrame(ends, "consumer STRING, stream STRING, upto BIGINT")
    joined = changes.join(known.hint("broadcast"), ["consumer", "stream"])
    return joined.where("ordinal <= upto").drop("upto")


def _survey(rows: DataFrame) -> dict[StreamKey, Survey]:
    spark = rows.sparkSession
    rows.createOrReplaceTempView("instep_survey")
    found = spark.sql(f"""
        WITH placed AS (
            SELECT consumer, stream, ordinal, kind, attempt, class, uuid, whole, lineage,
                   `partition`, record_offset, appended_at,
                   CASE WHEN kind = 'SWEEP' THEN named_struct(
                       'ordinal', ordinal, 'attempt', attempt, 'body', body) END AS sweep,
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
    surveys: dict[StreamKey, Survey] = {}
    for row in found.orderBy("consumer", "stream").collect():
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
            tuple(Sweep(key, s.ordinal, s.attempt, _readable(s.body)) for s in row.sweeps),
        )
    return surveys


def _readable(body: str | None) -> tuple[str, ...] | None:
    if not body:
        return None
    stated = msgspec.json.decode(body).get("readable")
    return None if stated is None else tuple(stated)


def text(value: str) -> str:
    """A string as a literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def of_streams(keys: Iterable[StreamKey]) -> str:
    """SQL for data skipping: the row `t` may belong to one of these streams."""
    keys = list(keys)
    consumers = sorted({consumer for consumer, _ in keys})
    streams = sorted({stream for _, stream in keys})
    if len(streams) > 50:
        return "true"
    return (
        f"t.consumer IN ({', '.join(map(text, consumers))}) "
        f"AND t.stream IN ({', '.join(map(text, streams))})"
    )
