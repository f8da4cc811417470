"""A lake that is run, stopped half way, looked after and verified."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from instep.errors import ConfigurationError, SinkError, StoreVersionError
from instep.model.batches import SweepStep
from instep_spark import create_views
from instep_spark.answers import answer
from instep_spark.lake import lake as module
from instep_spark.lake.deletion_vectors.delta_log import FILE_SIZE_PROPERTY
from instep_spark.lake.lake import Lake, RunProgress
from instep_spark.lake.pipeline import LakeSettings, Pipeline, PipelineStep
from instep_spark.lake.sweeps import LakeSweep
from instep_spark.lake.tables.base import LakeTable
from instep_spark.landing.live_view import live
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.landing_schema import FACTS, arrow_schema
from instep_spark.options import DeltaOptions
from instep_spark.place import LakePlace
from tests.docs.snippets_kit import snippets
from tests.instep_spark.lake.lake_kit import (
    UNGUARDED,
    check_alarms,
    check_entities,
    check_history,
    check_verified,
    ends,
    landed,
    pipeline,
    read,
    row,
    stamp,
)
from tests.instep_spark.lake.log_kit import START_US, Change, Provider, Row, land
from tests.instep_spark.lake.model_kit import Model
from tests.instep_spark.sink_kit import of_all, stage, url_of
from tests.instep_sql.store_kit import create_update, end_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


class Crash(Exception):
    """Ends a micro-batch half way."""


REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_stream_that_stops_in_the_middle_of_a_micro_batch_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Provider(7, "one").run(14)
    land(tmp_path, log[:8])
    report: list[PipelineStep] = []
    options: dict[str, Any] = {"tables": ["entity_history", "alarms", "topology"]}
    options["settings"] = UNGUARDED
    Lake(tmp_path.as_uri(), spark, report=report.append, **options).run(once=True)
    assert {step.table for step in report} >= {"entities", "entity_history", "alarms"}
    land(tmp_path, log[8:])
    committed = LakeTable._committed

    def failing(target: LakeTable, *metadata: Any) -> None:
        committed(target, *metadata)
        if target.name == "entity_history":
            raise Crash

    # Whoever has merged, Spark or the driver.
    monkeypatch.setattr(LakeTable, "_committed", failing)
    with pytest.raises(Crash):
        Lake(tmp_path.as_uri(), spark, **options).run(once=True)
    monkeypatch.undo()
    lake = Lake(tmp_path.as_uri(), spark, **options)
    lake.run(once=True)
    model = Model()
    model.read(log)
    check_entities(tmp_path, model)
    check_history(tmp_path, model)
    check_alarms(tmp_path, model)
    assert lake.verify().clean


def detector(ordinal: int, offset: int, *, attempt: int = 1, **facts: Any) -> Row:
    at = START_US + offset * 1_000_000
    usual = {"key": "k1", "token": f"t{offset}", "partition": "p", "offset": offset}
    usual |= {"appended_at": at, "event_at": at, "detector": True, "state": "ACTIVE"}
    return row(ordinal, attempt=attempt, **{**usual, **facts})


def test_l1_a_second_reading_of_the_log_adds_no_episode_and_no_interval(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = [row(1, "ATTEMPT", key=""), detector(2, 0), detector(3, 600, ends=True, state="CLEAR")]
    again = [row(4, "ATTEMPT", key="", attempt=2), detector(5, 0, attempt=2)]
    again += [detector(6, 600, attempt=2, ends=True, state="CLEAR")]
    again += [row(7, "SWEEP", key="", attempt=2), detector(8, 700, attempt=2)]
    land(tmp_path, [*log, *again])
    # The second reading comes with the first, and half of it behind.
    tables = ["entity_history", "alarms"]
    made = pipeline(spark, tmp_path, tables=tables)
    for end in (3, 5, 8):
        made.apply(spark, ends([*log, *again][:end]))
    whole = tmp_path / "whole"
    land(whole, [*log, *again])
    pipeline(spark, whole, tables=tables).apply(spark, landed(whole))
    for lake in (tmp_path, whole):
        episodes = sorted(read(lake, "alarms"), key=lambda one: one["episode"])
        told = [(one["episode"], one["statements"], one["flapping_count"]) for one in episodes]
        assert told == [(2, 1, 0), (8, 1, 1)]
        intervals = sorted(read(lake, "entity_history"), key=lambda one: one["ordinal"])
        assert [(one["ordinal"], one["end_ordinal"]) for one in intervals] == [(2, 3), (8, None)]
        assert (intervals[0]["end_lineage"], intervals[0]["end_record_offset"]) == (1, 600)
        assert [one["token"] for one in read(lake, "entities")] == ["t700"]


def test_l1_flapping_does_not_depend_on_how_batches_were_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    two_hours_us = 7_200_000_000
    clear: dict[str, Any] = {"ends": True, "state": "CLEAR"}
    steps: list[tuple[int, dict[str, Any]]] = [(0, {}), (60, clear), (120, {})]
    log = [
        detector(n, offset, event_at=START_US + offset * 1_000_000 - two_hours_us, **facts)
        for n, (offset, facts) in enumerate(steps, 1)
    ]
    land(tmp_path, log)
    made = pipeline(spark, tmp_path, tables=["alarms"])
    made.apply(spark, ends(log[:2]))
    made.apply(spark, landed(tmp_path))
    episodes = sorted(read(tmp_path, "alarms"), key=lambda one: one["episode"])
    assert [one["flapping_count"] for one in episodes] == [0, 1]


class Typed(Row):
    """A detector that states its type, and its state only where it has one."""

    @property
    def body(self) -> str:
        stated = {"condition-detector-type": f"CONDITION_DETECTOR_TYPE_{self.token}"}
        if self.state:
            detail = {"alarm-detector-state": f"ALARM_DETECTOR_STATE_{self.state}"}
            stated["alarm-condition-detector-detail"] = detail  # type: ignore[assignment]
        return json.dumps(stated)


def test_3_9_2_5_what_never_clears_is_no_alarm_that_stands(
    spark: SparkSession, tmp_path: Path
) -> None:
    kinds = [
        ("crossing", "EVENT_DETECTOR", ""),
        ("pm", "PM_THRESHOLD_DETECTOR", ""),
        ("recovers", "PM_THRESHOLD_DETECTOR", "ACTIVE"),
        ("old", "ALARM_DETECTOR", ""),
    ]
    log = [
        Typed(
            *("c", "s", at, "CREATE_UPDATE", key, kind, "p", at, START_US + at, START_US + at),
            detector=True,
            state=state,
        )
        for at, (key, kind, state) in enumerate(kinds, 1)
    ]
    land(tmp_path, log)
    pipeline(spark, tmp_path).apply(spark, landed(tmp_path))
    assert {one["key"] for one in read(tmp_path, "alarms")} == {"recovers", "old"}
    assert len(read(tmp_path, "entities")) == 4


def test_tables_that_are_asked_for_later_are_filled(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, Provider(5, "one", keys=3).run(12))
    Lake(tmp_path.as_uri(), spark, tables=["alarms"], settings=UNGUARDED).run(once=True)
    assert not (tmp_path / "topology").exists()
    Lake(tmp_path.as_uri(), spark, settings=UNGUARDED).run(once=True)
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "changes", whole / "changes")
    Lake(whole.as_uri(), spark, settings=UNGUARDED).run(once=True)
    for name in ("entity_history", "alarms", "topology", "stream_health"):
        found, wanted = (
            sorted(read(lake, name), key=lambda one: (one["stream"], one["ordinal"]))
            for lake in (tmp_path, whole)
        )
        assert found == wanted
        assert found


def test_maintenance_keeps_the_progress_and_what_is_wrong_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(1, 5):
        land(tmp_path, [row(number)])
    made = pipeline(spark, tmp_path, tables=[])
    made.apply(spark, landed(tmp_path))
    entities = made.entities
    lake = Lake(tmp_path.as_uri(), spark, tables=[])
    progress = stamp(spark, entities)
    assert lake.optimize().keys() == {"entities"}
    # A file of `changes` that was replaced, and whose versions nobody asks for any more.
    DeltaTable(tmp_path / "changes").optimize.compact()
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    files = len(list((tmp_path / "changes").glob("*.parquet")))
    assert set(Lake(tmp_path.as_uri(), spark, tables=[]).vacuum(0)) == {"changes", "entities"}
    spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert len(list((tmp_path / "changes").glob("*.parquet"))) == 1 < files
    assert stamp(spark, entities) == progress
    assert {one["table"] for one in lake.history(3)} == {"changes", "entities"}
    assert lake.verify().clean
    DeltaTable(tmp_path / "entities").update(new_values={"body": "wrong"}, predicate="key = 'n2'")
    found = lake.verify()
    assert (found.right, found.stale, found.bogus, found.missing) == (3, 1, 0, 0)
    assert (found.examples[0]["key"], found.examples[0]["verdict"]) == ("n2", "stale")


def test_a_large_table_is_clustered_for_its_readers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Provider(7, "one", offsets=True).run(24)
    land(tmp_path, log)
    followers = ["entity_history", "alarms", "topology"]
    made = pipeline(spark, tmp_path, tables=followers)
    made.apply(spark, landed(tmp_path))
    tables = ("entities", *followers)
    before = {name: sorted(map(str, read(tmp_path, name))) for name in tables}
    progress = stamp(spark, made.entities)
    monkeypatch.setattr(module, "_CLUSTERED_BYTES", 1)
    DeltaTable(tmp_path / "entities").alter.set_table_properties({FILE_SIZE_PROPERTY: "1000"})
    lake = Lake(tmp_path.as_uri(), spark, tables=followers)
    lake.optimize()
    assert {name: sorted(map(str, read(tmp_path, name))) for name in tables} == before
    assert stamp(spark, made.entities) == progress
    files = pa.table(DeltaTable(tmp_path / "entities").get_add_actions(flatten=True))
    bounds = zip(files["min.class"].to_pylist(), files["max.class"].to_pylist(), strict=True)
    assert sum(low <= "NODE" <= high for low, high in bounds) < files.num_rows
    # Of a table that is larger still, only small files are written.
    monkeypatch.setattr(module, "_MOST_CLUSTERED_BYTES", 2)
    version = DeltaTable(tmp_path / "topology").version()
    lake.optimize()
    assert DeltaTable(tmp_path / "topology").version() == version


def test_l2_a_restored_table_gets_what_it_has_lost(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, [row(number) for number in range(1, 5)])
    tables = ["entity_history", "topology"]
    made = pipeline(spark, tmp_path, tables=tables)
    made.apply(spark, ends([row(1)]))
    version = DeltaTable(tmp_path / "entities").version()
    made.apply(spark, ends([row(1), row(2), row(3)]))
    spark.sql(f"RESTORE TABLE {made.entities.sql} TO VERSION AS OF {version}")
    assert [one["key"] for one in read(tmp_path, "entities")] == ["n1"]
    pipeline(spark, tmp_path, tables=tables).apply(spark, landed(tmp_path))
    for table in ("entities", "entity_history", "topology"):
        assert sorted(one["key"] for one in read(tmp_path, table)) == ["n1", "n2", "n3", "n4"]
    check_verified(spark, tmp_path)


def test_l2_the_log_of_a_quiet_table_keeps_its_progress(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path, [row(1)])
    pipeline(spark, tmp_path, tables=[]).apply(spark, landed(tmp_path))
    version, now_s = DeltaTable(tmp_path / "entities").version(), time.time()
    made = pipeline(spark, tmp_path, tables=[])
    made.settle(spark)
    assert DeltaTable(tmp_path / "entities").version() == version
    monkeypatch.setattr("instep_spark.lake.tables.base.time.time", lambda: now_s + 90_000)
    for _ in range(2):
        made.settle(spark)
    assert DeltaTable(tmp_path / "entities").version() == version + 1
    monkeypatch.undo()
    assert pipeline(spark, tmp_path, tables=[]).entities.progress["c", "s"].ordinal == 1


def test_l2_rows_of_unknown_progress_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, [row(1), row(2)])
    tables = ["entity_history"]
    made = pipeline(spark, tmp_path, tables=tables)
    made.apply(spark, landed(tmp_path))
    (history,) = made.followers
    beside = tmp_path / "beside"
    shutil.move(tmp_path / "entity_history", beside)
    spark.sql(f"CREATE TABLE {history.sql} SHALLOW CLONE delta.`{beside.as_uri()}`")
    with pytest.raises(SinkError, match="none of its commits tells how far"):
        pipeline(spark, tmp_path, tables=tables)


def test_l3_a_table_is_made_again_beside_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    log = Provider(11, "one", keys=3).run(6)
    land(tmp_path, log)
    lake = Lake(tmp_path.as_uri(), spark, settings=UNGUARDED)
    lake.run(once=True)
    names = ("entity_history", "alarms", "topology", "stream_health")

    def tables() -> list[list[dict[str, Any]]]:
        found = (read(tmp_path, name) for name in names)
        return [sorted(rows, key=lambda one: one["ordinal"]) for rows in found]

    before = tables()
    assert all(before)
    for name in names:
        whose = DeltaTable(tmp_path / name).schema().fields[:2]
        assert [(one.name, one.nullable) for one in whose] == [
            ("consumer", False),
            ("stream", False),
        ]
    version = DeltaTable(tmp_path / "alarms").version()
    spark.sql(f"DELETE FROM delta.`{tmp_path.as_uri()}/alarms`")
    spark.sql(f"UPDATE delta.`{tmp_path.as_uri()}/entity_history` SET body = NULL")
    counts = lake.rebuild()
    assert tables() == before
    assert counts == {name: len(rows) for name, rows in zip(names, before, strict=True)}
    # One commit took the place of the old rows, and the pipeline goes on from there.
    assert DeltaTable(tmp_path / "alarms").version() == version + 2
    land(tmp_path, [replace(row(1), stream="other")])
    lake.run(once=True)
    assert len(read(tmp_path, "topology")) == len(before[2]) + 1
    assert len(read(tmp_path, "entity_history")) == len(before[0]) + 1
    assert read(tmp_path / "_rebuild", "alarms") == []


def test_l3_a_clone_is_made_again_and_what_changes_has_lost_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    land(tmp_path, [row(1)])
    land(tmp_path, [row(2)])
    lake = Lake(tmp_path.as_uri(), spark, tables=["entity_history"])
    lake.run(once=True)
    beside = tmp_path / "beside"
    shutil.move(tmp_path / "entity_history", beside)
    there = f"delta.`{tmp_path.as_uri()}/entity_history`"
    spark.sql(f"CREATE TABLE {there} SHALLOW CLONE delta.`{beside.as_uri()}`")
    assert lake.rebuild() == {"entity_history": 2}
    lake.run(once=True)
    assert len(read(tmp_path, "entity_history")) == 2
    DeltaTable(tmp_path / "changes").delete("ordinal = 1")
    with pytest.raises(SinkError, match="changes has lost its first rows"):
        lake.rebuild()


def test_how_sure_an_event_time_is_stands_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    def stated(spread: str, **more: str) -> str:
        return json.dumps({"event-time-stamp": {"spread": spread, **more}})

    between = {"start-time-stamp": "2026-09-21T13:46:40Z", "source-precision": "FREE_RUNNING"}
    log = [
        row(1, "ATTEMPT", key=""),
        detector(2, 0, envelope=stated("tapi-streaming:SPREAD_BETWEEN", **between)),
        detector(3, 60, ends=True, state="CLEAR", envelope=stated("AT")),
        detector(4, 120, envelope=stated("BEFORE")),
        detector(5, 180, severity="MAJOR"),
        row(6, "ATTEMPT", key="", attempt=2),
        row(7, "SWEEP", key="", attempt=2),
        detector(8, 240, attempt=2),
    ]
    land(tmp_path, log)
    made = pipeline(spark, tmp_path, tables=["entity_history", "alarms"])
    for end in (2, 4, 8):
        made.apply(spark, ends(log[:end]))
    episodes = sorted(read(tmp_path, "alarms"), key=lambda one: one["episode"])
    spreads = [(one["raised_spread"], one["cleared_spread"]) for one in episodes]
    # What a sweep has ended was gone by then.
    assert spreads == [("BETWEEN", "AT"), ("BEFORE", "BEFORE"), (None, None)]
    intervals = sorted(read(tmp_path, "entity_history"), key=lambda one: one["ordinal"])
    told = ("event_spread", "event_start_at", "event_precision", "valid_to_basis")
    assert [tuple(one[name] for name in told) for one in intervals] == [
        ("BETWEEN", 1_789_998_400_000_000, "FREE_RUNNING", "STATED"),
        ("BEFORE", None, None, "STATED"),
        (None, None, None, "SWEPT"),
        (None, None, None, None),
    ]


def test_l2_changes_that_went_back_are_missed(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, [row(1)])
    land(tmp_path, [row(2)])
    made = pipeline(spark, tmp_path, tables=[])
    made.apply(spark, landed(tmp_path))
    DeltaTable(tmp_path / "changes").restore(0)
    lost = "does not have the rows of c / s that the tables follow up to 2"
    with pytest.raises(SinkError, match=lost):
        pipeline(spark, tmp_path, tables=[])
    # Other rows have taken the ordinals before the pipeline looks.
    land(tmp_path, [replace(row(n), key=f"other{n}", committed_at=START_US) for n in (2, 3)])
    with pytest.raises(SinkError, match=lost):
        pipeline(spark, tmp_path, tables=[])


def test_nothing_is_left_in_the_session_of_the_user(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, [row(1), row(2)])
    user = spark.newSession()
    user.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    user.sql("SELECT 7 AS own").createOrReplaceTempView("instep_rows")
    before = user.conf.getAll
    lake = Lake(tmp_path.as_uri(), user)
    assert lake.spark.conf.get("spark.sql.session.timeZone") == "Europe/Paris"
    lake.run(once=True)
    assert lake.verify().clean
    lake.optimize()
    assert user.conf.getAll == before
    views = user.sql("SHOW VIEWS LIKE 'instep_*'").collect()
    assert [one.viewName for one in views] == ["instep_rows"]
    assert user.sql("SELECT own FROM instep_rows").collect()[0].own == 7


@pytest.mark.parametrize("managed", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.asyncio
async def test_tables_of_a_database_are_landed_in_and_followed(
    spark: SparkSession, tmp_path: Path, managed: bool
) -> None:
    url, database = url_of(tmp_path), f"network_{managed}"
    spark.sql(f"CREATE DATABASE {database}")
    try:
        tables = ["entity_history", "stream_health"]
        named: dict[str, Any] = {"database": database, "managed": managed}
        async with stage(url, writer="spark", spark={"master": "local[2]"}, **named) as at:
            await at.commit(create_update("k1", 1), create_update("k2", 2))
            lake = Lake(url, spark, tables=tables, **named)
            await asyncio.to_thread(lake.run, once=True)
            assert of_all(await at.sink.estimate_sweep("s1", 2)) == (2, 2)
            assert at.sink._writer.pipeline_progress("c", "s1").ordinal == 3
            await at.commit(end_record("k1", 3))
            await asyncio.to_thread(lake.run, once=True)
        assert spark.sql(f"SELECT key FROM {database}.entities").collect()[0].key == "k2"
        assert spark.sql(f"SELECT * FROM {database}.entity_history").count() == 2
        assert lake.verify().clean
        assert {"changes", "entities"} <= set(lake.vacuum())
        there = (tmp_path / "lake" / "entities").exists()
        assert there is not managed
        if not managed:
            assert [one["key"] for one in read(tmp_path / "lake", "entities")] == ["k2"]
            Lake(url, spark, tables=tables).run(once=True)
    finally:
        spark.sql(f"DROP DATABASE {database} CASCADE")


def test_a_sweep_that_would_remove_too_much_is_held_and_released(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A6, in a lake."""
    rows = [row(1, "ATTEMPT", key="")]
    rows += [row(number) for number in range(2, 8)]
    rows += [row(8, "ATTEMPT", key="", attempt=2), row(9, key="n2", attempt=2)]
    rows += [row(10, "SWEEP", key="", attempt=2), row(11, key="n3", attempt=2)]
    land(tmp_path, rows)
    settings = LakeSettings(sweep_guard_share=0.5, sweep_guard_records=2)
    tables = ["entity_history", "topology", "stream_health"]
    made = pipeline(spark, tmp_path, tables=tables, settings=settings)
    made.apply(spark, landed(tmp_path))
    assert {one["key"] for one in read(tmp_path, "entities")} == {f"n{n}" for n in range(2, 8)}
    assert read(tmp_path, "stream_health")[0]["sweep_held"] == "5 of 6"
    Lake(tmp_path.as_uri(), spark, tables=["entities", "entity_history"]).rebuild()
    assert {one["key"] for one in read(tmp_path, "entities")} == {f"n{n}" for n in range(2, 8)}
    # What was stated while it was held stays.
    spark.sql(
        f"CREATE TABLE {LakePlace(tmp_path.as_uri()).table('stream_facts')} USING delta AS"
        " SELECT 'c' AS consumer, 's' AS stream, 'RELEASE' AS fact, '' AS name, 2L AS count, "
        "CAST(NULL AS STRING) AS body, current_timestamp() AS at"
    )
    steps: list[PipelineStep] = []
    made = pipeline(spark, tmp_path, tables=tables, settings=settings, report=steps.append)
    made.release(spark)
    assert [one for step in steps for one in step.swept] == [LakeSweep("s", 2, removed=4)]
    assert {one["key"] for one in read(tmp_path, "entities")} == {"n2", "n3"}
    end_record = {one["key"]: one["ended_by"] for one in read(tmp_path, "entity_history")}
    assert {key for key, by in end_record.items() if by == "SWEEP"} == {"n4", "n5", "n6", "n7"}
    assert {one["key"] for one in read(tmp_path, "topology")} == {"n2", "n3"}
    check_verified(spark, tmp_path)


