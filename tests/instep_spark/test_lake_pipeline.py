"""The pipeline on random logs, however they are cut into micro-batches, against a plain model."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from instep_spark.lake.pipeline import LakeSettings, Pipeline
from tests.instep_spark.lake_logs import Provider, Row, land
from tests.instep_spark.lake_model import Episode, Model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNGUARDED = LakeSettings(sweep_guard_share=1.0)


def read(lake: Path, table: str) -> list[dict[str, Any]]:
    """A table as another engine reads it, with times in microseconds."""
    found: pa.Table = pa.table(DeltaTable(lake / table).to_pyarrow_table())
    for at, column in enumerate(found.schema):
        if pa.types.is_timestamp(column.type):
            found = found.set_column(at, column.name, found[column.name].cast(pa.int64()))
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def check(lake: Path, model: Model) -> None:
    """All tables are as the model says."""
    entities = {(e["consumer"], e["stream"], e["key"]): e for e in read(lake, "entities")}
    assert {key: (e["body"], e["token"], e["attempt"]) for key, e in entities.items()} == {
        key: (row.body, row.token, model.marks[key]) for key, row in model.entities.items()
    }
    history = defaultdict(list)
    for one in read(lake, "entity_history"):
        history[one["consumer"], one["stream"], one["key"]].append(
            {
                "from": one["valid_from"],
                "to": one["valid_to"],
                "by": one["ended_by"],
                "body": one["body"],
                "at": one["ordinal"],
            }
        )
    for intervals in history.values():
        intervals.sort(key=lambda one: one["at"])
    assert dict(history) == {key: one for key, one in model.history.items() if one}
    alarms = defaultdict(list)
    for a in read(lake, "alarms"):
        whole = Episode(
            *(a["episode"], a["raised_at"], a["state"], a["severity"], a["worst_severity"]),
            *(a["severity_changes"], a["intermittent_count"], a["statements"]),
            *(a["flapping_count"], a["cleared_at"], a["ended_by"]),
        )
        alarms[a["consumer"], a["stream"], a["key"]].append(whole)
        assert a["condition"] == 'a "quoted" name'
        assert a["node_uuid"] == f"node-{a['key']}"
        assert (a["duration_s"] is None) == a["open"]
    for episodes in alarms.values():
        episodes.sort(key=lambda one: one.episode)
    assert dict(alarms) == {key: one for key, one in model.alarms.items() if one}


def pipeline(spark: SparkSession, lake: Path, **options: Any) -> Pipeline:
    made = Pipeline(lake.as_uri(), settings=UNGUARDED, **options)
    made.open(spark)
    return made


def frame(spark: SparkSession, lake: Path, rows: list[Row]) -> Any:
    """A micro-batch with these rows of `changes`."""
    wanted = [(row.consumer, row.stream, row.ordinal) for row in rows]
    chosen = spark.createDataFrame(wanted, "consumer STRING, stream STRING, ordinal BIGINT")
    changes = spark.read.format("delta").load((lake / "changes").as_uri())
    return changes.join(chosen, ["consumer", "stream", "ordinal"], "semi")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
def test_random_logs_in_random_micro_batches(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    logs = [
        Provider(seed, "one", offsets=seed != 1).run(60),
        Provider(seed, "two", offsets=False).run(20),
    ]
    for log in logs:
        land(tmp_path, log)
    made = pipeline(spark, tmp_path)
    done = 0.0
    while done < 1.0:
        # Late, again, and with gaps: what a batch leads to is read, whatever it holds itself.
        done = min(1.0, done + chance.uniform(0.1, 0.5))
        begin = chance.choice((0.0, done / 2, done - 0.1))
        batch = [r for log in logs for r in log[int(begin * len(log)) : int(done * len(log))]]
        if chance.random() < 0.5:
            batch = chance.sample(batch, len(batch) // 2 + 1)
        made.apply(frame(spark, tmp_path, batch))
        if chance.random() < 0.4:
            made = pipeline(spark, tmp_path)
    made.apply(spark.read.format("delta").load((tmp_path / "changes").as_uri()))
    model = Model()
    for log in logs:
        model.read(log)
    check(tmp_path, model)
