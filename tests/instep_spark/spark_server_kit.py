"""Servers of Spark's own, started from what the package `pyspark` carries: Spark Connect, and a
standalone cluster of a master and two workers.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import socket
from typing import Final

import pyspark
import pytest

from instep_spark.jar import installed_jar

__all__ = ["QUICK", "Server", "cluster", "connect_server"]

HOME: Final = Path(pyspark.__file__).parent
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""When the cache of code is full, Java stops compiling, and all that follows is ten times as slow.
"""
QUICK: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
}
"""For few rows and short lives: starting, compiling and describing cost more than running."""
START_S: Final = 600


class Server:
    """A process of Spark's own that can be killed and started again at its place."""

    def __init__(self, name: str, *arguments: str, port: int | None = None) -> None:
        self._command = [str(HOME / "bin" / name), *arguments]
        self._port = port
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        place = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment = os.environ | place | {"SPARK_DAEMON_JAVA_OPTS": JAVA}
        return subprocess.Popen(self._command, stdout=quiet, stderr=quiet, env=environment)

    def wait(self) -> None:
        """Wait until its port answers."""
        deadline_s = time.monotonic() + START_S
        while self._port is not None and not _answers(self._port):
            assert self.process.poll() is None, "it does not start"
            assert time.monotonic() < deadline_s, "it does not answer"
            time.sleep(0.2)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """After `kill`."""
        self.process = self._start()
        self.wait()


@contextmanager
def _started(name: str, *arguments: str, port: int | None = None) -> Iterator[Server]:
    server = Server(name, *arguments, port=port)
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@contextmanager
def connect_server(
    master: str = "local[1]", settings: Mapping[str, str] = QUICK
) -> Iterator[tuple[str, Server]]:
    """The `sc://` URL of a Spark Connect server with Delta."""
    jar, port = installed_jar(), _free_port()
    if jar is None:
        pytest.skip("no provider of Delta's jar is installed")
    facts = {
        **settings,
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    stated = [text for key, value in facts.items() for text in ("--conf", f"{key}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["--master", master, "--jars", str(jar), *stated, "--class", server]
    with _started("spark-submit", *command, "spark-internal", port=port) as process:
        yield f"sc://127.0.0.1:{port}", process


@contextmanager
def cluster(folder: Path, cores: int = 1) -> Iterator[tuple[str, list[Server]]]:
    """The `spark://` URL of a master, and its two workers."""
    port = _free_port()
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    master = ("spark-class", "org.apache.spark.deploy.master.Master", *here, "--port", str(port))
    with ExitStack() as stack:
        stack.enter_context(_started(*master, port=port))
        url = f"spark://127.0.0.1:{port}"
        workers = []
        for number in (1, 2):
            shape = ["--cores", str(cores), "--memory", "2g"]
            work = ["--work-dir", str(folder / f"worker-{number}")]
            worker = "org.apache.spark.deploy.worker.Worker"
            workers.append(
                stack.enter_context(_started("spark-class", worker, *here, *shape, *work, url))
            )
        yield url, workers


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _answers(port: int) -> bool:
    with socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