def test_a_sweep_that_finds_nothing_cuts_no_other_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [row(1, "ATTEMPT", key=""), row(2), row(3), row(4, "SWEEP", key="")]
    rows += [row(5, "ATTEMPT", key="", attempt=2)]
    rows += [replace(one, ordinal=one.ordinal + 4, attempt=2) for one in rows[1:3]]
    rows += [row(8, "SWEEP", key="", attempt=2)]
    rows += [row(9, key="n2", attempt=2, value=2)]
    land(tmp_path, rows)
    followers = ("entity_history", "topology", "stream_health")
    made = pipeline(spark, tmp_path, tables=followers)
    made.apply(spark, landed(tmp_path))
    for name in followers:
        # What made it, the size of its files (which Spark does not know), and all rows in one.
        assert DeltaTable(tmp_path / name).version() == 2, name
    past = [(one["key"], one["ended_by"]) for one in read(tmp_path, "entity_history")]
    assert sorted(past, key=str) == [("n2", "UPDATE"), ("n2", None), ("n3", None)]
    # One that finds something is made at its place in each.
    more = [row(10, "ATTEMPT", key="", attempt=3), row(11, key="n2", attempt=3, value=2)]
    more += [row(12, "SWEEP", key="", attempt=3), row(13, key="n3", attempt=3)]
    land(tmp_path, more)
    made.apply(spark, landed(tmp_path))
    past = [(one["key"], one["ended_by"]) for one in read(tmp_path, "entity_history")]
    assert sorted(past, key=str)[-2:] == [("n3", "SWEEP"), ("n3", None)]
    assert {one["key"] for one in read(tmp_path, "topology")} == {"n2", "n3"}
    assert {key: at.swept for key, at in made.entities.progress.by_stream.items()} == {
        key: at.swept for key, at in made.followers[0].progress.by_stream.items()
    }


