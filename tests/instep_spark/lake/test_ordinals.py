"""L5: a run is driven by ordinals. Whatever happens to a table or to `changes`, it ends right, or
refuses and says why; and `verify` is clean only where all of it is right.
"""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from instep.errors import SinkError
from instep_spark.lake import lake as module
from instep_spark.lake.lake import Lake, RunProgress
from tests.instep_spark.lake.lake_kit import UNGUARDED, ends, landed, pipeline, read, row
from tests.instep_spark.lake.log_kit import Provider, Row, land
from tests.instep_spark.lake.model_kit import Model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TABLES = ("entity_history", "alarms", "topology")
ALL = ("entities", *TABLES)


def lake_of(folder: Path, spark: SparkSession, **options: Any) -> Lake:
    return Lake(folder.as_uri(), spark, **{"tables": TABLES, "settings": UNGUARDED, **options})


def contents(folder: Path) -> dict[str, list[str]]:
    """All rows of all tables."""
    return {name: sorted(map(str, read(folder, name))) for name in ALL}


def restore(folder: Path, spark: SparkSession, versions: dict[str, int]) -> None:
    for name, version in versions.items():
        table = f"delta.`{folder.as_uri()}/{name}`"
        spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {version}")


def check_entities(folder: Path, log: list[Row]) -> None:
    model = Model()
    model.read(log)
    found = {(e["consumer"], e["stream"], e["key"]): e["token"] for e in read(folder, "entities")}
    assert found == {key: token for key, (_, token, _) in model.current().items()}


def test_l5_what_was_restored_or_removed_is_made_again_although_nothing_lands(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Provider(7, "one", keys=3).run(10)
    half = next(n for n, one in enumerate(log) if n > 12 and one.kind == "CREATE_UPDATE")
    land(tmp_path, log)
    made = pipeline(spark, tmp_path, tables=TABLES)
    made.apply(spark, ends(log[:half]))
    made.settle(spark)
    versions = {name: DeltaTable(tmp_path / name).version() for name in ALL}
    made.apply(spark, landed(tmp_path))
    made.settle(spark)
    right = contents(tmp_path)
    check_entities(tmp_path, log)

    # The leader alone: those that follow it have all rows.
    restore(tmp_path, spark, {"entities": versions["entities"]})
    told: list[RunProgress] = []
    lake_of(tmp_path, spark, report_run=told.append).run(once=True)
    assert told[-1].rows_behind == 0
    assert contents(tmp_path) == right

    # All of them: no table tells that there were more rows.
    restore(tmp_path, spark, versions)
    found = lake_of(tmp_path, spark).verify()
    assert not found.clean
    assert found.rows_behind == dict.fromkeys(ALL, len(log) - half)
    assert found.missing + found.stale + found.bogus > 0
    shutil.rmtree(tmp_path / "entities")
    shutil.rmtree(tmp_path / "topology")
    lake_of(tmp_path, spark).run(once=True)
    assert contents(tmp_path) == right
    found = lake_of(tmp_path, spark).verify()
    assert (found.clean, found.rows_read) == (True, len(log))


def test_l5_changes_may_be_joined_vacuumed_and_without_old_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    land(tmp_path, [row(1), row(2)])
    lake_of(tmp_path, spark, tables=[]).run(once=True)
    for number in range(3, 6):
        land(tmp_path, [row(number)])
    landing = DeltaTable(tmp_path / "changes")
    landing.optimize.compact()
    landing.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    landing.create_checkpoint()
    for commit in (tmp_path / "changes" / "_delta_log").glob("0*.json"):
        if int(commit.stem) < landing.version():
            commit.unlink()
    assert len(list((tmp_path / "changes").glob("*.parquet"))) == 1
    lake_of(tmp_path, spark, tables=[]).run(once=True)
    assert sorted(one["key"] for one in read(tmp_path, "entities")) == [
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
    ]
    assert lake_of(tmp_path, spark, tables=[]).verify().clean


def test_l5_a_table_that_needs_rows_that_changes_has_lost_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    land(tmp_path, [row(1), row(2)])
    lake_of(tmp_path, spark, tables=["topology"]).run(once=True)
    DeltaTable(tmp_path / "changes").delete("ordinal = 1")
    land(tmp_path, [row(3)])
    lake_of(tmp_path, spark, tables=["topology"]).run(once=True)
    assert len(read(tmp_path, "entities")) == len(read(tmp_path, "topology")) == 3
    # What is lost cannot be compared, and says so.
    with pytest.raises(SinkError, match="changes has 2 of 3 rows of c / s"):
        lake_of(tmp_path, spark).verify()
    with pytest.raises(SinkError, match="changes lacks rows of c / s between 0 and 3"):
        lake_of(tmp_path, spark, tables=["topology", "entity_history"]).run(once=True)
    assert read(tmp_path, "entity_history") == []
    shutil.rmtree(tmp_path / "entities")
    with pytest.raises(SinkError, match="changes lacks rows of c / s"):
        lake_of(tmp_path, spark, tables=["topology"]).run(once=True)
    # All of them: only the other table tells that there were any.
    DeltaTable(tmp_path / "changes").delete()
    with pytest.raises(SinkError, match="changes lacks rows of c / s between 0 and 3"):
        lake_of(tmp_path, spark, tables=["topology"]).run(once=True)


def test_l5_a_run_that_goes_on_sees_what_was_restored_and_what_was_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.0)
    land(tmp_path, [row(1)])
    lake = lake_of(tmp_path, spark, tables=["topology"])
    lake.run(once=True)
    versions = {name: DeltaTable(tmp_path / name).version() for name in ("entities", "topology")}
    land(tmp_path, [row(2)])
    stop = threading.Event()
    steps: list[str] = []
    settled = module.Lake._settle_in_time

    def then(self: Lake) -> None:
        """Between two looks of the run, one thing after another."""
        settled(self)
        keys = [sorted(one["key"] for one in read(tmp_path, name)) for name in versions]
        steps.append(str(keys))
        if keys[0] != keys[1] or len(keys[0]) < 2:
            return
        match len(steps):
            case 1:
                restore(tmp_path, spark, versions)
            case 2:
                # New rows land at once: they must not hide what is gone.
                restore(tmp_path, spark, {"entities": versions["entities"]})
                land(tmp_path, [row(3)])
            case 3:
                shutil.rmtree(tmp_path / "topology")
            case _:
                stop.set()

    monkeypatch.setattr(module.Lake, "_settle_in_time", then)
    lake.run(stop=stop, interval_s=0.05)
    assert len(steps) == 4
    assert len(read(tmp_path, "entities")) == len(read(tmp_path, "topology")) == 3
    assert lake_of(tmp_path, spark, tables=["topology"]).verify().clean


