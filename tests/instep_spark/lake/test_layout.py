"""Tables whose changes mark rows in deletion vectors, as every engine reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec.structs import replace

from bench.lake.steady import statements
from instep_spark.lake.deletion_vectors.delta_log import VECTORS_PROPERTY
from instep_spark.lake.lake import Lake
from instep_spark.lake.pipeline import LakeSettings
from instep_spark.lake.tables import base
from instep_spark.landing.live_view import live
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.options import DeltaOptions
from instep_spark.place import Layout
from tests.instep_spark.lake.lake_kit import (
    UNGUARDED,
    check_alarms,
    check_entities,
    check_history,
    ends,
    landed,
    pipeline,
    read,
    row,
)
from tests.instep_spark.lake.log_kit import Provider, Row, land
from tests.instep_spark.lake.model_kit import Model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = ("entity_history", "alarms", "topology")


def _vectors(lake: Path, table: str) -> int:
    return len(list((lake / table).rglob("deletion_vector_*.bin")))


def _bytes(table: DeltaTable) -> int:
    return sum(pa.table(table.get_add_actions())["size_bytes"].to_pylist())


def _model(log: list[Row]) -> Model:
    model = Model()
    model.read(log)
    return model


def _check(lake: Path, model: Model) -> None:
    check_entities(lake, model)
    check_history(lake, model)
    check_alarms(lake, model)


def _settings(layout: Layout) -> LakeSettings:
    return replace(UNGUARDED, layout=layout)


@pytest.mark.long
def test_merge_on_read_is_read_right_by_every_engine(spark: SparkSession, tmp_path: Path) -> None:
    log = Provider(7, "one", offsets=True).run(24)
    part = len(log) * 2 // 3
    writer = DeltaRsWriter(DeltaOptions(url=tmp_path.as_uri()))
    writer.open("c")
    land(tmp_path, log)
    made = pipeline(spark, tmp_path, tables=TABLES, settings=_settings("merge-on-read"))
    for begin in range(0, part, 8):
        made.apply(spark, ends(log[begin : min(begin + 8, part)]))
    model = _model(log[:part])
    assert _vectors(tmp_path, "entities") > 0
    assert _vectors(tmp_path, "entity_history") > 0
    _check(tmp_path, model)
    expected = sorted(row.ordinal for row in model.entities.values())
    by_spark = spark.sql(f"SELECT ordinal FROM {made.entities.sql}").collect()
    assert sorted(row.ordinal for row in by_spark) == expected
    by_polars = pl.scan_delta(str(tmp_path / "entities")).select("ordinal").collect()
    assert sorted(by_polars["ordinal"].to_list()) == expected
    # The sink reads `entities`, and what has landed since.
    whole = _model(log)
    found = writer.query(live(writer, log[0].consumer, log[0].stream))["ordinal"].to_pylist()
    assert sorted(found) == sorted(row.ordinal for row in whole.entities.values())
    made.apply(spark, landed(tmp_path))
    _check(tmp_path, whole)
    with pytest.raises(Exception, match="deletionVectors"):
        DeltaTable(tmp_path / "entities").to_pyarrow_dataset()


def test_l7_no_table_marks_rows_unasked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_MARKED_BYTES", "_MARKED_BY_DRIVER_BYTES"):
        monkeypatch.setattr(base, name, 0)
    land(tmp_path, [row(1), row(2)])
    assert LakeSettings().layout == DeltaOptions(url=tmp_path.as_uri()).layout
    made = pipeline(spark, tmp_path, tables=[], settings=LakeSettings())
    made.apply(spark, landed(tmp_path))
    features = DeltaTable(tmp_path / "entities").protocol()
    assert features.reader_features is None
    assert DeltaTable(tmp_path / "entities").to_pyarrow_table().num_rows == 2


def test_l4_a_change_writes_one_small_file_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_FILE_BYTES", 128 << 10)
    entities = 8_000
    last = 0

    def change(changed: range) -> None:
        nonlocal last
        for rows in statements(last + 1, changed):
            write_deltalake(tmp_path / "changes", rows, mode="append")
        last += len(changed)
        Lake(tmp_path.as_uri(), spark).run(once=True)

    change(range(entities))  # Spark chooses the files of a large part
    change(range(0, entities, 7))
    tables = [DeltaTable(tmp_path / name) for name in ("entities", "entity_history")]
    change(range(1, 2))
    for table in tables:
        whole, version = _bytes(table), table.version()
        table.update_incremental()
        log = Path(table.table_uri.removeprefix("file://")) / "_delta_log"
        commits = [log / f"{one:020}.json" for one in range(version + 1, table.version() + 1)]
        actions = [json.loads(line) for one in commits for line in one.read_text().splitlines()]
        written = sum(one["add"]["size"] for one in actions if "add" in one)
        assert 0 < 3 * written < whole
        assert table.protocol().reader_features is None
    assert Lake(tmp_path.as_uri(), spark).verify().clean


@pytest.mark.long
@pytest.mark.parametrize("by_driver", [True, False])
def test_auto_marks_rows_in_large_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_driver: bool
) -> None:
    settings = replace(_settings("auto"), by_driver=by_driver)
    log = Provider(3, "one").run(16)
    land(tmp_path, log)
    thirds = [log[: len(log) // 3], log[len(log) // 3 : len(log) // 2], log[len(log) // 2 :]]
    for rows in thirds[:2]:
        made = pipeline(spark, tmp_path, tables=TABLES, settings=settings)
        made.apply(spark, ends(rows))
    assert _vectors(tmp_path, "entities") == 0
    from_bytes = {True: "_MARKED_BY_DRIVER_BYTES", False: "_MARKED_BYTES"}
    monkeypatch.setattr(base, from_bytes[not by_driver], 1)
    made = pipeline(spark, tmp_path, tables=TABLES, settings=settings)
    assert not base.has_vectors(spark, made.entities.sql)
    monkeypatch.undo()
    monkeypatch.setattr(base, from_bytes[by_driver], 1)
    made = pipeline(spark, tmp_path, tables=TABLES, settings=settings)
    made.apply(spark, ends(thirds[2]))
    assert _vectors(tmp_path, "entities") > 0
    _check(tmp_path, _model(log))
    monkeypatch.undo()
    pipeline(spark, tmp_path, tables=TABLES, settings=settings)
    assert base.has_vectors(spark, made.entities.sql)
    properties = DeltaTable(tmp_path / "entities").metadata().configuration
    assert properties[VECTORS_PROPERTY] == "true"  # a table does not go to and fro


@pytest.mark.long
def test_a_table_with_a_feed_marks_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    log = Provider(7, "one", offsets=True).run(24)
    land(tmp_path, log)
    made = pipeline(spark, tmp_path, tables=TABLES, settings=_settings("merge-on-read"))
    half = len(log) // 2
    for begin in range(0, half, 8):
        made.apply(spark, ends(log[begin : min(begin + 8, half)]))
    marked = _vectors(tmp_path, "entities")
    assert marked > 0
    before = sorted(map(str, read(tmp_path, "entities")))
    assert Lake(tmp_path.as_uri(), spark, tables=["entities"]).feed() == ["entities"]
    assert sorted(map(str, read(tmp_path, "entities"))) == before
    made = pipeline(spark, tmp_path, tables=TABLES, settings=_settings("merge-on-read"))
    for begin in range(half, len(log), 8):
        made.apply(spark, ends(log[begin : begin + 8]))
    assert _vectors(tmp_path, "entities") == marked
    _check(tmp_path, _model(log))
