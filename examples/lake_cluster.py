"""Runs a lake's pipeline on a standalone cluster of Spark: a master and two workers, started here.

    python examples/lake_cluster.py [file:///var/lib/lake]

Everything comes with the package `pyspark`. On a cluster of several machines the lake has to lie
where all of them reach it: on an object store, or a mounted file system. Without a lake, a small
one is landed from a simulated provider.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from lake_simulation import landed_lake
from simulation import described

from instep_spark import Lake
from instep_spark.session import SparkOptions, open_session

WORKERS = 2
START_S = 60
HOST = "127.0.0.1"


def spark_class(name: str, log: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a daemon of Spark; its output goes to `log`."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SystemExit('pyspark is missing: pip install "instep[spark]"')
    home = Path(spec.origin).parent
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST}
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


def wait_for_line(log: Path, pattern: str) -> str:
    """Wait until a daemon has logged this text."""
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.1)
    raise SystemExit(f"Spark does not start: {log.read_text(errors='replace')[-2_000:]}")


@contextmanager
def cluster(workers: int = WORKERS) -> Iterator[str]:
    """Start a cluster that ends with the block. Yields the URL of its master."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        place = ("--host", HOST, "--port", "0", "--webui-port", "0")
        daemons = [spark_class("master.Master", folder / "master", *place)]
        try:
            url = wait_for_line(folder / "master", r"Starting Spark master at (spark://\S+)")
            for number in range(workers):
                log, work = folder / f"worker{number}", str(folder / f"work{number}")
                size = ("--cores", "1", "--memory", "1g", "--work-dir", work)
                daemons.append(spark_class("worker.Worker", log, *place, *size, url))
                wait_for_line(log, r"Successfully registered with master (\S+)")
            yield url
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
            for daemon in daemons:
                daemon.wait(timeout=30)


def main(lake: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with cluster() as master:
        config = {
            "spark.driver.host": HOST,
            "spark.executor.memory": "768m",
            # 200 and 50 by default: most of their tasks would find nothing in a small lake.
            "spark.sql.shuffle.partitions": str(2 * WORKERS),
            "spark.databricks.delta.snapshotPartitions": str(WORKERS),
        }
        spark = open_session(SparkOptions(master=master, config=config))
        try:
            made = Lake(lake, spark, report=lambda step: print(f"{step.table}: {step.rows:,} rows"))
            made.run(once=True)
            found = made.verify()
            print(f"verified on {WORKERS} workers: {found.right:,} right, clean: {found.clean}")
        finally:
            spark.stop()


if __name__ == "__main__":
    parser = described(__doc__)
    parser.add_argument("lake", nargs="?", metavar="URL", help="left out, one is landed first")
    main(parser.parse_args().lake or landed_lake())
