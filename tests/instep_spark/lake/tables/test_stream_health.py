"""`stream_health`: what it says of a minute."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.instep_spark.lake.lake_kit import ends, health_of, pipeline
from tests.instep_spark.lake.log_kit import START_US, Row, land
from tests.instep_spark.lake.model_kit import Model
from tests.instep_spark.lake.random_logs import providers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_l1_the_mean_delay_of_a_minute_does_not_depend_on_how_batches_were_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The rows of a baseline have no delay, and no weight in the mean."""

    def row(ordinal: int, **facts: Any) -> Row:
        key = f"n{ordinal}"
        usual: dict[str, Any] = {"appended_at": START_US, "committed_at": START_US, "uuid": key}
        return Row("c", "s", ordinal, "CREATE_UPDATE", key, **usual | facts)

    rows = [row(ordinal) for ordinal in range(1, 10)]
    rows.append(row(10, token="t10", appended_at=START_US - 10_000_000))
    rows.append(row(11, token="t11"))
    land(tmp_path, rows)
    made = pipeline(spark, tmp_path, tables=["stream_health"])
    for upto in (9, 10, 11):
        made.apply(spark, ends(rows[:upto]))
    model = Model()
    model.read(rows)
    assert health_of(tmp_path) == {at: minute.facts for at, minute in model.minutes.items()}
    assert [facts[3] for facts in health_of(tmp_path).values()] == [5.0]


def test_a_row_about_several_entities_is_one_record(spark: SparkSession, tmp_path: Path) -> None:
    (provider,) = providers_of(107, 1, 9)
    assert any(len(row.entities) > 1 for row in provider.rows)
    land(tmp_path, provider.rows)
    made = pipeline(spark, tmp_path, tables=["stream_health"])
    made.apply(spark, ends(provider.rows))
    model = Model()
    model.read(provider.rows)
    assert health_of(tmp_path) == {at: minute.facts for at, minute in model.minutes.items()}


def test_l1_the_mean_delay_is_the_same_to_its_last_bit(spark: SparkSession, tmp_path: Path) -> None:
    """These two cuts gave 44.50000390000001 and 44.5000039 where means were merged."""
    delays_us = [44_500_003, 44_500_004, 44_500_007, 10, 3, 99_999_999, 1]
    rows = [
        Row("c", "s", at, "CREATE_UPDATE", f"n{at}", f"t{at}", appended_at=START_US - delay_us)
        for at, delay_us in enumerate(delays_us, 1)
    ]
    land(tmp_path, rows)
    for cuts in ((7,), (1, 2, 3, 5, 7)):
        shutil.rmtree(tmp_path / "stream_health", ignore_errors=True)
        shutil.rmtree(tmp_path / "entities", ignore_errors=True)
        made = pipeline(spark, tmp_path, tables=["stream_health"])
        for upto in cuts:
            made.apply(spark, ends(rows[:upto]))
        ((_, _, timed, mean_s, *_),) = health_of(tmp_path).values()
        assert (timed, mean_s) == (7, sum(delays_us) / (1e6 * 7))
