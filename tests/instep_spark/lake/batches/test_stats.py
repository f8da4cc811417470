"""The statistics of a micro-batch, collected before its rows are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep_spark.lake.batches.stats import StreamStats, collect_stats, refine_stats
from tests.instep_spark.lake.lake_kit import changes
from tests.instep_spark.lake.log_kit import START_US, Row, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = [
    Row("c", "s", n, "CREATE_UPDATE", f"n{n}", f"t{n}", "p", n, START_US + n, START_US + n)
    for n in range(1, 6)
]


def survey(spark: SparkSession, lake: Path, rows: list[Row]) -> StreamStats:
    land(lake, rows)
    found = changes(spark, lake).selectExpr("*", "key AS id")
    (one,) = refine_stats(collect_stats(found), found).values()
    return one


@pytest.mark.parametrize("hashed_records", [2, 1_000])
def test_statements_about_one_entity_are_detected_however_many_are_compared(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed_records: int
) -> None:
    monkeypatch.setattr("instep_spark.lake.batches.stats.HASHED_RECORDS", hashed_records)
    apart = survey(spark, tmp_path / "apart", ROWS)
    assert (apart.first, apart.last, apart.rows) == (1, 5, 5)
    assert (apart.repeated, apart.backwards) == (hashed_records < len(ROWS), False)
    newer = replace(ROWS[0], ordinal=6, offset=6, token="t6")
    again = survey(spark, tmp_path / "again", [*ROWS, newer])
    assert (again.repeated, again.backwards) == (True, False)
    older = replace(ROWS[4], ordinal=6, offset=0, token="t0")
    back = survey(spark, tmp_path / "back", [*ROWS, older])
    assert (back.repeated, back.backwards) == (True, True)
