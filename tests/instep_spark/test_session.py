"""Where a session comes from, and the error when there is none. Nothing here starts a JVM."""

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException

from instep.errors import ConfigurationError
from instep_spark import Lake, jar, session
from instep_spark.session import (
    SparkOptions,
    check_java,
    delta_source,
    driver_memory_bytes,
    java_version,
    open_session,
)


def java(folder: Path, output: str) -> None:
    (folder / "bin").mkdir()
    script = folder / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    script.chmod(0o755)


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_401"', 8),
        ("not a java", None),
    ],
)
def test_java_reports_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, version: int | None
) -> None:
    java(tmp_path, output)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_version() == version
    if version in (17, 21):
        check_java()
        return
    reason = "there is no Java" if version is None else f"Java {version} is not one"
    with pytest.raises(ConfigurationError, match=f"{reason}.*install OpenJDK 17 or 21"):
        check_java()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="there is no Java — install OpenJDK"):
        check_java()


@pytest.fixture(scope="module")
def carved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar in a cache of its own, which was made for it."""
    folder: Path = tmp_path_factory.mktemp("jar") / "cache"
    made = jar.installed_jar(folder)
    if made is None:
        pytest.skip("no provider of the jar is installed")
    return made


def test_the_jar_is_carved_once(carved: Path) -> None:
    with zipfile.ZipFile(carved) as whole:
        names = whole.namelist()
    assert "org/apache/spark/sql/delta/DeltaLog.class" in names
    assert "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister" in names
    assert {"META-INF/LICENSE", "META-INF/NOTICE"} <= set(names)
    assert not [name for name in names if "avro" in name.lower()]
    assert len(names) == len(set(names))
    before = carved.stat().st_mtime_ns
    assert jar.installed_jar(carved.parent) == carved
    assert carved.stat().st_mtime_ns == before
    assert [path.name for path in carved.parent.iterdir()] == [carved.name]


def test_a_jar_that_was_changed_is_not_used(
    carved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good, changed = carved.read_bytes(), tmp_path / carved.name
    changed.write_bytes(good + b"x")
    assert jar.installed_jar(tmp_path) == changed
    assert changed.read_bytes() == good
    changed.write_bytes(good + b"x")
    # One of another version is told, and Maven is asked.
    monkeypatch.setattr(jar, "_KNOWN", frozenset())
    assert jar.installed_jar(tmp_path) is None
    assert "is not one that is known: Delta is left to Maven" in caplog.text


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_cache_that_others_may_write_is_refused(carved: Path, mode: int) -> None:
    folder = carved.parent
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(mode)
    try:
        with pytest.raises(ConfigurationError, match="other users may write"):
            jar.installed_jar(folder)
    finally:
        folder.chmod(0o700)


def test_options_hide_their_secrets() -> None:
    options = SparkOptions(remote="sc://host:15002/;token=hunter2", config={"key": "hunter2"})
    assert "hunter2" not in repr(options)


class NoSession:
    """The part of `SparkSession` that is used where no session runs."""

    @staticmethod
    def getActiveSession() -> None:  # noqa: N802 — Spark's own word
        return None


def test_a_jar_that_is_not_there_is_named_with_the_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "check_java", lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", NoSession.getActiveSession)
    with pytest.raises(ConfigurationError, match="no jar '/none") as caught:
        open_session(SparkOptions(jars=("/none.jar",)))
    for way in ("spark.jars", "jsoniq", "spark.jars.repositories"):
        assert way in caught.value.hint
    with pytest.raises(ConfigurationError, match="both given"):
        open_session(SparkOptions(master="local", remote="sc://x"))


@pytest.mark.parametrize(
    ("error", "has_delta"),
    [
        (ParseException("[PARSE_SYNTAX_ERROR] Syntax error at or near 'VACUUM'"), False),
        # A platform has it built in, and names no extension.
        (AnalysisException("[DELTA_MISSING_DELTA_TABLE] is not a Delta table"), True),
    ],
)
def test_a_session_without_delta_is_refused(error: Exception, has_delta: bool) -> None:
    class Bare:
        @staticmethod
        def sql(_statement: str) -> None:
            raise error

    bare: Any = Bare()
    if has_delta:
        assert open_session(session=bare) is bare
    else:
        for use in (lambda: open_session(session=bare), lambda: Lake("file:///lake", bare)):
            with pytest.raises(ConfigurationError, match="session has no Delta — let instep_spark"):
                use()


def test_what_is_no_session_and_one_that_was_stopped_are_named() -> None:
    nothing: Any = None
    with pytest.raises(ConfigurationError, match="NoneType is not a Spark session — open one"):
        Lake("file:///lake", nothing)
    stopped: Any = SimpleNamespace(sql=None, _sc=SimpleNamespace(_jsc=None))
    with pytest.raises(ConfigurationError, match="was stopped — open another one"):
        Lake("file:///lake", stopped)


@pytest.mark.parametrize(
    ("stated", "size_bytes"),
    [
        ("4g", 4 << 30),
        ("512m", 512 << 20),
        ("2048K", 2 << 20),
        ("768", 768 << 20),
        ("1gb", 1 << 30),
    ],
)
def test_the_memory_of_the_driver_is_read_as_spark_does(stated: str, size_bytes: int) -> None:
    conf = {"spark.driver.memory": stated}
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))
    assert driver_memory_bytes(session) == size_bytes


def test_where_delta_comes_from_is_told() -> None:
    def of(**conf: str) -> str:
        stated = {name.replace("_", "."): value for name, value in conf.items()}
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: stated))
        return delta_source(session)

    assert of(spark_jars="/cache/delta.jar") == "/cache/delta.jar"
    carved = "/cache/delta-jsoniq-3.0.2-spark-4.0.3-licensed-0.jar"
    assert of(spark_jars=carved) == f"{carved}, because no repository of Maven answered"
    by_maven = of(spark_jars_packages="io.delta:d:4", spark_jars="/ivy/io.delta_d.jar")
    assert by_maven == "io.delta:d:4, by Maven"
    assert of() == "built in"