def test_a_stream_joined_with_its_baseline_is_one_row_an_entity(
    spark: SparkSession, tmp_path: Path
) -> None:
    shown = [row(n, key=f"u{n}", uuid=f"u{n}", token="") for n in range(2, 5)]
    rows = [row(1, "ATTEMPT", key=""), *shown]
    rows += [row(5, key="-17", uuid="u2", value=9), row(6, "TOMBSTONE", key="-17", ends=True)]
    rows += [row(7, key="-18", uuid="u3", value=8)]
    rows += [row(8, "ATTEMPT", key="", attempt=2)]
    # The baseline began before the stream's statement about u3: it marks, and keeps the content.
    rows += [row(9, key="u3", uuid="u3", attempt=2, appended_at=START_US, token="")]
    rows += [row(10, "SWEEP", key="", attempt=2, readable=("LINK",))]
    land(tmp_path, rows)
    made = pipeline(spark, tmp_path, tables=["entity_history"])
    made.apply(spark, landed(tmp_path))
    found = {one["id"]: one for one in read(tmp_path, "entities")}
    assert {key: (one["key"], one["proven"]) for key, one in found.items()} == {
        "u3": ("-18", True),
        "u4": ("u4", False),  # a GET cannot show its class
    }
    assert '"value": 8' in found["u3"]["body"]
    held = {one["id"] for one in read(tmp_path, "entity_history") if one["open"]}
    assert held == {"u3", "u4"}
    check_verified(spark, tmp_path)


