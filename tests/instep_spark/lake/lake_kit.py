"""What the tests of the pipeline share: reading by another engine, comparing with the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from instep_spark.lake.batches.progress import read_commit_metadata
from instep_spark.lake.lake import Lake
from instep_spark.lake.pipeline import LakeSettings, Pipeline
from instep_spark.lake.tables.base import LakeTable
from instep_spark.place import LakePlace
from tests.instep_spark.lake.log_kit import START_US, Row
from tests.instep_spark.lake.model_kit import Episode, Key, Model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNGUARDED = LakeSettings(sweep_guard_share=1.0)


def row(ordinal: int, kind: str = "CREATE_UPDATE", stream: str = "s", **facts: Any) -> Row:
    """A row of one stream, about an entity of its own."""
    at = START_US + ordinal * 1_000_000
    usual = {"key": f"n{ordinal}", "token": f"t{ordinal}", "appended_at": at, "committed_at": at}
    return Row("c", stream, ordinal, kind, **{**usual, **facts})


def read(lake: Path, table: str) -> list[dict[str, Any]]:
    """A table as another engine reads it, with times in microseconds."""
    engine = QueryBuilder().register("asked", DeltaTable(lake / table))
    found: pa.Table = pa.table(engine.execute("SELECT * FROM asked").read_all())
    for at, column in enumerate(found.schema):
        if pa.types.is_timestamp(column.type):
            found = found.set_column(at, column.name, found[column.name].cast(pa.int64()))
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def stamp(spark: SparkSession, target: LakeTable) -> str:
    """What the last commit of the pipeline says of a table, whatever commits others have made."""
    found = read_commit_metadata(spark, target.sql)
    assert found is not None
    return found._replace(known_version=None).encode()


def entities_of(lake: Path, by: str = "key") -> dict[Key, tuple[Any, ...]]:
    """Body, token and mark of each entity that exists."""
    return {
        (e["consumer"], e["stream"], e[by]): (e["body"], e["token"], e["attempt"])
        for e in read(lake, "entities")
    }


def nodes_of(lake: Path, by: str = "key") -> dict[Key, str]:
    """The uuid of each node that exists."""
    rows = read(lake, "topology")
    return {(e["consumer"], e["stream"], e[by]): e["node_uuid"] for e in rows}


def check_entities(lake: Path, model: Model) -> None:
    assert entities_of(lake) == model.current()
    nodes = {key: row.key for key, row in model.entities.items() if not row.detector}
    assert nodes_of(lake) == nodes


def history_of(lake: Path, by: str = "key") -> dict[Key, list[dict[str, Any]]]:
    """The intervals of each entity, in order, with the names of the model."""
    history = defaultdict(list)
    for one in read(lake, "entity_history"):
        facts = {"from": one["valid_from"], "to": one["valid_to"], "by": one["ended_by"]}
        key = (one["consumer"], one["stream"], one[by])
        history[key].append({**facts, "body": one["body"], "at": one["ordinal"]})
        assert one["open"] == (one["valid_to"] is None)
    for intervals in history.values():
        intervals.sort(key=lambda one: one["at"])
    return dict(history)


def check_history(lake: Path, model: Model) -> None:
    assert history_of(lake) == {key: one for key, one in model.history.items() if one}


def alarms_of(lake: Path, by: str = "key") -> dict[Key, list[Episode]]:
    """The episodes of each detector, in order."""
    alarms = defaultdict(list)
    for a in read(lake, "alarms"):
        whole = Episode(
            *(a["episode"], a["raised_at"], a["state"], a["severity"], a["worst_severity"]),
            *(a["severity_changes"], a["intermittent_count"], a["statements"]),
            *(a["flapping_count"], a["cleared_at"], a["ended_by"]),
        )
        alarms[a["consumer"], a["stream"], a[by]].append(whole)
        assert a["condition"] == 'a "quoted" name'
        assert a["node_uuid"] == f"node-{a['key']}"
        assert (a["duration_s"] is None) == a["open"] == (a["cleared_at"] is None)
    for episodes in alarms.values():
        episodes.sort(key=lambda one: one.episode)
    return dict(alarms)


def check_alarms(lake: Path, model: Model) -> None:
    assert alarms_of(lake) == {key: one for key, one in model.alarms.items() if one}


def health_of(lake: Path) -> dict[Key, tuple[object, ...]]:
    """How each stream was followed, minute by minute, with the names of the model."""
    return {
        (one["consumer"], one["stream"], str(one["minute"])): (
            *(one["ordinal"], one["records"], one["timed_records"]),
            *(one["read_delay_s"], one["worst_read_delay_s"], one["zone"], one["attempt"]),
            *(one["realignments"], one["sweeps"]),
        )
        for one in read(lake, "stream_health")
    }


def check_verified(spark: SparkSession, lake: Path) -> None:
    """`entities` has what all of `changes` states. Its last rows may be durable with its next
    commit only.
    """
    found = Lake(lake.as_uri(), spark, tables=[]).verify()
    assert (found.stale, found.bogus, found.missing) == (0, 0, 0)


def pipeline(spark: SparkSession, lake: Path, **options: Any) -> Pipeline:
    """An open pipeline with a guard that holds nothing."""
    made = Pipeline(LakePlace(lake.as_uri()), **{"settings": UNGUARDED, **options})
    made.open(spark)
    return made


def changes(spark: SparkSession, lake: Path) -> Any:
    """All of `changes`."""
    return spark.read.format("delta").load((lake / "changes").as_uri())


def ends(rows: Iterable[Row]) -> dict[tuple[str, str], int]:
    """A micro-batch that ends, in each stream, with the last of these rows."""
    found: dict[tuple[str, str], int] = {}
    for one in rows:
        key = (one.consumer, one.stream)
        found[key] = max(found.get(key, 0), one.ordinal)
    return found


def landed(lake: Path) -> dict[tuple[str, str], int]:
    """A micro-batch of all that has landed."""
    rows = DeltaTable(lake / "changes").to_pyarrow_table(columns=["consumer", "stream", "ordinal"])
    last = rows.group_by(["consumer", "stream"]).aggregate([("ordinal", "max")]).to_pylist()
    return {(one["consumer"], one["stream"]): one["ordinal_max"] for one in last}
