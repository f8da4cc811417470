"""A lake that is run, stopped half way, looked after and verified."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.query import StreamingQuery

from instep.errors import ConfigurationError, SinkError, StoreVersionError
from instep.model.batches import SweepStep
from instep.model.streams import SweepEstimate
from instep_spark.lake.batches.progress import read_commit_metadata
from instep_spark.lake.lake import Lake
from instep_spark.lake.pipeline import LakeSettings, Pipeline, PipelineStep
from instep_spark.lake.tables.base import LakeTable, table_identifier
from instep_spark.landing.live_view import live
from tests.instep_spark.lake.change_only_kit import Change
from tests.instep_spark.lake.lake_kit import (
    UNGUARDED,
    changes,
    check_alarms,
    check_entities,
    check_history,
    pipeline,
    read,
)
from tests.instep_spark.lake.log_kit import START_US, Provider, Row, land
from tests.instep_spark.lake.model_kit import Model
from tests.instep_spark.sink_kit import stage, url_of
from tests.instep_sql.store_kit import create_update, end_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


class Crash(Exception):
    """Ends a micro-batch half way."""


def row(ordinal: int, kind: str = "CREATE_UPDATE", **facts: Any) -> Row:
    at = START_US + ordinal * 1_000_000
    usual = {"key": f"n{ordinal}", "token": f"t{ordinal}", "appended_at": at, "committed_at": at}
    return Row("c", "s", ordinal, kind, **{**usual, **facts})


def test_a_stream_that_stops_in_the_middle_of_a_micro_batch_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Provider(7, "one").run(14)
    land(tmp_path, log[:8])
    report: list[PipelineStep] = []
    Lake(tmp_path.as_uri(), spark, settings=UNGUARDED, report=report.append).run(once=True)
    assert {step.table for step in report} >= {"entities", "entity_history", "alarms"}
    land(tmp_path, log[8:])
    commit = LakeTable.commit

    def failing(target: LakeTable, session: SparkSession, *rest: Any) -> None:
        commit(target, session, *rest)
        if target.name == "entity_history":
            raise Crash

    monkeypatch.setattr(LakeTable, "commit", failing)
    with pytest.raises(SinkError, match="Spark: "):
        Lake(tmp_path.as_uri(), spark, settings=UNGUARDED).run(once=True)
    monkeypatch.undo()
    lake = Lake(tmp_path.as_uri(), spark, settings=UNGUARDED)
    lake.run(once=True)
    model = Model()
    model.read(log)
    check_entities(tmp_path, model)
    check_history(tmp_path, model)
    check_alarms(tmp_path, model)
    assert lake.verify().clean

    # A lost checkpoint gives all rows again, and nothing changes.
    before = {name: read(tmp_path, name) for name in ("entities", "alarms", "stream_health")}
    shutil.rmtree(tmp_path / "_checkpoints")
    lake.run(once=True)
    assert {name: read(tmp_path, name) for name in before} == before


def test_a_failure_between_two_looks_at_the_stream_is_no_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path, [row(1)])
    wait = StreamingQuery.awaitTermination

    def look(query: StreamingQuery, timeout_s: int | None = None) -> bool | None:
        if timeout_s is None:
            return wait(query)
        while query.isActive:
            time.sleep(0.05)
        return False

    def fail(_pipeline: Pipeline, _rows: object) -> None:
        raise SinkError("the disk is full")

    monkeypatch.setattr(StreamingQuery, "awaitTermination", look)
    monkeypatch.setattr(Pipeline, "apply", fail)
    with pytest.raises(SinkError, match="the disk is full"):
        Lake(tmp_path.as_uri(), spark).run(once=True)


def test_maintenance_keeps_the_progress_and_what_is_wrong_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    land(tmp_path, [row(number) for number in range(1, 5)])
    pipeline(spark, tmp_path, tables=[]).apply(changes(spark, tmp_path))
    entities = table_identifier(tmp_path.as_uri(), "entities")
    lake = Lake(tmp_path.as_uri(), spark, tables=[])
    progress = read_commit_metadata(spark, entities).encode()
    assert lake.optimize().keys() == {"entities"} == set(lake.vacuum())
    assert read_commit_metadata(spark, entities).encode() == progress
    assert {one["table"] for one in lake.history(3)} == {"changes", "entities"}
    assert lake.verify().clean
    DeltaTable(tmp_path / "entities").update(new_values={"body": "wrong"}, predicate="key = 'n2'")
    found = lake.verify()
    assert (found.right, found.stale, found.bogus, found.missing) == (3, 1, 0, 0)
    assert (found.examples[0]["key"], found.examples[0]["verdict"]) == ("n2", "stale")


def test_a_sweep_that_would_remove_too_much_is_held_and_released(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [row(1, "ATTEMPT", key="")]
    rows += [row(number) for number in range(2, 8)]
    rows += [row(8, "ATTEMPT", key="", attempt=2), row(9, key="n2", attempt=2)]
    rows += [row(10, "SWEEP", key="", attempt=2), row(11, key="n3", attempt=2)]
    land(tmp_path, rows)
    settings = LakeSettings(sweep_guard_share=0.5, sweep_guard_records=2)
    made = pipeline(spark, tmp_path, settings=settings)
    made.apply(changes(spark, tmp_path))
    assert {one["key"] for one in read(tmp_path, "entities")} == {f"n{n}" for n in range(2, 8)}
    assert read(tmp_path, "stream_health")[0]["sweep_held"] == "5 of 6"
    # What was stated while it was held stays.
    spark.sql(
        f"CREATE TABLE {table_identifier(tmp_path.as_uri(), 'stream_facts')} USING delta AS"
        " SELECT 'c' AS consumer, 's' AS stream, 'RELEASE' AS fact, '' AS name, 2L AS count, "
        "CAST(NULL AS STRING) AS body, current_timestamp() AS at"
    )
    made = pipeline(spark, tmp_path, settings=settings)
    made.release(spark)
    assert {one["key"] for one in read(tmp_path, "entities")} == {"n2", "n3"}
    end_record = {one["key"]: one["ended_by"] for one in read(tmp_path, "entity_history")}
    assert {key for key, by in end_record.items() if by == "SWEEP"} == {"n4", "n5", "n6", "n7"}
    assert {one["key"] for one in read(tmp_path, "topology")} == {"n2", "n3"}
    assert Lake(tmp_path.as_uri(), spark).verify().clean


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
    made = pipeline(spark, tmp_path)
    made.apply(changes(spark, tmp_path))
    found = {one["id"]: one for one in read(tmp_path, "entities")}
    assert {key: (one["key"], one["proven"]) for key, one in found.items()} == {
        "u3": ("-18", True),
        "u4": ("u4", False),  # a GET cannot show its class
    }
    assert '"value": 8' in found["u3"]["body"]
    held = {one["id"] for one in read(tmp_path, "entity_history") if one["open"]}
    assert held == {"u3", "u4"}
    assert Lake(tmp_path.as_uri(), spark).verify().clean


@pytest.mark.asyncio
async def test_the_guard_of_the_sink_counts_from_entities(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = url_of(tmp_path)
    async with stage(url) as at:
        await at.commit(*[create_update(f"k{n}", n) for n in range(1, 7)], end_record("k1", 7))
        assert await at.sink.estimate_sweep("s1", 2) == SweepEstimate(5, 5)
        pipeline(spark, tmp_path / "lake", tables=[]).apply(changes(spark, tmp_path / "lake"))
        await at.commit(end_record("k2", 8), create_update("k7", 9))
        at.attempt = 2
        await at.commit(create_update("k3", 3), create_update("k1", 10))
        writer = at.sink._writer
        assert writer.pipeline_ordinal("c", "s1") == 8
        assert "entities" in live(writer, "c", "s1")
        assert await at.sink.estimate_sweep("s1", 2) == SweepEstimate(6, 4)
        assert await at.sink.has_older_entity("s1", create_update("x", 5), 1)
        assert not await at.sink.has_older_entity("s1", create_update("x", 3), 1)
        await at.commit(sweep=SweepStep(2))
        assert await at.sink.estimate_sweep("s1", 2) == SweepEstimate(2, 0)


def test_rows_that_changes_lost_are_missed(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, [row(1), row(2), row(4)])
    with pytest.raises(SinkError, match="changes lacks rows of c / s"):
        pipeline(spark, tmp_path).apply(changes(spark, tmp_path))


def test_bad_input_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="no changes yet"):
        Lake(tmp_path.as_uri(), spark).run(once=True)
    with pytest.raises(ConfigurationError, match="no table 'alarm'"):
        Pipeline(tmp_path.as_uri(), tables=["alarm"])
    entities = table_identifier(tmp_path.as_uri(), "entities")
    made = Pipeline(tmp_path.as_uri(), tables=[])
    made.open(spark)
    spark.sql(f"ALTER TABLE {entities} SET TBLPROPERTIES ('instep.lake' = '99')")
    with pytest.raises(StoreVersionError, match="version 99"):
        made.open(spark)
    spark.sql(f"ALTER TABLE {entities} UNSET TBLPROPERTIES ('instep.lake')")
    with pytest.raises(SinkError, match="not one of instep's"):
        made.open(spark)


def test_a_table_of_an_older_version_gets_what_it_lacks(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = Pipeline(tmp_path.as_uri(), tables=[])
    older = replace_columns(made.entities)
    older.open(spark)
    table = older.sql
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('instep.lake' = '0')")
    land(tmp_path, [row(1)])
    made.open(spark)
    made.apply(changes(spark, tmp_path))
    (one,) = read(tmp_path, "entities")
    assert (one["key"], one["proven"]) == ("n1", True)


def test_a_class_that_gains_fields_needs_nothing_new(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, [row(1), row(2)])
    made = pipeline(spark, tmp_path, tables=[])
    made.apply(changes(spark, tmp_path))
    gained = Change(**asdict(row(3, key="n2")), content='{"uuid": "n2", "new": {"field": [7]}}')
    land(tmp_path, [gained])
    made.apply(changes(spark, tmp_path))
    rows = spark.sql(
        "SELECT key, variant_get(parse_json(body), '$.new.field[0]', 'INT') AS gained "
        f"FROM {made.entities.sql} ORDER BY key"
    ).collect()
    assert [(one.key, one.gained) for one in rows] == [("n1", None), ("n2", 7)]


def replace_columns(target: LakeTable) -> LakeTable:
    """The target with a table that has no column `proven` yet."""
    columns = tuple(c for c in target.table.columns if c.name != "proven")
    url = target.sql.removeprefix("delta.`").rpartition("/")[0]
    return LakeTable(target.table._replace(columns=columns), url)


def test_another_reading_of_the_log_audits_the_store(spark: SparkSession, tmp_path: Path) -> None:
    store, reading = tmp_path / "store", tmp_path / "reading"
    land(store, [row(number) for number in range(1, 5)])
    pipeline(spark, store, tables=[]).apply(changes(spark, store))
    others = [row(1), row(2, value=7), row(4), row(5)]
    land(reading, [replace(r, consumer="second", ordinal=n + 1) for n, r in enumerate(others)])
    found = Lake(store.as_uri(), spark).audit(reading.as_uri())
    assert (found.right, found.stale, found.bogus, found.missing) == (2, 1, 1, 1)
