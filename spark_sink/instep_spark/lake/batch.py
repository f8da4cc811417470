"""What a table has still to take from `changes`: bounded per stream by ordinals, not by files.

A micro-batch of Structured Streaming is a hint: it says up to which ordinal `changes` may be read.
Where its own rows are all that a table lacks, they are used; where it comes late, again, out of
order or with a gap (a new checkpoint over a compacted table gives files in any order), the rows are
read from `changes` itself. So what a table holds depends on `changes` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import SinkError
from instep_spark.lake.literals import ordinals, whose
from instep_spark.lake.stamp import Progress, Stamp
from instep_spark.lake.survey import StreamKey, Surveys, looked_into, survey_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["COLUMNS", "SMALL_RECORDS", "Batch", "Part", "Segment", "fixed"]

SMALL_RECORDS: Final = 5_000
"""Up to here, rows are better held by the driver than read again from files for each statement."""

COLUMNS: Final = (
    *("consumer", "stream", "ordinal", "key", "kind", "token", "partition", "record_offset"),
    *("appended_at", "event_at", "class", "parent_address", "attempt", "lineage", "whole", "ends"),
    *("uuid", "body", "envelope", "committed_at"),
)
"""What the tables are made of, of `changes`."""


def fixed(rows: DataFrame) -> DataFrame:
    """The same rows as a local relation: what is asked of them next plans and runs at once."""
    return _local(rows.toArrow(), rows)


def _local(held: pa.Table, like: DataFrame) -> DataFrame:
    return like.sparkSession.createDataFrame(held, like.schema)


class Part(msgspec.Struct, frozen=True):
    """The rows that one table lacks, with what is known of them."""

    rows: Any
    """DataFrame of `changes` with a column `id`."""
    surveys: Surveys
    held: pa.Table | None = None
    """The same rows, where they are few enough to be held by the driver."""

    @property
    def small(self) -> bool:
        """Whether what is made of the rows is few enough to be held by the driver."""
        return self.held is not None

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
            begin: dict[StreamKey, int] = {}
            last: dict[StreamKey, int] = {}
            for key, survey in self.surveys.items():
                ends = [*cuts.get(key, ()), survey.last]
                if number < len(ends):
                    before = ends[number - 1] if number else survey.first - 1
                    if before < ends[number]:
                        begin[key], last[key] = before, ends[number]
            rows = self.rows if count == 0 else self._between(begin, last)
            yield Segment(rows, begin, last, number)

    def _between(self, begin: dict[StreamKey, int], last: dict[StreamKey, int]) -> DataFrame:
        """The rows of these streams behind the first and up to the second ordinal."""
        rows: DataFrame = self.rows
        if self.held is None:
            known = ordinals(rows.sparkSession, begin=begin, upto=last)
            joined = rows.join(known, ["consumer", "stream"])
            return joined.where("ordinal > begin AND ordinal <= upto").drop("begin", "upto")
        wanted = pc.scalar(False)
        for (consumer, stream), upto in last.items():
            own = (pc.field("consumer") == consumer) & (pc.field("stream") == stream)
            behind = pc.field("ordinal") > begin[consumer, stream]
            wanted |= own & behind & (pc.field("ordinal") <= upto)
        return _local(self.held.filter(wanted), rows)


class Segment(msgspec.Struct, frozen=True):
    """Rows of a part, between two ordinals in each of their streams."""

    rows: Any
    begin: dict[StreamKey, int]
    """They lie behind it …"""
    last: dict[StreamKey, int]
    """… and up to this one."""
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
        name = Stamp(progress).encode()
        if name not in self._parts:
            part = self._part(self._rows, progress)
            if not _dense(part, progress):
                bounds = survey_of(self._with_id(self._rows))
                part = self._part(_bounded(self._changes, bounds), progress)
                self._refuse_holes(part, progress)
            self._parts[name] = part
        return self._parts[name]

    def _part(self, rows: DataFrame, progress: Progress) -> Part:
        rows = self._with_id(_behind(rows, progress))
        surveys = survey_of(rows)
        held = None
        if sum(survey.rows for survey in surveys.values()) <= SMALL_RECORDS:
            held = rows.toArrow()
            rows = _local(held, rows)
        return Part(rows, looked_into(surveys, rows), held)

    def _with_id(self, rows: DataFrame) -> DataFrame:
        columns = [f"`{name}`" for name in COLUMNS]
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
    stands = {key: stand.ordinal for key, stand in progress.stands.items() if stand.ordinal}
    if not stands:
        return rows
    if len(stands) == 1:
        ((key, ordinal),) = stands.items()
        return rows.where(f"NOT ({whose(key)} AND ordinal <= {ordinal})")
    joined = rows.join(ordinals(rows.sparkSession, known=stands), ["consumer", "stream"], "left")
    return joined.where("known IS NULL OR ordinal > known").drop("known")


def _bounded(changes: DataFrame, surveys: Surveys) -> DataFrame:
    """Rows of `changes` up to the last ordinal of each stream surveyed."""
    ends = {key: survey.last for key, survey in surveys.items()}
    joined = changes.join(ordinals(changes.sparkSession, upto=ends), ["consumer", "stream"])
    return joined.where("ordinal <= upto").drop("upto")
