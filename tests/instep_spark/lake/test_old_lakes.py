"""A lake that was made by version 0.1: the sink goes on in it, and so do the tables."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep.errors import SinkError
from instep.model.records import Record, RecordType
from instep_spark import DeltaSink
from instep_spark.lake.lake import Lake
from tests.instep_spark.sink_kit import Stage, rows, stage, url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKE_0_1 = Path(__file__).parent / "data" / "lake_0_1"
"""Written by that version: a context of two nodes and a link, of which one node was updated and the
link deleted, a hundred alarms, and the tables of `instep lake run`.
"""
NODE = "22222222-2222-4222-8222-222222222222"
LINK = "55555555-5555-4555-8555-555555555555"
AFTER_US = 1_900_000_000_000_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    shutil.copytree(LAKE_0_1, tmp_path / "lake")
    return url_of(tmp_path)


async def go_on(url: str) -> str:
    """Delete a node in the old lake's stream, as a consumer that resumes does. Returns the
    stream.
    """
    async with DeltaSink(url, commit_interval_s=0) as sink:
        await sink.open("east")
        (network,) = [one for one in await sink.known_streams() if one.id == "network"]
        position = await sink.position(network)
        assert position.token
        assert (position.ordinal, position.attempt, position.records) == (6, 1, 9)
        (partition,) = position.offsets
        end = Record(
            network.id,
            NODE,
            RecordType.DELETE,
            "after",
            AFTER_US,
            partition,
            position.offsets[partition] + 1,
            ends=True,
        )
        await Stage(sink, network, position).commit(end)
        return network.id


@pytest.mark.asyncio
async def test_a_sink_goes_on_where_it_ended(url: str) -> None:
    stream = await go_on(url)
    ends = [
        row["key"]
        for row in rows(url)
        if row["stream"] == stream and row["kind"] in ("DELETE", "TOMBSTONE")
    ]
    assert ends == [LINK, LINK, NODE]


@pytest.mark.asyncio
async def test_another_consumer_is_refused(url: str) -> None:
    with pytest.raises(SinkError, match="belongs to the consumer 'east'"):
        async with stage(url, "west"):
            pass


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_its_tables_go_on(spark: SparkSession, url: str) -> None:
    asyncio.run(go_on(url))
    lake = Lake(url, spark)
    assert lake.verify().clean
    lake.run(once=True)
    assert lake.verify().clean
    left = spark.sql(f"SELECT key FROM delta.`{url}/entities` WHERE class IN ('NODE', 'LINK')")
    assert [row.key for row in left.collect()] == ["44444444-4444-4444-8444-444444444444"]