def test_a22_verify_and_rebuild_know_what_is_unproven(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row(1, "ATTEMPT", key=""), row(2), row(3), row(4, "ATTEMPT", key="", attempt=2)]
    # The attempt could not read something that may be about any entity: its sweep names no class.
    rows += [row(5, key="n2", attempt=2), row(6, "SWEEP", key="", attempt=2, readable=())]
    land(tmp_path, rows)
    at_us = START_US + 6_000_000
    told: list[tuple[Any, ...]] = [("c", "s", "PROOF", "attempt", 2, None, at_us)]
    told += [("c", "s", "UNPROVEN", "", 2, "unreadable-record ab", at_us)]
    values = zip(*told, strict=True)
    arrays = [pa.array(v, c.type) for v, c in zip(values, FACTS, strict=True)]
    write_deltalake(tmp_path / "stream_facts", pa.table(arrays, arrow_schema(FACTS)))
    # It removes nothing, so no guard holds it.
    strict = LakeSettings(sweep_guard_share=0.0, sweep_guard_records=0)
    lake = Lake(tmp_path.as_uri(), spark, tables=["entity_history"], settings=strict)
    lake.run(once=True)
    wanted = {"n2": (True, 2), "n3": (False, 2)}

    def found() -> dict[str, tuple[bool, int]]:
        return {one["id"]: (one["proven"], one["attempt"]) for one in read(tmp_path, "entities")}

    assert found() == wanted
    proof = {one.id: (one.proven_by, one.unproven) for one in answer_of(spark, tmp_path)}
    assert proof == {"n2": ("attempt", None), "n3": ("record", "unreadable-record ab")}
    assert lake.verify().clean
    # Whoever changes it is found, and what is made again is right.
    spark.sql(f"UPDATE delta.`{(tmp_path / 'entities').as_uri()}` SET proven = true")
    verdict = lake.verify()
    assert (verdict.right, verdict.stale) == (1, 1)
    Lake(tmp_path.as_uri(), spark, tables=["entities"], settings=strict).rebuild()
    assert found() == wanted


