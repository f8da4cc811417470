"""How many jobs of Spark a small batch takes, from landing to all tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from deltalake import write_deltalake

from bench.lake.steady import statements
from instep_spark.lake.lake import Lake
from instep_spark.session import java_version
from tests.instep_spark.lake.lake_kit import read
from tests.instep_spark.spark_server_kit import QUICK, connect_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

MOST: Final = 8
ENTITIES: Final = 1_000
CHANGES: Final = 1_000
USUAL: Final = {
    # As `open_session` leaves it: the session of the tests is set for the fewest jobs.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
}


def jobs_of_a_batch(spark: SparkSession, lake: Path, jobs: Callable[[], int]) -> int:
    """How many jobs a run takes that brings 1,000 changes to all tables of a lake."""
    for rows in statements(1, range(ENTITIES)):
        write_deltalake(lake / "changes", rows, mode="append")
    Lake(lake.as_uri(), spark).run(once=True)
    for rows in statements(ENTITIES + 1, range(CHANGES)):
        write_deltalake(lake / "changes", rows, mode="append")
    before = jobs()
    Lake(lake.as_uri(), spark).run(once=True)
    taken = jobs() - before
    for table in ("entities", "entity_history", "alarms", "topology", "stream_health"):
        newest = max(row["ordinal"] for row in read(lake, table))
        assert newest > ENTITIES, table
    return taken


# It begins a lake and takes two batches: what a run costs is what it tells.
def test_a_small_batch_takes_few_jobs(spark: SparkSession, tmp_path: Path) -> None:
    usual = spark.newSession()
    for name, value in USUAL.items():
        usual.conf.set(name, value)
    context: Any = spark.sparkContext
    scheduler = context._jsc.sc().dagScheduler()
    assert jobs_of_a_batch(usual, tmp_path, scheduler.numTotalJobs) <= MOST


@pytest.mark.long  # a server of Spark Connect starts
@pytest.mark.skipif(java_version() not in (17, 21), reason="no Java 17 or 21")
def test_a_small_batch_takes_few_jobs_over_connect(tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession as RemoteSession  # noqa: PLC0415

    log = tmp_path / "log"
    log.mkdir()
    kept = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
    }

    def jobs() -> int:
        time.sleep(2)  # its listener writes a little later
        files = [path for path in log.rglob("events*") if path.is_file()]
        lines = [line for path in files for line in path.read_text().splitlines()]
        return sum('"Event":"SparkListenerJobStart"' in line for line in lines)

    with connect_server(settings={**QUICK, **USUAL, **kept}) as (remote, _):
        spark: Any = RemoteSession.builder.remote(remote).getOrCreate()
        assert 0 < jobs_of_a_batch(spark, tmp_path / "lake", jobs) <= MOST
        spark.stop()
