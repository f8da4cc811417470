"""The Spark writer on other deployments: Spark Connect, and a cluster that loses its driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from instep_spark.session import java_version
from tests.instep_spark.sink_kit import rows, url_of
from tests.instep_spark.spark_server_kit import QUICK, cluster, connect_server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(java_version() not in (17, 21), reason="no Java 17 or 21"),
]


def land(url: str, spark: dict[str, Any], *options: str) -> str:
    """Return the output of a process that lands there."""
    command = [
        sys.executable,
        "-m",
        "tests.instep_spark.landing.writers.spark_landing_kit",
        url,
        json.dumps(spark),
    ]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert [row["ordinal"] for row in rows(url)] == list(range(1, 102))
    return done.stdout


@pytest.mark.long
def test_spark_connect(tmp_path: Path) -> None:
    with connect_server() as (remote, _):
        output = land(url_of(tmp_path), {"remote": remote})
        assert "100 right\n100 live" in output


@pytest.mark.long
def test_a_cluster_of_two_workers_whose_driver_is_killed_loses_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path) as (master, _):
        config = {**QUICK, "spark.executor.memory": "600m", "spark.cores.max": "2"}
        output = land(url_of(tmp_path), {"master": master, "config": config}, "--kill")
        assert "Spark has gone away — it is started again" in output
        assert "100 live" in output