def answer_of(spark: SparkSession, lake: Path) -> list[Any]:
    return list(answer(spark, lake.as_uri(), "entity_proof").collect())


@pytest.mark.parametrize("cuts", [(), pytest.param((3, 5, 6), marks=pytest.mark.long)])
def test_a14_3_8_1_2_after_the_sweep_the_stream_beats_the_baseline(
    spark: SparkSession, tmp_path: Path, cuts: tuple[int, ...]
) -> None:
    """The provider's clock was set back: what it states then lies before the baseline's date."""
    rows = [row(1, "ATTEMPT", key="")]
    shown: dict[str, Any] = {"token": "", "appended_at": START_US + 50_000_000}
    rows += [row(n, key=f"u{n}", uuid=f"u{n}", **shown) for n in (2, 3, 4)]
    stated: dict[str, Any] = {"key": "u2", "uuid": "u2", "value": 7}
    rows += [row(5, **stated), row(6, "SWEEP", key="", readable=("NODE",))]
    end = row(8, "DELETE", key="u3", uuid="u3", ends=True)
    rows += [row(7, **stated | {"value": 8}), end]
    writer = DeltaRsWriter(DeltaOptions(url=url_of(tmp_path)))
    writer.open("c")
    lake = Path(url_of(tmp_path).removeprefix("file://"))
    land(lake, rows)
    made = pipeline(spark, lake, tables=["entity_history", "topology"])
    for upto in cuts:
        made.apply(spark, ends(rows[:upto]))
    # What is not followed yet is read from `changes`.
    assert sorted(writer.query(live(writer, "c", "s"))["ordinal"].to_pylist()) == [4, 7]
    made.apply(spark, landed(lake))
    assert {one["id"]: one["ordinal"] for one in read(lake, "entities")} == {"u2": 7, "u4": 4}
    history = read(lake, "entity_history")
    assert {one["ordinal"]: one["ended_by"] for one in history} == {
        2: "UPDATE",
        3: "DELETE",
        4: None,
        7: None,
    }
    assert {one["id"] for one in read(lake, "topology")} == {"u2", "u4"}
    check_verified(spark, lake)


