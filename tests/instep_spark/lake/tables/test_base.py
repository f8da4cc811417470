"""What every table of the pipeline is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep_spark.lake.tables.entities import EntitiesTable
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def _entities(spark: SparkSession, lake: Path) -> EntitiesTable:
    made = EntitiesTable(LakePlace(lake.as_uri()))
    made.open(spark)
    return made


def test_the_driver_writes_where_a_server_has_the_same_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _entities(spark, tmp_path / "theirs")
    assert made.is_seen_here(spark)
    # Another user may not be able to go on with what this one writes.
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert not made.is_seen_here(spark)
    # A folder of the same name on another machine has another table, or none.
    _entities(spark, tmp_path / "ours")
    found = spark.sql(f"DESCRIBE DETAIL {made.sql}")
    shutil.rmtree(tmp_path / "theirs")
    with monkeypatch.context() as there:
        there.setattr(type(spark), "sql", lambda *_: found)
        assert not made.is_seen_here(spark)
        shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
        assert not made.is_seen_here(spark)
