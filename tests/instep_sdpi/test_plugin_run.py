"""`instep run` with `kind = "sdpi"`: a process of its own, what it shows, and SIGKILL."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.instep_sdpi.provider_kit import FakeProvider, providing

pytestmark = pytest.mark.asyncio

INSTEP = [sys.executable, "-m", "instep.cli"]
CONFIG = """
[[consumers]]
name = "bed-7"
[consumers.source]
kind = "sdpi"
provider = "{url}"
listen = "127.0.0.1:0"
actions = ["DescriptionModificationReport", "EpisodicMetricReport"]
[consumers.settings]
alignment = {{ quiet_s = 0.2, unreached_quiet_s = 0.3 }}
[consumers.sink]
{sink}
url = "{store}"
"""
SINKS = {
    "sql": ('kind = "sql"', "sqlite:///{folder}/store.db"),
    "delta": ('kind = "delta"\ncommit_interval_s = 0.05', "file://{folder}/lake"),
}


class Site:
    def __init__(self, provider: FakeProvider, folder: Path, sink: str = "sql") -> None:
        kind, store = SINKS[sink]
        self.provider = provider
        self.store = store.format(folder=folder)
        self.config = folder / "instep.toml"
        self.config.write_text(CONFIG.format(url=provider.url, sink=kind, store=self.store))

    @asynccontextmanager
    async def run(self, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            *INSTEP,
            "run",
            str(self.config),
            *options,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def shown(self, command: str) -> list[dict[str, Any]]:
        process = await asyncio.create_subprocess_exec(
            *INSTEP, command, "--store", self.store, "--format", "jsonl", stdout=-1
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]

    async def align(self) -> None:
        async with self.run("--until-aligned", "--timeout", "30") as process:
            assert await process.wait() == 0

    async def values(self) -> dict[str, str]:
        return {
            one["key"].removeprefix("state/"): one["body"]["MetricValue"]["Value"]
            for one in await self.shown("entities")
            if one["class"] == "NumericMetricState"
        }


@pytest.mark.parametrize("sink", list(SINKS))
async def test_entities_and_status_of_a_device(tmp_path: Path, sink: str) -> None:
    async with providing() as provider:
        made = Site(provider, tmp_path, sink)
        await made.align()
        entities = {one["key"]: one for one in await made.shown("entities")}
        assert entities["descriptor/ch0"]["class"] == "ChannelDescriptor"
        assert entities["state/m1"]["body"]["MetricValue"] == {"Value": "0"}
        (status,) = await made.shown("status")
        assert status["stream"] == "mdib"


@pytest.mark.parametrize("sink", list(SINKS))
async def test_killed_between_a_confirmation_and_the_mdib_it_says_baselining_and_is_right_next(
    tmp_path: Path, sink: str
) -> None:
    async with providing() as provider:
        made = Site(provider, tmp_path, sink)
        await made.align()
        provider.slow_s = 60
        async with made.run() as process:
            async with asyncio.timeout(30):
                while provider.counts["GetMdib"] < 2:
                    await asyncio.sleep(0.01)
            assert await provider.notify(provider.set("m1", "confirmed")) == [202]
            process.kill()
        (status,) = await made.shown("status")
        assert status["phase"] == "baselining"
        assert (await made.values())["m1"] == "0"
        provider.slow_s = 0
        provider.subscriptions.clear()
        await made.align()
        assert (await made.values())["m1"] == "confirmed"


async def test_killed_at_any_moment_it_is_equal_in_the_end(tmp_path: Path) -> None:
    rng = random.Random(0)
    async with providing() as provider:
        made = Site(provider, tmp_path)
        for round_ in range(3):
            async with made.run():
                async with asyncio.timeout(30):
                    while not provider.subscriptions:
                        await asyncio.sleep(0.01)
                for _ in range(rng.randint(1, 40)):
                    body = provider.set(rng.choice(["m1", "m2"]), f"{round_}.{rng.random()}")
                    assert set(await provider.notify(body)) <= {202, 503}
            provider.subscriptions.clear()
            provider.set("m1", f"away {round_}")
        await made.align()
        assert await made.values() == {key: value for key, (value, _) in provider.metrics.items()}
