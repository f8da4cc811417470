"""`format("instep")`: every change once, over restarts of the query."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from instep.errors import ConfigurationError
from instep.model.entities import Change
from instep_spark.lake.lake import Lake
from instep_spark.reading.data_source import _Reader, _StreamReader, register
from instep_spark.reading.data_source_options import DataSourceOptions
from instep_spark.reading.lake_change_reader import LakeChangeReader
from instep_sql import SqlStore
from instep_sql.reader import SqlReader
from tests.instep_spark.lake.lake_kit import UNGUARDED, changes, ends, pipeline
from tests.instep_spark.lake.lake_kit import read as read_table
from tests.instep_spark.lake.log_kit import Provider, land
from tests.instep_spark.lake.model_kit import Model
from tests.instep_sql.store_kit import Stage, create_update, end_record, stream_info

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def fill(url: str, first: int, last: int, *, consumer: str = "c", **options: Any) -> None:
    async with SqlStore(url, journal="bodies", **options) as store:
        await store.open(consumer)
        at = Stage(store, await store.position(stream_info()))
        for n in range(first, last + 1):
            await at.commit(create_update(f"k{n}", n))
        await at.commit(end_record(f"k{first}", last + 1))


def rows_of(reader: Any, parts: Any) -> list[dict[str, Any]]:
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.spark
def test_every_change_is_a_row_once_over_restarts(tmp_path: Path, spark: SparkSession) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(fill(url, 1, 30))
    register(spark)
    target, checkpoint = (tmp_path / "out").as_uri(), (tmp_path / "checkpoint").as_uri()

    def run() -> list[int]:
        """Returns the rows of each micro-batch."""
        stream = spark.readStream.format("instep").option("store", url)
        stream = stream.option("maxRowsPerTrigger", "16")
        writer = stream.load().writeStream.format("parquet").option("path", target)
        query = writer.option("checkpointLocation", checkpoint).start()
        query.processAllAvailable()
        query.stop()
        return [int(one["numInputRows"]) for one in query.recentProgress if one["numInputRows"]]

    assert run() == [16, 15]
    asyncio.run(fill(url, 101, 120))
    # From the checkpoint on, and bounded, though this reader has never seen an offset.
    assert run() == [16, 5]
    assert run() == []
    rows = sorted(spark.read.parquet(target).collect(), key=lambda row: row.cursor)
    assert [row.cursor for row in rows] == list(range(1, 53))
    assert (rows[0].change, rows[0].key, rows[0].body) == ("created", "k1", '{"at":1}')
    assert (rows[30].change, rows[30].kind) == ("deleted", "DELETE")
    assert rows[0].appended_at.microsecond == 1


def test_ranges_are_bounded_and_cut(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(fill(url, 1, 30))
    options = DataSourceOptions.read({"store": url, "maxRowsPerTrigger": "10", "partitions": "3"})
    reader = _StreamReader(options)
    assert reader.initialOffset() == {"cursor": 0}
    assert reader.latestOffset()["cursor"] == 10
    parts = reader.partitions({"cursor": 0}, {"cursor": 10})
    assert [len(rows_of(reader, [part])) for part in parts] == [3, 3, 4]
    assert reader.latestOffset()["cursor"] == 20
    again = _StreamReader(options)
    assert again.partitions({"cursor": 20}, {"cursor": 20}) == []
    assert again.latestOffset()["cursor"] == 30
    assert all(isinstance(batch, pa.RecordBatch) for batch in reader.read(parts[0]))


def test_the_newest_offset_is_found_with_a_row_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(fill(url, 1, 3))
    reader = _StreamReader(DataSourceOptions.read({"store": url}))
    reader.initialOffset()
    read: list[Change] = []
    every = SqlReader.changes

    async def noted(self: SqlReader, *after: int, **chosen: Any) -> AsyncIterator[Change]:
        async for change in every(self, *after, **chosen):
            read.append(change)
            yield change

    monkeypatch.setattr(SqlReader, "changes", noted)
    assert reader.latestOffset()["cursor"] == 4
    assert len(read) <= 1


def test_a_journal_that_was_trimmed_is_read_from_its_oldest_change(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(fill(url, 1, 30, journal_retention_records=10))
    reader = _Reader(DataSourceOptions.read({"store": url, "partitions": "2"}))
    cursors = [row["cursor"] for row in rows_of(reader, reader.partitions())]
    assert cursors == list(range(cursors[0], 32))
    assert cursors[0] > 1


def test_what_is_chosen_is_read_and_nothing_else(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(fill(url, 1, 5))
    asyncio.run(fill(url, 1, 5, consumer="d"))

    def read(**options: str) -> list[tuple[str, str, int]]:
        reader = _Reader(DataSourceOptions.read({"store": url, **options}))
        rows = rows_of(reader, reader.partitions())
        return [(row["consumer"], row["key"], row["appended_at"].microsecond) for row in rows]

    everything = read()
    assert read(consumer="d") == [row for row in everything if row[0] == "d"]
    assert read(stream="s1") == everything
    assert read(stream="other") == []
    assert read(**{"class": "LINK"}) == []
    assert read(**{"class": "LINK,NODE"}) == everything
    moment = "1970-01-01T00:00:00.{:06}Z"
    assert read(since=moment.format(2), until=moment.format(4)) == [
        row for row in everything if 2 <= row[2] < 4
    ]


def test_filters_that_can_be_pushed_down_are_taken(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(fill(url, 1, 5))
    asyncio.run(fill(url, 1, 5, consumer="d"))

    def named(kind: str, column: str, value: Any) -> Any:
        # By the names of Spark 4.1: 4.0 has no such classes.
        return type(kind, (SimpleNamespace,), {})(attribute=(column,), value=value)

    reader = _Reader(DataSourceOptions.read({"store": url}))
    others = [
        named("EqualTo", "key", "k2"),
        named("LessThan", "appended_at", datetime(1970, 1, 1)),  # noqa: DTZ001 - without a zone
    ]
    taken = [
        named("In", "consumer", ("d", "e")),
        named("EqualTo", "class", "NODE"),
        named("GreaterThan", "appended_at", datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)),
        named("LessThanOrEqual", "appended_at", datetime(1970, 1, 1, microsecond=3, tzinfo=UTC)),
    ]
    assert list(reader.pushFilters([*others, *taken])) == others
    rows = rows_of(reader, reader.partitions())
    assert {row["consumer"] for row in rows} == {"d"}
    assert {row["appended_at"].microsecond for row in rows} == {2, 3}


Told = dict[str, list[tuple[str, str | None, str | None]]]


def told_by(rows: list[dict[str, Any]]) -> Told:
    """Change, body and the body before, by entity, in order."""
    told: Told = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["cursor"]):
        told[row["key"]].append((row["change"], row["body"], row["previous"]))
    return dict(told)


def told_of(model: Model) -> Told:
    """The same by the intervals of the model."""
    told: Told = {}
    for (_, _, key), intervals in model.history.items():
        changes: list[tuple[str, str | None, str | None]] = []
        before: str | None = None
        for one in intervals:
            body = one["body"]
            changes.append(("created" if before is None else "updated", body, before))
            before = body if one["by"] == "UPDATE" else None
            if one["by"] not in {None, "UPDATE"}:
                changes.append(("swept" if one["by"] == "SWEEP" else "deleted", None, body))
        if changes:
            told[key] = changes
    return told


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_changes_of_a_lake_are_what_its_entities_went_through(
    tmp_path: Path, spark: SparkSession
) -> None:
    log = Provider(103, "one", keys=3).run(16)
    land(tmp_path, log)
    url = tmp_path.as_uri()
    first, second = log[: len(log) // 2], log[len(log) // 2 :]
    tables = pipeline(spark, tmp_path, tables=["entity_history"])
    lake = Lake(url, spark, tables=["entity_history"], settings=UNGUARDED)
    with pytest.raises(ConfigurationError, match="keeps no change data feed") as refused:
        LakeChangeReader(url, DataSourceOptions.read({"lake": url}).change_filter).first()
    assert "instep lake feed" in str(refused.value.hint)
    assert lake.feed() == ["entity_history"]
    tables.open(spark)
    tables.apply(spark, ends(first))
    tables.settle(spark)
    existing = {row["key"] for row in read_table(tmp_path, "entity_history") if row["open"]}
    # What exists, bounded.
    new = _StreamReader(DataSourceOptions.read({"lake": url, "maxRowsPerTrigger": "2"}))
    at = new.initialOffset()
    portions = []
    while (to := new.latestOffset()) != at:
        portions.append(rows_of(new, new.partitions(at, to)))
        at = to
    assert [len(portion) for portion in portions[:-1]] == [2] * (len(portions) - 1)
    seen = [row for portion in portions for row in portion]
    assert {row["key"] for row in seen} == existing
    assert {row["change"] for row in seen} == {"created"}

    tables.apply(spark, ends(second))
    tables.settle(spark)
    lake.optimize()
    assert lake.rebuild() == {"entity_history": len(read_table(tmp_path, "entity_history"))}
    model = Model()
    model.read(log)
    # All from the first commit on, whatever maintenance did: and by several readers.
    whole = _Reader(
        DataSourceOptions.read({"lake": url, "startingVersion": "1", "partitions": "3"})
    )
    everything = rows_of(whole, whole.partitions())
    assert told_by(everything) == told_of(model)
    # On from what existed.
    assert new.latestOffset()["version"] > at["version"]
    last = max(row["ordinal"] for row in read_table(tmp_path, "entity_history"))
    assert last <= len(log)
    later = []
    while (to := new.latestOffset()) != at:
        later += rows_of(new, new.partitions(at, to))
        at = to
    assert later == [row for row in everything if row["cursor"] > len(first)]
    assert [row["cursor"] for row in later]
    kinds = {(row["change"], row["kind"]) for row in everything}
    assert {("updated", "CREATE_UPDATE"), ("deleted", "TOMBSTONE"), ("swept", None)} <= kinds
    only = _Reader(DataSourceOptions.read({"lake": url, "startingVersion": "1", "class": "NODE"}))
    chosen = rows_of(only, only.partitions())
    assert chosen == [row for row in everything if row["class"] == "NODE"]


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_reads_the_changes_of_a_lake(tmp_path: Path, spark: SparkSession) -> None:
    log = Provider(3, "one").run(10)
    land(tmp_path, log)
    url = tmp_path.as_uri()
    lake = Lake(url, spark, tables=["entity_history"], settings=UNGUARDED)
    lake.run(once=True)
    lake.feed()
    register(spark)
    rows = spark.read.format("instep").option("lake", url).load().collect()
    model = Model()
    model.read(log)
    assert {row.key: row.body for row in rows} == {
        key[2]: row.body for key, row in model.open.items()
    }
    assert changes(spark, tmp_path).count() == len(log)
    assert json.loads(rows[0].body)


def test_options_are_checked() -> None:
    for options, message in (
        ({}, "'store' or 'lake' is missing"),
        ({"store": "sqlite://", "lake": "file:///lake"}, "both given"),
        ({"store": "sqlite://", "odd": "1"}, "unknown option 'odd'"),
        ({"store": "sqlite://", "partitions": "0"}, "no whole number from 1 on"),
        ({"store": "sqlite://", "since": "2026-11-21T12:00:00"}, "no time with a zone"),
        ({"store": "sqlite://", "startingVersion": "3"}, "'startingversion' is one of a lake"),
        ({"lake": "file:///lake", "startingCursor": "3"}, "'startingcursor' is one of a store"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            DataSourceOptions.read(options)


@pytest.mark.spark
def test_where_there_is_nothing_to_read_there_are_no_rows(
    tmp_path: Path, spark: SparkSession
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(fill(url, 1, 2))
    register(spark)
    source = spark.read.format("instep").option("store", url)
    assert source.option("startingCursor", "3").load().collect() == []
    assert source.option("startingCursor", "2").load().count() == 1


def test_workers_that_do_not_find_instep_are_named(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    registered: list[Any] = []
    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(master="local[2]", pythonExec=str(other)),
        dataSource=SimpleNamespace(register=registered.append),
    )
    with pytest.raises(ConfigurationError, match=r"not find instep — set it .*PYSPARK_PYTHON="):
        register(session)
    session.sparkContext.pythonExec = sys.executable
    register(session)
    # Spark of a cluster starts what is there.
    session.sparkContext = SimpleNamespace(master="spark://host:7077", pythonExec=str(other))
    register(session)
    assert len(registered) == 2
