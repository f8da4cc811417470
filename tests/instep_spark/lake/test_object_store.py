"""Tables in an object store that the driver reads and merges itself: each commit is put on the
condition that there is none of its version. Spark has no connector here, so it has made the empty
tables on disk, and decides on rows that the driver hands to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from instep_spark.answers.duckdb_lake import load_table
from instep_spark.lake.pipeline import Pipeline
from instep_spark.lake.tables.base import OvertakenError
from instep_spark.landing.writers.delta_rs import DeltaRsWriter
from instep_spark.options import DeltaOptions
from instep_spark.place import LakePlace
from tests.instep_spark.lake.lake_kit import UNGUARDED, ends, pipeline, read
from tests.instep_spark.lake.log_kit import Provider, land
from tests.instep_spark.s3_kit import s3, upload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FOLLOWERS = ("entity_history", "alarms", "topology")
URL = "s3://lakes/net"


def rows(table: DeltaTable) -> list[str]:
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return sorted(map(str, pa.table(found).to_pylist()))


def test_the_driver_merges_on_s3_and_no_two_commits_are_one_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = Provider(2, "log", keys=2).run(8)
    half = len(log) // 2
    on_disk = pipeline(spark, tmp_path, tables=FOLLOWERS)
    with s3() as storage:
        upload(tmp_path, storage, "net")
        land(tmp_path, log[:half])
        upload(tmp_path / "changes", storage, "net/changes")

        def on_s3() -> Pipeline:
            made = Pipeline(
                LakePlace(URL), tables=FOLLOWERS, settings=UNGUARDED, storage_options=storage
            )
            made.open(spark)
            return made

        slow, quick = on_s3(), on_s3()
        quick.apply(spark, ends(log[:half]))
        with pytest.raises(OvertakenError, match="another pipeline has written"):
            slow.entities.commit_progress(spark, slow.entities.progress)
        land(tmp_path, log[half:])
        upload(tmp_path / "changes", storage, "net/changes")
        slow.apply(spark, ends(log))
        slow.settle(spark)
        on_disk.apply(spark, ends(log))

        for name in ("entities", *FOLLOWERS):
            there = DeltaTable(f"{URL}/{name}", storage_options=storage)
            assert rows(there) == rows(DeltaTable(tmp_path / name))
        # What reads the lake without Spark.
        writer = DeltaRsWriter(DeltaOptions(url=URL, storage_options=storage))
        assert writer.pipeline_progress("c", "log").ordinal == len(log)
        found = load_table(URL, "topology", storage)
        assert found is not None
        assert found.num_rows == len(read(tmp_path, "topology"))
