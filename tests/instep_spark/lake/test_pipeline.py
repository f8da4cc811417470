"""The pipeline on random logs, however they are cut into micro-batches, against a plain model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep_spark.lake.tables.base import OvertakenError
from tests.instep_spark.lake.lake_kit import (
    check_alarms,
    check_entities,
    check_history,
    ends,
    landed,
    pipeline,
    stamp,
)
from tests.instep_spark.lake.log_kit import Provider, land
from tests.instep_spark.lake.model_kit import Model
from tests.instep_spark.lake.random_logs import providers_of, run, with_gaps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CHECKED = ("entity_history", "alarms", "topology")


@pytest.mark.parametrize(
    ("seed", "steps", "held_records"),
    [
        (7, 4, 30_000),
        pytest.param(6, 5, 30_000, marks=pytest.mark.long),
        pytest.param(8, 5, 0, marks=pytest.mark.long),
    ],
)
def test_random_logs_in_random_micro_batches(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    steps: int,
    held_records: int,
) -> None:
    """One each, by rows that the driver holds, of changes only, and from files;
    `python -m tests.instep_spark.lake.random_logs` tries hundreds in all ways.
    """
    monkeypatch.setattr("instep_spark.lake.batches.micro_batch.SMALL_RECORDS", held_records)
    spark = spark.newSession()
    spark.conf.set("spark.sql.shuffle.partitions", "2")  # so that tasks share what belongs together
    assert run(spark, tmp_path, providers_of(seed, 1, steps), [with_gaps]) == []


def test_what_another_pipeline_has_written_meanwhile_is_not_written_beside(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Provider(7, "one", offsets=True).run(6)
    land(tmp_path, log)
    slow, quick = (pipeline(spark, tmp_path, tables=CHECKED) for _ in range(2))
    quick.apply(spark, ends(log[: len(log) // 2]))
    stamps = [stamp(spark, target) for target in quick.targets]
    with pytest.raises(OvertakenError, match="another pipeline has written"):
        slow.entities.commit_progress(spark, slow.entities.progress)
    assert [stamp(spark, target) for target in quick.targets] == stamps
    slow.apply(spark, landed(tmp_path))
    model = Model()
    model.read(log)
    check_entities(tmp_path, model)
    check_history(tmp_path, model)
    check_alarms(tmp_path, model)
