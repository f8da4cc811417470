"""The job of the page, submitted to a cluster of two workers, answers as the oracle does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from instep_spark.jar import installed_jar
from tests.instep_spark.answers.answers_kit import oracles, write_tables
from tests.instep_spark.answers.network_kit import HOUR_US, START_US
from tests.instep_spark.spark_server_kit import QUICK, cluster

# The page's job, over the window of the networks; what it shows, as JSON.
JOB = """
import json
import sys
from datetime import UTC, datetime, timedelta

from instep_spark.answers import availability, failure_impact
from pyspark.sql import SparkSession

url, start, hours = sys.argv[1], datetime.fromtimestamp(int(sys.argv[2]), UTC), int(sys.argv[3])
spark = SparkSession.builder.getOrCreate()
figures = availability(spark, url, start, start + timedelta(hours=hours))
missed = figures.where("class = 'LINK'").where(figures.percent_at_least < 99.9)
services = failure_impact(spark, url).where("service_uuid IS NOT NULL")
same = (services.consumer == missed.consumer) & (services.failed_uuid == missed.uuid)
hit = missed.join(services, same, "left").select(missed.consumer, missed.id, "service_uuid")
found = sorted(map(list, hit.distinct().collect()), key=str)
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print("ANSWER", json.dumps([executors, found]))
"""


# Three JVMs start, and a driver plans long queries: a minute.
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_functions_answer_in_a_job_on_two_workers(tmp_path: Path) -> None:
    networks = oracles(range(6))
    lake, job = tmp_path / "lake", tmp_path / "job.py"
    write_tables(networks, lake)
    job.write_text(JOB)
    assert len([one for one in JOB.splitlines() if one.strip()]) <= 20
    facts = {
        **QUICK,
        "spark.executor.memory": "600m",
        "spark.cores.max": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    stated = [text for key, value in facts.items() for text in ("--conf", f"{key}={value}")]
    with cluster(tmp_path) as (master, _):
        command = [str(Path(sys.executable).with_name("spark-submit")), "--master", master, *stated]
        command += ["--jars", str(installed_jar()), str(job), lake.as_uri()]
        command += [str(START_US // 1_000_000), "3"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path, "PYSPARK_PYTHON": sys.executable},
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("ANSWER ")]
    executors, found = json.loads(line.removeprefix("ANSWER "))
    assert executors == 2
    wanted: list[list[str | None]] = []
    for one in networks:
        figures = one.availability_between(START_US, START_US + 3 * HOUR_US)
        missed = [row[1] for row in figures if row[1].startswith("l") and _missed(row[10])]
        for link in missed:
            hit = {row[9] for row in one.failure_impact() if row[1] == link and row[9]}
            wanted += [[one.consumer, link, service] for service in hit or {None}]
    assert len(wanted) > 10
    assert found == sorted(wanted, key=str)


def _missed(percent: float | None) -> bool:
    return percent is not None and percent < 99.9
