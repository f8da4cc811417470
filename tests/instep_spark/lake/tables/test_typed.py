"""Typed tables hold what the typed views compute from `entities`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from instep.errors import ConfigurationError
from instep_spark import create_views
from instep_spark.lake.lake import Lake
from instep_spark.lake.pipeline import Pipeline
from instep_spark.lake.typed_views import typed_view
from instep_spark.place import LakePlace
from tests.instep_spark.lake.lake_kit import UNGUARDED, landed, pipeline
from tests.instep_spark.lake.log_kit import START_US, Change, Row, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CLASSES = ("NODE", "LINK")
TABLES = ["typed_node", "typed_link"]


def statement(at: int, key: str, entity_class: str, **content: Any) -> Change:
    return Change(
        "c",
        "s",
        at,
        "CREATE_UPDATE",
        key,
        f"t{at}",
        "p",
        at,
        START_US + at,
        committed_at=START_US + at,
        entity_class=entity_class,
        content=json.dumps({"uuid": key, **content}),
    )


def control(at: int, kind: str, attempt: int) -> Row:
    return Row("c", "s", at, kind, attempt=attempt, committed_at=START_US + at)


def end(at: int, key: str) -> Row:
    row = statement(at, key, "")
    return replace(row, kind="DELETE", ends=True, content=None)


def session_with_views(spark: SparkSession, lake: Path) -> SparkSession:
    """A session with the typed views, though their tables are there."""
    session = spark.newSession()
    elsewhere = lake / "without"
    elsewhere.mkdir(exist_ok=True)
    for table in ("changes", "entities"):
        link = elsewhere / table
        if not link.exists():
            link.symlink_to(lake / table)
    create_views(session, elsewhere.as_uri(), classes=CLASSES)
    return session


def check(spark: SparkSession, views: SparkSession, lake: Path) -> int:
    """Compare with `session_with_views`; how many rows there are."""
    rows = 0
    for name in TABLES:
        wanted = views.sql(f"SELECT * FROM {name} ORDER BY id")
        table = spark.read.format("delta").load((lake / name).as_uri())
        found = table.select(*wanted.columns).orderBy("id").collect()
        assert found == wanted.collect()
        rows += len(found)
    return rows


def test_they_hold_what_the_views_compute(spark: SparkSession, tmp_path: Path) -> None:
    capacity = {"total-size": {"value": "400", "unit": "GBPS"}}
    land(
        tmp_path,
        [
            control(1, "ATTEMPT", 1),
            statement(2, "n1", "NODE", **{"operational-state": "tapi-common:ENABLED"}),
            statement(3, "n2", "NODE", **{"operational-state": "SIDEWAYS"}),
            statement(4, "l1", "LINK", **{"tapi-topology:total-potential-capacity": capacity}),
            statement(5, "p1", "NODE_EDGE_POINT"),
            statement(6, "l2", "LINK", **{"layer-protocol-name": ["tapi-common:ODU", "SEMAPHORE"]}),
        ],
    )
    made = pipeline(spark, tmp_path, tables=TABLES)
    made.apply(spark, landed(tmp_path))
    views = session_with_views(spark, tmp_path)
    assert check(spark, views, tmp_path) == 4
    # Without Spark.
    links = pl.read_delta(str(tmp_path / "typed_link")).sort("id").to_dicts()
    assert int(links[0]["total_potential_capacity_total_size_value"]) == 400
    assert links[0]["total_potential_capacity_total_size_unit"] == "GBPS"
    assert links[1]["layer_protocol_name"] == ["ODU", None]
    assert links[1]["bad_values"] == ["layer_protocol_name"]
    land(
        tmp_path,
        [
            statement(7, "n1", "NODE", **{"operational-state": "DISABLED"}),
            end(8, "l1"),
            control(9, "ATTEMPT", 2),
            replace(statement(10, "n1", "NODE", **{"operational-state": "ENABLED"}), attempt=2),
            replace(statement(11, "l3", "LINK", direction="BIDIRECTIONAL"), attempt=2),
            control(12, "SWEEP", 2),
        ],
    )
    made = pipeline(spark, tmp_path, tables=TABLES)
    made.apply(spark, landed(tmp_path))
    assert check(spark, views, tmp_path) == 2
    lake = Lake(tmp_path.as_uri(), spark, tables=TABLES, settings=UNGUARDED)
    assert lake.rebuild() == {"typed_node": 1, "typed_link": 1}
    assert check(spark, views, tmp_path) == 2
    assert {*TABLES} <= lake.optimize().keys()
    assert {*TABLES} <= {*lake.vacuum()}
    # Its columns tell what they mean, as those of the view do.
    told = {
        row.col_name: row.comment
        for row in spark.sql(f"DESCRIBE {made.followers[0].sql}").collect()
    }
    unit = "total_potential_capacity_total_size_unit"
    assert told[unit] == dict(typed_view("LINK").columns)[unit]
    session = spark.newSession()
    assert {*TABLES} <= {*create_views(session, tmp_path.as_uri(), classes=CLASSES)}
    assert "attempt" in session.sql("SELECT * FROM typed_link").columns


def test_a_class_that_the_yang_does_not_have_is_named() -> None:
    with pytest.raises(ConfigurationError, match="no table 'typed_nodes'") as failed:
        Pipeline(LakePlace("file:///lake"), tables=["typed_nodes"])
    assert "typed_node" in failed.value.hint
