"""CHANGE_ONLY streams in the tables of the pipeline, against a SQL store that was given the same
records.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from instep_spark.lake.lake import Lake
from instep_spark.lake.pipeline import LakeSettings
from instep_spark.lake.tables.composed import ComposedTable
from instep_spark.place import LakePlace
from tests.instep_spark.lake.change_only_kit import ChangeOnly, ChangeRecords, bodies_of_a_store
from tests.instep_spark.lake.lake_kit import check_verified, ends, landed, pipeline, read
from tests.instep_spark.lake.log_kit import START_US, Change, Provider, Row, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def bodies(lake: Path, stream: str) -> dict[str, Any]:
    found = [one for one in read(lake, "entities") if one["stream"] == stream]
    return {one["key"]: json.loads(one["body"]) for one in found}


def store(rows: list[Row]) -> dict[str, Any]:
    found = asyncio.run(bodies_of_a_store(rows, 1))
    return {key: json.loads(body) for key, body in found.items()}


def check_history(lake: Path) -> None:
    """Check that the open rows are the entities that exist, and that the intervals of an entity are
    adjacent.
    """
    entities = {(e["stream"], e["id"]): e["body"] for e in read(lake, "entities")}
    history = defaultdict(list)
    for one in read(lake, "entity_history"):
        history[one["stream"], one["id"]].append(one)
    opened = {key: one["body"] for key, each in history.items() for one in each if one["open"]}
    assert opened == entities
    for intervals in history.values():
        intervals.sort(key=lambda one: one["ordinal"])
        for one, after in pairwise(intervals):
            assert one["valid_from"] <= one["valid_to"] <= after["valid_from"]
            assert one["valid_to"] == after["valid_from"] or one["ended_by"] != "UPDATE"


@pytest.mark.long
def test_random_changes_in_random_micro_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep_spark.lake.tables.composed.CHUNK_RECORDS", 12)
    chance = random.Random(3)
    log, other = ChangeOnly(7).run(18), Provider(3, "other").run(3)
    assert sum(row.kind == "SWEEP" for row in log) > 0
    land(tmp_path, log)
    land(tmp_path, other)
    followers = ["entity_history"]
    made = pipeline(spark, tmp_path, tables=followers)
    half = log[: len(log) // 2]
    made.apply(spark, ends(chance.sample(half, len(half) // 2)))
    made = pipeline(spark, tmp_path, tables=followers)
    made.apply(spark, landed(tmp_path))
    made.settle(spark)
    assert bodies(tmp_path, "s1") == store(log)
    check_history(tmp_path)
    before = {name: read(tmp_path, name) for name in ("composed", "entities", "entity_history")}
    pipeline(spark, tmp_path, tables=followers).apply(spark, ends(half[:3]))
    assert {name: read(tmp_path, name) for name in before} == before
    DeltaTable(tmp_path / "entities").update(new_values={"body": "'{}'"}, predicate="id = 'u1'")
    found = Lake(tmp_path.as_uri(), spark, tables=[]).verify()
    assert (found.stale, found.bogus, found.missing) == (1, 0, 0)


@pytest.mark.long
def test_v3_2_5_2_change_records_in_random_micro_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = ChangeRecords(7)
    rows = log.run(24)
    assert sum(row.kind == "CHANGE" for row in rows) > 3
    first = next(at for at, row in enumerate(rows) if row.kind == "CHANGE")
    land(tmp_path, rows)
    followers = ["entity_history"]
    # Up to the first CHANGE it is a stream of whole entities.
    pipeline(spark, tmp_path, tables=followers).apply(spark, ends(rows[:first]))
    made = pipeline(spark, tmp_path, tables=followers)
    made.apply(spark, landed(tmp_path))
    made.settle(spark)
    assert bodies(tmp_path, "s1") == log.truth
    check_history(tmp_path)
    found = Lake(tmp_path.as_uri(), spark, tables=[]).verify()
    assert (found.stale, found.bogus, found.missing) == (0, 0, 0)


def change(ordinal: int, key: str, content: Any = None, **facts: Any) -> Change:
    at = START_US + ordinal
    usual: dict[str, Any] = {"token": f"t{ordinal}", "appended_at": at, "committed_at": at}
    text = None if content is None else json.dumps(content)
    kind = facts.pop("kind", "CREATE_UPDATE")
    return Change("c", "s1", ordinal, kind, key, whole=False, content=text, **{**usual, **facts})


def control(ordinal: int, kind: str, attempt: int = 1) -> Change:
    return Change("c", "s1", ordinal, kind, attempt=attempt, committed_at=START_US + ordinal)


def test_what_cannot_be_joined_is_counted_and_a_stop_half_way_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Row] = [
        control(1, "ATTEMPT"),
        change(2, "u1", {"uuid": "u1", "name": "Bern", "port": {"speed": 10}}),
        change(3, "u1/port", {"port": {"speed": 40}}),
        change(4, "u1/nothing", kind="DELETE", ends=True),
        change(5, "u1/text", ["no", "object"]),
        control(6, "ATTEMPT", 2),
        change(7, "u1", {"uuid": "u1", "name": "Bern"}, attempt=2, appended_at=START_US + 2),
        control(8, "SWEEP", 2),
    ]
    land(tmp_path, rows)
    sweep = ComposedTable.sweep

    def stopping(*rest: Any) -> None:
        sweep(*rest)
        raise KeyError

    monkeypatch.setattr(ComposedTable, "sweep", stopping)
    tables = ["entity_history", "stream_health"]
    with pytest.raises(KeyError):
        pipeline(spark, tmp_path, tables=tables).apply(spark, landed(tmp_path))
    monkeypatch.undo()
    assert bodies(tmp_path, "s1") == {"u1": {"uuid": "u1", "name": "Bern", "port": {"speed": 40}}}
    pipeline(spark, tmp_path, tables=tables).apply(spark, landed(tmp_path))
    assert bodies(tmp_path, "s1") == {"u1": {"uuid": "u1", "name": "Bern"}}
    check_history(tmp_path)
    (health,) = read(tmp_path, "stream_health")
    assert (health["records"], health["left_out"]) == (5, 2)
    found = {one["ordinal"]: one["body"] for one in read(tmp_path, "composed") if not one["last"]}
    assert "names nothing in entity 'u1'" in found[4]
    assert "no JSON object" in found[5]
    # What a redelivery brings is known.
    land(tmp_path, [change(9, "u1", {"uuid": "u1"}, attempt=2, appended_at=START_US + 1)])
    pipeline(spark, tmp_path, tables=tables).apply(spark, landed(tmp_path))
    assert bodies(tmp_path, "s1") == {"u1": {"uuid": "u1", "name": "Bern"}}
    check_verified(spark, tmp_path)


@pytest.mark.long
def test_a_sweep_of_changes_that_was_held_is_made_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: list[Row] = [control(1, "ATTEMPT")]
    rows += [change(n, f"u{n}", {"uuid": f"u{n}"}) for n in range(2, 7)]
    rows += [change(7, "u2/a", {"a": 1}), control(8, "ATTEMPT", 2)]
    rows += [change(9, "u2", {"uuid": "u2"}, attempt=2), control(10, "SWEEP", 2)]
    land(tmp_path, rows)
    held: dict[str, Any] = {
        "settings": LakeSettings(sweep_guard_share=0.5, sweep_guard_records=2),
        "tables": ["entity_history"],
    }
    pipeline(spark, tmp_path, **held).apply(spark, landed(tmp_path))
    assert bodies(tmp_path, "s1").keys() == {f"u{n}" for n in range(2, 7)}
    spark.sql(
        f"CREATE TABLE {LakePlace(tmp_path.as_uri()).table('stream_facts')} USING delta AS"
        " SELECT 'c' AS consumer, 's1' AS stream, 'RELEASE' AS fact, '' AS name, 2L AS count, "
        "CAST(NULL AS STRING) AS body, current_timestamp() AS at"
    )
    made = pipeline(spark, tmp_path, **held)
    made.release(spark)
    assert bodies(tmp_path, "s1").keys() == {"u2"}
    land(tmp_path, [change(11, "u2", {"b": 2}, attempt=2), change(12, "u3", {}, attempt=2)])
    made.apply(spark, landed(tmp_path))
    assert bodies(tmp_path, "s1") == {"u2": {"uuid": "u2", "b": 2}, "u3": {}}
    check_history(tmp_path)
    check_verified(spark, tmp_path)


def test_changes_join_the_baseline_that_they_come_after(
    spark: SparkSession, tmp_path: Path
) -> None:
    shown = {"uuid": "u2", "token": "", "attempt": 1}
    rows: list[Row] = [
        control(1, "ATTEMPT"),
        replace(change(2, "u2", {"uuid": "u2", "name": "Bern"}, **shown), whole=True),
        change(3, "-17", {"state": "UP"}, uuid="u2"),
        change(4, "-17/port", {"port": 1}),
        control(5, "ATTEMPT", 2),
        # The baseline began before the stream's statement about it: it marks, and keeps the
        # content.
        replace(change(6, "u2", {"uuid": "u2"}, **{**shown, "attempt": 2}), whole=True),
        control(7, "SWEEP", 2),
    ]
    rows[5] = replace(rows[5], appended_at=START_US)
    land(tmp_path, rows)
    made = pipeline(spark, tmp_path, tables=["entity_history"])
    made.apply(spark, landed(tmp_path))
    (one,) = read(tmp_path, "entities")
    assert (one["id"], one["key"], one["attempt"]) == ("u2", "-17", 2)
    assert json.loads(one["body"])["state"] == "UP"
    land(tmp_path, [change(8, "-17", kind="TOMBSTONE", ends=True, attempt=2)])
    made.apply(spark, landed(tmp_path))
    assert read(tmp_path, "entities") == []
    check_history(tmp_path)
