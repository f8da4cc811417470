"""A server of Spark Connect on this machine, as a user would start it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection, socket
from typing import Final

import pyspark

from instep.errors import ConfigurationError
from instep_spark.jar import installed_jar

__all__ = ["connect_server"]

_HOME: Final = Path(pyspark.__file__).parent
_START_S: Final = 120.0
_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(master: str, memory: str) -> Iterator[str]:
    """The `sc://` URL of a server with Delta. Raises `ConfigurationError` where none starts."""
    jar = installed_jar()
    if jar is None:
        raise ConfigurationError(
            "no provider of Delta's jar is installed", hint='pip install "jsoniq==3.0.2"'
        )
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # As `open_session` sets them for one machine.
        "spark.sql.shuffle.partitions": "8",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    stated = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    command = [str(_HOME / "bin" / "spark-submit"), "--master", master, "--jars", str(jar)]
    server = subprocess.Popen(
        [*command, *stated, "--class", _CLASS, "spark-internal"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    try:
        deadline_s = time.monotonic() + _START_S
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise ConfigurationError("the server of Spark Connect does not start")
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
