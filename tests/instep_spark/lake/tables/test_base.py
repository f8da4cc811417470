"""What every table of the pipeline is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep_spark.lake.tables import base
from instep_spark.lake.tables.entities import EntitiesTable
from instep_spark.place import LakePlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_the_driver_writes_where_a_server_has_the_same_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = EntitiesTable(LakePlace(tmp_path.as_uri()))
    made.open(spark)
    files = sorted(tmp_path.rglob("*"))
    assert made.is_seen_here(spark)
    assert sorted(tmp_path.rglob("*")) == files
    # Both users would have to write there.
    with monkeypatch.context() as another:
        another.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert not made.is_seen_here(spark)
    # A network shows old files for a while.
    with monkeypatch.context() as network:
        network.setattr(base, "is_on_local_disk", lambda _: False)
        assert not made.is_seen_here(spark)


def test_a_folder_of_the_same_name_elsewhere_is_another_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    made = EntitiesTable(LakePlace(theirs.as_uri()))
    made.open(spark)
    shutil.copytree(theirs, ours)  # the same table by its id

    class Elsewhere:
        """A server that has other files in the folder."""

        def sql(self, text: str) -> object:
            return spark.sql(text.replace(theirs.as_uri(), ours.as_uri()))

    server: object = Elsewhere()
    assert not made.is_seen_here(server)  # type: ignore[arg-type]
    assert not list(theirs.glob("*.proof"))
