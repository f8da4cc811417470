"""Where Delta comes from when nobody says it: Maven, where a repository answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from instep_spark import maven
from instep_spark.jar import installed_jar
from instep_spark.maven import can_resolve
from instep_spark.session import _delta_coordinates

ANSWERS = "echo ':: resolving dependencies :: x'; printf '\\tfound io.delta#d;4 in central\\n'"
UNRESOLVED = f"{ANSWERS}; echo '::          UNRESOLVED DEPENDENCIES         ::'; exit 1"
REFUSED = "echo ':: resolving dependencies :: x'; exit 1"
SILENT = "echo ':: resolving dependencies :: x'; exec sleep 100"
COORDINATES = "io.delta:d:4"
OPENS = """
from instep_spark import SparkOptions, open_session
from instep_spark.session import delta_source
spark = open_session(SparkOptions(master="local[1]", config={config}))
print(delta_source(spark))
spark.stop()
"""


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


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    """A repository on loopback with the Delta that is installed for Python, in one jar."""
    jar = installed_jar()
    if jar is None:
        pytest.skip("no jar of Delta is installed")
    group, name, version = _delta_coordinates().split(":")
    at = tmp_path / "repository" / group.replace(".", "/") / name / version
    at.mkdir(parents=True)
    shutil.copyfile(jar, at / f"{name}-{version}.jar")
    (at / f"{name}-{version}.pom").write_text(
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
        f"<artifactId>{name}</artifactId><version>{version}</version></project>"
    )
    files = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "repository"))
    with ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


# Two JVMs start: the resolver's and the session's.
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_session_has_the_delta_of_a_repository_that_answers(
    tmp_path: Path, repository: str
) -> None:
    config = {"spark.jars.repositories": repository, "spark.jars.ivy": str(tmp_path / "ivy")}
    opened = subprocess.run(
        [sys.executable, "-c", OPENS.format(config=config)],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert opened.returncode == 0, opened.stderr
    assert opened.stdout.strip() == f"{_delta_coordinates()}, by Maven"
    assert list((tmp_path / "ivy").rglob("*delta-spark*.jar"))
