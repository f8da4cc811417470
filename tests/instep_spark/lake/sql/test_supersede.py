"""Rule A3 in the SQL of the lake's engines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from instep_spark.lake.sql import supersede
from instep_spark.lake.sql.supersede import effective_rows
from tests.instep.model.ordering_kit import NEWER, Case, newer, null_query, pairs_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a3_in_datafusion() -> None:
    def query(sql: str) -> list[tuple[int, int]]:
        found = pa.table(QueryBuilder().execute(sql).read_all())
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    assert set(query(pairs_query())) == NEWER
    assert query(null_query()) == [(0, 1)]


# A JVM starts, and may share the machine.
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a3_in_spark(spark: SparkSession) -> None:
    assert {tuple(row) for row in spark.sql(pairs_query()).collect()} == NEWER
    assert [tuple(row) for row in spark.sql(null_query()).collect()] == [(0, 1)]


class Statement(NamedTuple):
    """A row of a table of `id`s."""

    id: str
    ordinal: int
    place: Case
    ends: bool = False

    @property
    def at(self) -> tuple[str, int]:
        return self.id, self.ordinal


def _plain(
    rows: Sequence[Statement], stored: Sequence[Statement], ended: Sequence[Statement] | None
) -> set[tuple[str, int]]:
    """A3 and L1, one statement after another: id and ordinal of those that count."""
    alive = {one.id: one.place for one in stored}
    ends = {one.id: one.place for one in ended or ()}
    counting = set()
    for row in sorted(rows, key=lambda row: row.ordinal):
        known, end = alive.get(row.id), ends.get(row.id)
        if known is not None:
            if newer(known, row.place):
                continue
        elif ended is not None:
            if row.ends:
                continue  # the end of nothing is not remembered
            if (
                end is not None
                and newer(end, row.place)
                and end.appended_at_us >= row.place.appended_at_us
            ):
                continue
        counting.add(row.at)
        alive.pop(row.id, None)
        if row.ends:
            ends[row.id] = row.place
        else:
            alive[row.id] = row.place
    return counting


def _frame(spark: SparkSession, statements: Sequence[Statement]) -> DataFrame:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(microseconds=one.place.appended_at_us) for one in statements]
    count = len(statements)
    columns = {
        "consumer": pa.array(["c"] * count, pa.string()),
        "stream": pa.array(["s"] * count, pa.string()),
        "id": pa.array([one.id for one in statements], pa.string()),
        "token": pa.array(["t"] * count, pa.string()),
        "lineage": pa.array([one.place.lineage for one in statements], pa.int64()),
        "partition": pa.array([one.place.partition for one in statements], pa.string()),
        "record_offset": pa.array([one.place.offset for one in statements], pa.int64()),
        "appended_at": pa.array(times, pa.timestamp("us", "UTC")),
        "ordinal": pa.array([one.ordinal for one in statements], pa.int64()),
        "ends": pa.array([one.ends for one in statements], pa.bool_()),
    }
    return spark.createDataFrame(pa.table(columns))


def _statements(chance: random.Random, count: int, entities: int) -> list[Statement]:
    return [
        Statement(
            f"e{chance.randrange(entities)}",
            ordinal,
            Case(
                chance.choice((1, 1, 1, 2)),
                chance.choice(("0", "0", "1")),
                chance.choice((-1, *range(12))),
                chance.randrange(12),
            ),
            chance.random() < 0.2,
        )
        for ordinal in range(count)
    ]


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ends", [False, True])
def test_a3_statements_count_as_one_by_one(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(supersede, "_RECENT_BYTES", 9)  # so that it is exceeded
    chance = random.Random(5)
    known = [one._replace(ends=False) for one in _statements(chance, 40, 60)]
    stored = list({one.id: one for one in known[:20]}.values())
    ended = list({one.id: one for one in known[20:]}.values()) if ends else None
    if ended is not None:
        # A table remembers the end of what exists again, too: an earlier one.
        ended = [one for one in ended if one.id not in {other.id for other in stored}]
    rows = [one._replace(ordinal=one.ordinal + 40) for one in _statements(chance, 900, 60)]
    found = effective_rows(
        _frame(spark, rows),
        _frame(spark, stored),
        None if ended is None else _frame(spark, ended),
    )
    assert {(row.id, row.ordinal) for row in found.collect()} == _plain(rows, stored, ended)
    assert 0 < found.count() < len(rows)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a3_a_detector_that_flaps_for_long(spark: SparkSession) -> None:
    """More than is copied at once."""
    places = [Case(1, "0", offset, offset) for offset in range(3_000)]
    places[1_000:1_000] = places[990:995]
    rows = [Statement("e", at, place, at % 2 == 1) for at, place in enumerate(places)]
    found = effective_rows(_frame(spark, rows), _frame(spark, []))
    assert {(row.id, row.ordinal) for row in found.collect()} == _plain(rows, [], None)
