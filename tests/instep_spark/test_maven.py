"""Where Delta comes from when nobody says it: Maven, where a repository answers."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from instep_spark import maven
from instep_spark.maven import can_resolve

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