@pytest.mark.parametrize("cuts", [(), pytest.param((2, 4, 5), marks=pytest.mark.long)])
def test_a14_of_two_baselines_the_later_one_counts(
    spark: SparkSession, tmp_path: Path, cuts: tuple[int, ...]
) -> None:
    """Our clock was set back between them, and no sweep came. What the stream has stated is
    compared with both by time.
    """
    rows = [row(1, "ATTEMPT", key="")]
    shown: dict[str, Any] = {"uuid": "u", "key": "u", "token": ""}
    rows += [row(2, **shown, appended_at=START_US + 50_000_000, value=1)]
    rows += [row(3, key="v", uuid="v", appended_at=START_US + 60_000_000, value=1)]
    rows += [row(4, "ATTEMPT", key="", attempt=2)]
    early: dict[str, Any] = {"attempt": 2, "appended_at": START_US + 20_000_000, "value": 2}
    rows += [row(5, **shown | early), row(6, **shown | early | {"key": "v", "uuid": "v"})]
    writer = DeltaRsWriter(DeltaOptions(url=url_of(tmp_path)))
    writer.open("c")
    lake = Path(url_of(tmp_path).removeprefix("file://"))
    land(lake, rows)
    made = pipeline(spark, lake, tables=["entity_history"])
    for upto in cuts:
        made.apply(spark, ends(rows[:upto]))
    assert sorted(writer.query(live(writer, "c", "s"))["ordinal"].to_pylist()) == [3, 5]
    made.apply(spark, landed(lake))
    assert {one["id"]: one["ordinal"] for one in read(lake, "entities")} == {"u": 5, "v": 3}
    history = read(lake, "entity_history")
    assert {one["ordinal"]: one["ended_by"] for one in history} == {2: "UPDATE", 3: None, 5: None}
    check_verified(spark, lake)


