"""Where Delta comes from when nobody says it: Maven, where a repository answers."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from instep_spark import maven
from instep_spark.jar import installed_jar
from instep_spark.maven import can_resolve
from instep_spark.session import java_version

ANSWERS = "echo ':: resolving dependencies :: x'; printf '\\tfound io.delta#d;4 in central\\n'"
UNRESOLVED = f"{ANSWERS}; echo '::          UNRESOLVED DEPENDENCIES         ::'; exit 1"
REFUSED = "echo ':: resolving dependencies :: x'; exit 1"
SILENT = "echo ':: resolving dependencies :: x'; exec sleep 100"
COORDINATES = "io.delta:d:4"


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark whose resolver is a script."""
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setattr(maven, "_ANSWER_S", 0.5)
    return home


def resolver(home: Path, does: str) -> Path:
    """Returns the file with what it was asked."""
    asked = home / "asked"
    script = home / "bin" / "spark-submit"
    script.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n{does}\n')
    script.chmod(0o755)
    return asked


@pytest.mark.parametrize(
    ("does", "found"), [(ANSWERS, True), (UNRESOLVED, False), (REFUSED, False), (SILENT, False)]
)
def test_an_answer_holds_for_a_day(
    tmp_path: Path, spark_home: Path, does: str, found: bool
) -> None:
    asked = resolver(spark_home, does)
    config = {"spark.jars.repositories": "http://mirror/maven", "spark.executor.memory": "1g"}
    ask = partial(can_resolve, COORDINATES, config, tmp_path / "cache")
    assert [ask(), ask()] == [found, found]
    (line,) = asked.read_text().splitlines()
    assert "--packages io.delta:d:4 --conf spark.jars.repositories=http://mirror/maven" in line
    assert "memory" not in line
    # Another repository is another question, and so is the next day.
    resolver(spark_home, UNRESOLVED)
    assert not can_resolve(COORDINATES, {}, tmp_path / "cache")
    assert not ask(now_s=time.time() + 86_401)
    assert len(asked.read_text().splitlines()) == 3


SESSION = """
import sys
from instep_spark.session import SparkOptions, delta_source, open_session

config = dict(one.split("=", 1) for one in sys.argv[2:])
spark = open_session(SparkOptions(master="local[1]", config=config))
print(delta_source(spark))
spark.sql(f"CREATE TABLE delta.`{sys.argv[1]}` (a INT) USING delta")
spark.sql(f"INSERT INTO delta.`{sys.argv[1]}` VALUES (1)")
print(spark.sql(f"SELECT * FROM delta.`{sys.argv[1]}`").count(), "row")
"""


# Two JVMs start: one resolves, and one runs.
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(java_version() not in (17, 21), reason="no Java 17 or 21")
def test_delta_comes_from_a_repository_on_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carved = installed_jar()
    if carved is None:
        pytest.skip("no provider of Delta's jar is installed")
    from instep_spark.session import _delta_coordinates  # noqa: PLC0415 — needs pyspark

    group, artifact, version = _delta_coordinates().split(":")
    folder = tmp_path / "maven" / group.replace(".", "/") / artifact / version
    folder.mkdir(parents=True)
    (folder / f"{artifact}-{version}.jar").write_bytes(carved.read_bytes())
    (folder / f"{artifact}-{version}.pom").write_text(
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
        f"<artifactId>{artifact}</artifactId><version>{version}</version></project>"
    )
    serve = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "maven"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{server.server_port}/"
        settings = tmp_path / "ivy.xml"
        settings.write_text(
            '<ivysettings><settings defaultResolver="here"/><resolvers>'
            f'<ibiblio name="here" m2compatible="true" root="{at}"/></resolvers></ivysettings>'
        )
        config = [
            f"spark.jars.ivySettings={settings}",
            f"spark.jars.ivy={tmp_path / 'ivy'}",
            "spark.driver.host=127.0.0.1",
            "spark.driver.bindAddress=127.0.0.1",
        ]
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        table = (tmp_path / "table").as_uri()
        done = subprocess.run(
            [sys.executable, "-c", SESSION, table, *config],
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        server.shutdown()
    assert done.returncode == 0, done.stderr[-4_000:]
    assert done.stdout == f"{group}:{artifact}:{version}, by Maven\n1 row\n"
