"""Real processes on one file: killed at random, writing at once."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path

import pytest

from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep_sql.store_kit import Stage, stream_info

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).resolve().parents[2]


async def start(url: str, consumer: str, batches: int) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.instep_sql.commit_process_kit",
        url,
        consumer,
        str(batches),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"open\n"
    return process


async def test_a1_the_position_is_never_ahead_of_the_data_whenever_killed(
    database: str,
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    ordinal = 0
    for _ in range(12):
        process = await start(database, "east", 1_000_000)
        await asyncio.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        await process.wait()
        async with SqlStore(database) as store:
            await store.open("east")
            at = Stage(store, await store.position(stream_info()))
            assert at.position.ordinal >= ordinal
            ordinal = at.position.ordinal
            if ordinal:
                entities = (await at.entities()).values()
                assert {entity.token for entity in entities} == {f"t{ordinal}"}
                assert at.position.token == f"t{ordinal}"
                assert len(entities) == 100
    assert ordinal > 0


async def test_processes_write_one_file_at_once(database: str) -> None:
    processes = [await start(database, f"consumer-{n}", 30) for n in range(3)]
    for process in processes:
        output, _ = await asyncio.wait_for(process.communicate(), 60)
        assert (output, process.returncode) == (b"done\n", 0)
    reader = sink.reader(database)
    statuses = await reader.streams()
    changes = [change async for change in reader.changes()]
    await reader.close()
    assert [(status.position.ordinal, status.entities) for status in statuses] == [(30, 100)] * 3
    assert [change.cursor for change in changes] == list(range(1, len(changes) + 1))
