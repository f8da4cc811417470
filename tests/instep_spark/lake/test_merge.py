"""Few rows merged by the driver, beside the same by Spark."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from instep_spark.lake.batches.micro_batch import MicroBatch
from instep_spark.lake.batches.progress import TableProgress
from instep_spark.lake.pipeline import Pipeline
from instep_spark.lake.sql.supersede import ENTITY
from instep_spark.lake.tables.base import OvertakenError
from instep_spark.lake.tables.entities import EntitiesTable
from instep_spark.place import LakePlace, Layout
from tests.instep_spark.lake.lake_kit import (
    UNGUARDED,
    check_alarms,
    check_entities,
    check_history,
    ends,
    landed,
    pipeline,
    read,
    stamp,
)
from tests.instep_spark.lake.log_kit import Provider, land
from tests.instep_spark.lake.model_kit import Model
from tests.instep_spark.lake.random_logs import providers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = ("entities", "entity_history", "alarms", "topology", "stream_health")


def _rows(lake: Path, table: str) -> list[str]:
    return sorted(str(sorted(row.items())) for row in read(lake, table))


def _engines(lake: Path, table: str) -> set[str]:
    """What has merged."""
    return {
        commit.get("engineInfo", "").partition(":")[0].partition("/")[0]
        for commit in DeltaTable(lake / table).history()
        if commit["operation"] == "MERGE"
    }


def _merged(spark: SparkSession, lake: Path, **settings: Any) -> dict[str, list[str]]:
    """The rows of each table, of logs with ends, from a baseline, and with one uuid in several
    places.
    """
    logs = [provider.rows for provider in providers_of(1, 3, 6)]
    rows = [row for log in logs for row in log]
    land(lake, rows)
    made = pipeline(spark, lake, settings=replace(UNGUARDED, **settings))
    made.apply(spark, ends(rows))
    return {table: _rows(lake, table) for table in TABLES}


@pytest.fixture(scope="module")
def by_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    lake = tmp_path_factory.mktemp("by-spark")
    merged = _merged(spark, lake, by_driver=False)
    for table in TABLES:
        assert not _engines(lake, table) & {"delta-rs", "instep"}, table
    return merged


@pytest.mark.parametrize(
    ("layout", "engine"), [("copy-on-write", "delta-rs"), ("merge-on-read", "instep")]
)
def test_a_small_merge_is_what_spark_makes_of_it(
    spark: SparkSession,
    by_spark: dict[str, list[str]],
    tmp_path: Path,
    layout: Layout,
    engine: str,
) -> None:
    found = _merged(spark, tmp_path, by_driver=True, layout=layout)
    for table in TABLES:
        assert engine in _engines(tmp_path, table), table
        assert found[table], table
        assert found[table] == by_spark[table], table


@pytest.mark.long
def test_spark_merges_alike_in_each_layout(
    spark: SparkSession, by_spark: dict[str, list[str]], tmp_path: Path
) -> None:
    assert _merged(spark, tmp_path, by_driver=False, layout="merge-on-read") == by_spark


def test_progress_is_durable_where_a_merge_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Provider(7, "one", offsets=True).run(8)
    # Once more, as after a redelivery: the topology and the entities stay what they are.
    again = [
        dataclasses.replace(row, ordinal=log[-1].ordinal + number)
        for number, row in enumerate(log[-3:-1], 1)
    ]
    land(tmp_path, [*log, *again])
    made = pipeline(spark, tmp_path)
    made.apply(spark, ends(log))
    made.apply(spark, ends(again))
    made.settle(spark)
    last = {(row.consumer, row.stream): row.ordinal for row in again}
    for target in pipeline(spark, tmp_path).targets:
        assert {key: at.ordinal for key, at in target.progress.by_stream.items()} == last


def test_a_commit_of_another_pipeline_is_not_merged_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Provider(7, "one", offsets=True).run(8)
    land(tmp_path, log)
    half = ends(log[: len(log) // 2])
    by_spark = replace(UNGUARDED, by_driver=False)
    tables = ["entity_history", "alarms", "topology"]
    slow = pipeline(spark, tmp_path, tables=tables)
    for settings in (UNGUARDED, by_spark):
        quick: Pipeline = pipeline(spark, tmp_path, tables=tables, settings=settings)
        quick.apply(spark, half)
        quick.entities.commit_progress(spark, quick.entities.progress)
        stamps = [stamp(spark, target) for target in quick.targets]
        with pytest.raises(OvertakenError, match="another pipeline has written"):
            slow._apply(spark, landed(tmp_path))
        assert [stamp(spark, target) for target in quick.targets] == stamps
        for target in slow.targets:
            target.open(spark)
        half = ends(log[: len(log) * 3 // 4])
    slow.apply(spark, landed(tmp_path))
    model = Model()
    model.read(log)
    check_entities(tmp_path, model)
    check_history(tmp_path, model)
    check_alarms(tmp_path, model)


def test_what_the_driver_holds_is_projected_as_by_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Provider(7, "one", offsets=True).run(8)
    assert {"ATTEMPT", "CREATE_UPDATE"} <= {row.kind for row in log}
    land(tmp_path, log)
    table = LakePlace(tmp_path.as_uri()).table("changes")
    pending = MicroBatch(spark, table, landed(tmp_path), "", lambda one: one).after(TableProgress())
    entities = EntitiesTable(LakePlace(tmp_path.as_uri()))
    assert pending.held is not None
    quick = entities.project_held(pending.held)
    assert quick is not None
    plain = entities.project(pending.rows.where(ENTITY)).toArrow()
    assert 0 < plain.num_rows < pending.held.num_rows
    assert quick.schema.remove_metadata().equals(plain.schema.remove_metadata())
    assert quick.sort_by("ordinal").to_pylist() == plain.sort_by("ordinal").to_pylist()
