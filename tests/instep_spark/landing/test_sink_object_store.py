"""A lake on an object store: an S3 server in a process of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from instep.errors import FencedError, SinkError, StoreUnavailableError
from tests.instep_spark.s3_kit import s3
from tests.instep_spark.sink_kit import stage
from tests.instep_sql.store_kit import create_update


def rows(url: str, storage: dict[str, str]) -> list[Any]:
    table = DeltaTable(f"{url}/changes", storage_options=storage)
    builder = QueryBuilder().register("changes", table)
    query = "SELECT stream, ordinal, key FROM changes ORDER BY stream, ordinal"
    found: list[Any] = pa.table(builder.execute(query).read_all()).to_pylist()
    return found


@pytest.mark.asyncio
async def test_a_lake_on_s3_is_written_once_fenced_and_joined() -> None:
    with s3() as storage:
        url = "s3://lakes/network"
        async with stage(url, storage_options=storage, compact_every_commits=4) as at:
            for turn in range(1, 7):
                await at.commit(create_update("a", turn))
            assert (await at.sink.estimate_sweep("s1", 2)).unmarked == 1
        async with (
            stage(url, storage_options=storage) as one,
            stage(url, storage_options=storage) as two,
        ):
            assert one.position.ordinal == 6
            await one.commit(create_update("b", 7))
            with pytest.raises(FencedError, match="another process has committed"):
                await two.commit(create_update("b", 7))
        assert [row["ordinal"] for row in rows(url, storage)] == list(range(1, 9))


@pytest.mark.asyncio
async def test_two_processes_at_once_lose_nothing_on_s3() -> None:
    """Each puts its version of the log only where there is none: the other's is not replaced."""
    with s3() as storage:
        url = "s3a://lakes/shared"
        options: dict[str, Any] = {"storage_options": storage, "shared": True}
        async with stage(url, "east", **options) as east, stage(url, "west", **options) as west:

            async def land(at: Any) -> None:
                for turn in range(1, 9):
                    await at.commit(create_update("a", turn))

            await asyncio.gather(land(east), land(west))
        assert len(rows(url, storage)) == 2 * 9


@pytest.mark.asyncio
async def test_what_is_wrong_with_a_bucket_is_reported_without_the_keys() -> None:
    with s3() as storage:
        with pytest.raises(SinkError) as caught:
            async with stage("s3://nobody/lake", storage_options=storage):
                pass
        assert "hunter22" not in str(caught.value)
        async with stage("s3://lakes/gone", storage_options={**storage, "timeout": "2s"}) as at:
            await at.commit(create_update("a", 1))
            batch = at.batch(create_update("a", 2))
            gone = {**storage, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
            with pytest.raises(StoreUnavailableError) as unreachable:
                async with stage(
                    "s3://lakes/gone",
                    storage_options={**gone, "max_retries": "0", "retry_timeout": "1s"},
                ):
                    pass
            assert unreachable.value.retriable
            assert "hunter22" not in str(unreachable.value)
            await at.sink.commit(batch)
