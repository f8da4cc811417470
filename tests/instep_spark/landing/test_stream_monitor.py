"""What a provider says of our reading (TR-548 3.18), in a lake."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from instep.cli.app import app
from instep_spark.landing.sink import DeltaSink
from tests.end_to_end.test_stream_monitor import SOON, MonitoredProvider
from tests.instep_tapi.small_provider_kit import DEADLINE_S, running

pytestmark = pytest.mark.asyncio


async def said(url: str) -> Any:
    """What `instep status` shows of it."""
    shown = await asyncio.to_thread(
        CliRunner().invoke, app, ["status", "--store", url, "--format", "jsonl"]
    )
    return json.loads(shown.output)["monitor"]


async def until_said(url: str, **wanted: Any) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await said(url)
            if found and found.items() >= wanted.items():
                return found
            await asyncio.sleep(0.1)


async def facts(sink: DeltaSink) -> int:
    query = "SELECT count(*) AS n FROM {stream_facts} WHERE fact = 'MONITOR'"
    found = await asyncio.to_thread(sink._writer.query, query)
    return int(found["n"][0].as_py())


async def test_3_18_a_lake_keeps_what_the_provider_says_and_since_when(tmp_path: Path) -> None:
    provider, url = MonitoredProvider(), (tmp_path / "lake").as_uri()
    provider.entries = [provider.entry("10", "905")]
    async with DeltaSink(url) as sink, running(provider, sink, SOON):
        found = await until_said(url, lag_records=895)
        assert (found["read_id"], found["written_id"], found["difference"]) == ("10", "905", "")
        shown = await asyncio.to_thread(CliRunner().invoke, app, ["status", "--store", url])
        assert "895 records behind; read up to 10, written 905" in shown.output
        assert f"since {found['since']}" in " ".join(shown.output.split())
        # What is said again is no row.
        await asyncio.sleep(0.6)
        assert await facts(sink) == 1
        provider.entries = [provider.entry("905", "905")]
        await until_said(url, lag_records=0)
    # Nobody is connected any more: what was said is of then.
    assert await said(url) is None


async def test_3_18_a_lake_of_a_provider_without_a_monitor_keeps_nothing(tmp_path: Path) -> None:
    provider, url = MonitoredProvider(), (tmp_path / "lake").as_uri()
    provider.entries = None
    async with DeltaSink(url) as sink, running(provider, sink, SOON):
        await asyncio.sleep(0.6)
        assert await facts(sink) == 0
    assert await said(url) is None