@pytest.mark.parametrize("cuts", [(), pytest.param((3, 5, 7, 9), marks=pytest.mark.long)])
def test_a14_a_baseline_that_is_read_after_a_sweep_beats_all_that_was_stored(
    spark: SparkSession, tmp_path: Path, cuts: tuple[int, ...]
) -> None:
    """The provider's clock was set back after the sweep. The tables with a past know the stream's
    statement still, and the end, both with times of before that.
    """
    rows = [row(1, "ATTEMPT", key="")]
    stated: dict[str, Any] = {"detector": True, "state": "ACTIVE"}
    for n, name in ((2, "a"), (3, "b"), (4, "gone")):
        at_us = START_US + 40_000_000 + n
        rows.append(row(n, key=name, uuid=name, appended_at=at_us, value=1, **stated))
    rows.append(row(5, "DELETE", key="gone", ends=True, appended_at=START_US + 45_000_000))
    shown: dict[str, Any] = {"token": "", "appended_at": START_US + 50_000_000, **stated}
    rows += [row(6, key="a", uuid="a", value=1, **shown)]
    rows += [row(7, "SWEEP", key=""), row(8, "ATTEMPT", key="", attempt=2)]
    shown |= {"attempt": 2, "appended_at": START_US + 10_000_000, "value": 2}
    rows += [row(9 + n, key=name, uuid=name, **shown) for n, name in enumerate(("a", "b", "gone"))]
    # Older than the first statement of the stream: it is read again, and changes nothing.
    again = START_US + 5_000_000
    rows.append(row(12, key="b", uuid="b", appended_at=again, value=3, attempt=2, **stated))
    writer = DeltaRsWriter(DeltaOptions(url=url_of(tmp_path)))
    writer.open("c")
    lake = Path(url_of(tmp_path).removeprefix("file://"))
    land(lake, rows)
    made = pipeline(spark, lake, tables=["entity_history", "alarms"])
    for upto in cuts:
        made.apply(spark, ends(rows[:upto]))
    assert sorted(writer.query(live(writer, "c", "s"))["ordinal"].to_pylist()) == [9, 10, 11]
    made.apply(spark, landed(lake))
    entities = {one["id"]: one["ordinal"] for one in read(lake, "entities")}
    assert entities == {"a": 9, "b": 10, "gone": 11}
    history = read(lake, "entity_history")
    assert {one["id"]: one["ordinal"] for one in history if one["open"]} == entities
    assert {one["id"]: one["ordinal"] for one in read(lake, "alarms") if one["open"]} == entities
    check_verified(spark, lake)


@pytest.mark.asyncio
async def test_the_guard_of_the_sink_counts_from_entities(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1, 7)], end_record("k1", 7))
        assert of_all(await at.sink.estimate_sweep("s1", 2)) == (5, 5)
        pipeline(spark, tmp_path / "lake", tables=[]).apply(spark, landed(tmp_path / "lake"))
        await at.commit(end_record("k2", 8), create_update("k7", 9))
        at.attempt = 2
        await at.commit(create_update("k3", 3), create_update("k1", 10))
        writer = at.sink._writer
        assert writer.pipeline_progress("c", "s1").ordinal == 8
        assert "entities" in live(writer, "c", "s1")
        assert of_all(await at.sink.estimate_sweep("s1", 2)) == (6, 4)
        await at.commit(sweep=SweepStep(2))
        assert of_all(await at.sink.estimate_sweep("s1", 2)) == (2, 0)


def test_rows_that_changes_lost_are_missed(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, [row(1), row(2), row(4)])
    with pytest.raises(SinkError, match="changes lacks rows of c / s"):
        pipeline(spark, tmp_path, tables=[]).apply(spark, landed(tmp_path))


def test_bad_input_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="no changes yet"):
        Lake(tmp_path.as_uri(), spark).run(once=True)
    with pytest.raises(ConfigurationError, match="no table 'alarm'"):
        Pipeline(LakePlace(tmp_path.as_uri()), tables=["alarm"])
    with pytest.raises(ConfigurationError, match=r"one text, 'alarms' — give a list"):
        Lake(tmp_path.as_uri(), spark, tables="alarms")
    entities = LakePlace(tmp_path.as_uri()).table("entities")
    made = Pipeline(LakePlace(tmp_path.as_uri()), tables=[])
    made.open(spark)
    spark.sql(f"ALTER TABLE {entities} SET TBLPROPERTIES ('instep.lake' = '999')")
    with pytest.raises(StoreVersionError, match="version 999"):
        made.open(spark)
    spark.sql(f"ALTER TABLE {entities} SET TBLPROPERTIES ('instep.lake' = '5')")
    with pytest.raises(StoreVersionError, match=r"made before 0\.1\.0.* — make it anew"):
        made.open(spark)
    spark.sql(f"ALTER TABLE {entities} UNSET TBLPROPERTIES ('instep.lake')")
    with pytest.raises(SinkError, match="not made by instep"):
        made.open(spark)


def test_a_class_that_gains_fields_needs_nothing_new(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, [row(1), row(2)])
    made = pipeline(spark, tmp_path, tables=[])
    made.apply(spark, landed(tmp_path))
    gained = Change(**asdict(row(3, key="n2")), content='{"uuid": "n2", "new": {"field": [7]}}')
    land(tmp_path, [gained])
    made.apply(spark, landed(tmp_path))
    rows = spark.sql(
        "SELECT key, variant_get(parse_json(body), '$.new.field[0]', 'INT') AS gained "
        f"FROM {made.entities.sql} ORDER BY key"
    ).collect()
    assert [(one.key, one.gained) for one in rows] == [("n1", None), ("n2", 7)]


