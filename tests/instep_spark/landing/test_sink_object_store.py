"""A lake on an object store: an S3 server in a process of its own."""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from instep.errors import FencedError, SinkError, StoreUnavailableError
from tests.instep_spark.sink_kit import stage
from tests.instep_sql.store_kit import create_update

pytest.importorskip("moto.server", reason="no S3 server: pip install 'moto[server]'")

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hunter22", "AWS_REGION": "us-east-1"}


@contextmanager
def s3() -> Iterator[dict[str, str]]:
    """The storage options of a server with a bucket `lakes`."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as server:
        try:
            deadline_s = time.monotonic() + 60
            while not made_bucket(port):
                assert server.poll() is None, "it does not start"
                assert time.monotonic() < deadline_s, "it does not answer"
                time.sleep(0.1)
            place = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"}
            yield {**KEYS, **place}
        finally:
            server.kill()


def made_bucket(port: int) -> bool:
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        server.request("PUT", "/lakes")
        return server.getresponse().status == 200
    except OSError:
        return False
    finally:
        server.close()


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
