"""The journal of a SQL store as a Spark stream: every change once, over restarts of the query."""

import asyncio
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from instep.errors import ConfigurationError
from instep_spark.reading.data_source import _JournalStreamReader, _settings, register
from instep_sql import SqlStore
from tests.instep_sql.store_kit import Stage, create_update, end_record, stream_info


async def fill(url: str, first: int, last: int) -> None:
    async with SqlStore(url, journal="bodies") as store:
        await store.open("c")
        at = Stage(store, await store.position(stream_info()))
        for n in range(first, last + 1):
            await at.commit(create_update(f"k{n}", n))
        await at.commit(end_record(f"k{first}", last + 1))


@pytest.mark.spark
def test_every_change_is_a_row_once_over_restarts(tmp_path: Path, spark: SparkSession) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(fill(url, 1, 30))
    register(spark)
    target, checkpoint = (tmp_path / "out").as_uri(), (tmp_path / "checkpoint").as_uri()

    def run() -> None:
        stream = (
            spark.readStream.format("instep")
            .option("store", url)
            .option("maxRowsPerTrigger", "8")
            .load()
        )
        query = (
            stream.writeStream.format("delta")
            .option("checkpointLocation", checkpoint)
            .start(target)
        )
        query.processAllAvailable()
        query.stop()

    run()
    asyncio.run(fill(url, 101, 110))
    run()
    run()
    rows = DeltaTable(target).to_pyarrow_table().sort_by("cursor").to_pylist()
    assert [row["cursor"] for row in rows] == list(range(1, 43))
    assert (rows[0]["change"], rows[0]["key"], rows[0]["body"]) == ("created", "k1", '{"at":1}')
    assert (rows[30]["change"], rows[30]["kind"]) == ("deleted", "DELETE")
    assert rows[0]["appended_at"].microsecond == 1


def test_ranges_are_bounded_and_cut(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(fill(url, 1, 30))
    reader = _JournalStreamReader(
        _settings({"store": url, "maxRowsPerTrigger": "10", "partitions": "3"})
    )
    assert reader.initialOffset() == {"cursor": 0}
    assert reader.latestOffset() == {"cursor": 10}
    parts = reader.partitions({"cursor": 0}, {"cursor": 10})
    assert [len(list(reader.read(part))) for part in parts] == [3, 3, 4]
    assert reader.latestOffset() == {"cursor": 20}
    # After a restart Spark knows where it stands, and the reader does not.
    again = _JournalStreamReader(_settings({"store": url, "maxRowsPerTrigger": "10"}))
    assert again.latestOffset() == {"cursor": 31}


def test_options_are_checked() -> None:
    for options, message in (
        ({}, "'store' is missing"),
        ({"store": "sqlite://", "odd": "1"}, "unknown option 'odd'"),
        ({"store": "sqlite://", "partitions": "0"}, "no whole number from 1 on"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            _settings(options)