def replace_columns(target: LakeTable) -> LakeTable:
    """The target with a table that has no column `proven` yet."""
    columns = tuple(c for c in target.table.columns if c.name != "proven")
    url = target.sql.removeprefix("delta.`").rpartition("/")[0]
    return LakeTable(target.table._replace(columns=columns), LakePlace(url))


def test_what_is_there_is_read_at_once_and_told_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROGRESS_S", 0.0)
    monkeypatch.setattr(module, "_BATCH_RECORDS", 2)
    land(tmp_path, [row(n) for n in range(1, 7)])
    told: list[tuple[int, float | None]] = []
    stop = threading.Event()

    def tell(run: RunProgress) -> None:
        told.append((run.rows_behind, run.next_run_s))
        if run.rows_behind == 0:
            stop.set()

    lake = Lake(tmp_path.as_uri(), spark, tables=[], report_run=tell)
    lake.run(stop=stop, interval_s=3_600.0)
    assert [behind for behind, _ in told] == [4, 2, 0, 0]
    assert [next_s for _, next_s in told[:2]] == [0.0, 0.0]
    assert told[2][1] is not None
    assert told[2][1] > 3_000.0
    assert told[3][1] is None


def test_a_run_audits_its_lake_again_and_again(spark: SparkSession, tmp_path: Path) -> None:
    store, reading = tmp_path / "store", tmp_path / "reading"
    land(store, [row(1), row(2)])
    told: list[RunProgress] = []
    settings = LakeSettings(
        upkeep_share=1e9, audit_reading=reading.as_uri(), audit_interval_s=3_600.0
    )

    def run() -> tuple[list[dict[str, Any]], int | None]:
        lake = Lake(store.as_uri(), spark, tables=[], settings=settings, report_run=told.append)
        lake.run(once=True)
        made = (store / "reconciliation").exists()
        audited = told[-1].audited
        found = read(store, "reconciliation") if made else []
        return found, None if audited is None else audited.stale

    # The reading is not there, and the run goes on without it.
    assert run() == ([], None)
    assert "reading" in told[-1].audit_error
    land(reading, [replace(one, consumer="second") for one in (row(1), row(2, value=7))])
    first, stale = run()
    assert (stale, told[-1].audit_error) == (1, "")
    verdicts = sorted((one["verdict"], one["entities"]) for one in first)
    assert verdicts == [("right", 1), ("stale", 1)]
    land(store, [row(3)])
    assert run() == (first, None)  # its time has not come
    settings = msgspec.structs.replace(settings, audit_interval_s=0.0)
    land(store, [row(4)])
    assert len(run()[0]) > len(first)


def test_another_reading_of_the_log_audits_the_store(spark: SparkSession, tmp_path: Path) -> None:
    store, reading = tmp_path / "store", tmp_path / "reading"
    # Of one stream the store has read on, to the end of n7; of the other one the reading.
    own = [row(n) for n in (1, 2, 3, 4, 7)]
    end = replace(row(7), kind="DELETE", ends=True, appended_at=row(20).appended_at)
    late = [replace(row(n), stream="late") for n in (1, 2)]
    land(store, [*(replace(r, ordinal=n + 1) for n, r in enumerate([*own, end])), late[0]])
    pipeline(spark, store, tables=[]).apply(spark, landed(store))
    others = [row(1), row(2, value=7), row(4), row(5), row(7)]
    others.append(replace(row(8), appended_at=row(10).appended_at))
    read_again = [*(replace(r, ordinal=n + 1) for n, r in enumerate(others)), *late]
    land(reading, [replace(r, consumer="second") for r in read_again])
    made = Lake(store.as_uri(), spark)
    found = made.audit(reading.as_uri())
    assert (found.right, found.stale, found.bogus, found.missing) == (3, 1, 1, 2)
    assert found.undecided == 2
    assert made.audit(reading.as_uri()) == found
    page = (REPOSITORY / "docs/how-to/lake.md").read_text("utf-8")
    (query,) = (one.text for one in snippets(page) if "FROM reconciliation" in one.text)
    session = spark.newSession()
    assert "reconciliation" in create_views(session, store.as_uri())
    asked = {one.stream: tuple(one)[1:-1] for one in session.sql(query).collect()}
    assert asked == {"s": (2, 2, 4), "late": (2, 0, 0)}
    kept = read(store, "reconciliation")
    assert {(one["consumer"], one["stream"], one["against"]) for one in kept} == {
        ("c", "s", reading.as_uri()),
        ("c", "late", reading.as_uri()),
    }
    assert len({one["at"] for one in kept}) == 2
    assert sorted((one["verdict"], one["entities"], one["ids"]) for one in kept) == [
        *2 * [("bogus", 1, ["n3"])],
        *2 * [("missing", 2, ["n5", "n8"])],
        *2 * [("right", 1, None)],
        *2 * [("right", 2, None)],
        *2 * [("stale", 1, ["n2"])],
        *2 * [("undecided", 1, ["n2"])],
        *2 * [("undecided", 1, ["n7"])],
    ]