def test_l5_a_copy_of_unknown_progress_is_never_clean_and_is_made_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Provider(11, "one", keys=3).run(6)
    land(tmp_path, log)
    lake_of(tmp_path, spark, tables=[]).run(once=True)
    right = sorted(map(str, read(tmp_path, "entities")))
    beside = tmp_path / "beside"
    shutil.move(tmp_path / "entities", beside)
    there = f"delta.`{tmp_path.as_uri()}/entities`"
    spark.sql(f"CREATE TABLE {there} SHALLOW CLONE delta.`{beside.as_uri()}`")
    found = lake_of(tmp_path, spark, tables=[]).verify()
    assert (found.clean, found.rows_behind["entities"]) == (False, None)
    assert "entities: unknown how far it has come" in str(found)
    with pytest.raises(SinkError) as refused:
        lake_of(tmp_path, spark, tables=[]).run(once=True)
    assert "instep lake rebuild --tables entities" in refused.value.hint
    lake_of(tmp_path, spark, tables=["entities"]).rebuild()
    assert sorted(map(str, read(tmp_path, "entities"))) == right
    assert lake_of(tmp_path, spark, tables=[]).verify().clean


def test_l5_a_run_that_is_stopped_with_rows_behind_has_failed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_RECORDS", 2)
    land(tmp_path, [row(n) for n in range(1, 6)])
    stop = threading.Event()
    lake = lake_of(tmp_path, spark, tables=[], report=lambda _step: stop.set())
    with pytest.raises(SinkError, match="stopped with 3 rows behind"):
        lake.run(once=True, stop=stop)
    assert json.loads(read(tmp_path, "entities")[0]["body"])
    lake_of(tmp_path, spark, tables=[]).run(once=True)
    assert len(read(tmp_path, "entities")) == 5


def test_l5_two_pipelines_at_once_write_what_one_would(spark: SparkSession, tmp_path: Path) -> None:
    log = Provider(13, "one", keys=3).run(10)
    twin, both = tmp_path / "twin", tmp_path / "both"
    land(twin, log)
    lake_of(twin, spark).run(once=True)
    third = len(log) // 3
    for rows in (log[:third], log[third : 2 * third], log[2 * third :]):
        land(both, rows)
        lakes = [lake_of(both, spark) for _ in range(2)]
        with ThreadPoolExecutor(len(lakes)) as pool:
            for running in [pool.submit(lake.run, once=True) for lake in lakes]:
                running.result()
    assert contents(both) == contents(twin)
    assert lake_of(both, spark).verify().clean
