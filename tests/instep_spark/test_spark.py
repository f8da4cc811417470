"""The Spark writer where others run it: a JVM that is killed, Spark Connect, a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import socket
from typing import Any

import pyspark
import pytest

from instep_spark.jar import installed_jar
from instep_spark.session import java_version
from tests.instep_spark.lakes import rows, url_of

HOME = Path(pyspark.__file__).parent
QUICK = {"spark.sql.shuffle.partitions": "1", "spark.databricks.delta.snapshotPartitions": "1"}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.skipif(java_version() not in (17, 21), reason="no Java 17 or 21"),
]


def land(url: str, spark: dict[str, Any], *options: str) -> str:
    """What a process says that lands there."""
    command = [sys.executable, "-m", "tests.instep_spark.spark_places", url, json.dumps(spark)]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert [row["ordinal"] for row in rows(url)] == list(range(1, 102))
    return done.stdout


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def started(name: str, *arguments: str, port: int | None = None) -> Iterator[None]:
    """A process of Spark's own; waits for its port."""
    command = [str(HOME / "bin" / name), *arguments]
    quiet = subprocess.DEVNULL
    environment = os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment) as process:
        try:
            deadline_s = time.monotonic() + 120
            while port is not None and not answers(port):
                assert process.poll() is None, "it does not start"
                assert time.monotonic() < deadline_s, "it does not answer"
                time.sleep(0.2)
            yield
        finally:
            process.kill()


def answers(port: int) -> bool:
    with socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_killed_jvm_loses_nothing(tmp_path: Path) -> None:
    said = land(url_of(tmp_path), {"master": "local[1]", "config": QUICK | LOOPBACK}, "--kill")
    assert "Spark has gone away — it is started again" in said
    assert "100 live" in said


def test_spark_connect(tmp_path: Path) -> None:
    jar, port = installed_jar(), free_port()
    if jar is None:
        pytest.skip("no provider of Delta's jar is installed")
    facts = {
        **QUICK,
        **LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    settings = [text for key, value in facts.items() for text in ("--conf", f"{key}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["--master", "local[1]", "--jars", str(jar), *settings, "--class", server]
    with started("spark-submit", *command, "spark-internal", port=port):
        assert "100 live" in land(url_of(tmp_path), {"remote": f"sc://127.0.0.1:{port}"})


def test_a_cluster_of_two_workers(tmp_path: Path) -> None:
    port = free_port()
    master, worker = (
        f"org.apache.spark.deploy.{role}" for role in ("master.Master", "worker.Worker")
    )
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as stack:
        stack.enter_context(started("spark-class", master, *here, "--port", str(port), port=port))
        for number in (1, 2):
            folder = tmp_path / f"worker-{number}"
            shape = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder)]
            place = f"spark://127.0.0.1:{port}"
            stack.enter_context(started("spark-class", worker, *here, *shape, place))
        config = {**QUICK, **LOOPBACK, "spark.executor.memory": "600m", "spark.cores.max": "2"}
        spark = {"master": f"spark://127.0.0.1:{port}", "config": config}
        assert "100 live" in land(url_of(tmp_path), spark)
