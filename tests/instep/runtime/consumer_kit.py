"""A consumer of a scripted source and a real store, quick, at a chosen time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from instep import AlignmentSettings, Consumer, ConsumerSettings, Environment
from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep.scripted_source_kit import T0_US, ScriptedSource

QUICK = ConsumerSettings(
    reconnect_initial_s=0.001,
    reconnect_max_s=0.01,
    poll_state_s=0.02,
    alignment=AlignmentSettings(quiet_s=0.05, unreached_quiet_s=0.15),
)


def clock(late_s: float) -> Environment:
    """A clock that runs, and stands `late_s` after T0 when the test begins."""
    begun_s = time.monotonic()
    return Environment(now=lambda: T0_US / 1e6 + late_s + time.monotonic() - begun_s)


LATER = clock(60)


def consumer(source: ScriptedSource, store: SqlStore) -> Consumer:
    return Consumer("test", source, store, QUICK, environment=LATER)


async def keys(store: SqlStore) -> list[str]:
    reader = sink.reader(store.options.url)
    try:
        return sorted([entity.key async for entity in reader.entities()])
    finally:
        await reader.close()


async def drained(started: Consumer, count: int) -> None:
    """Wait until this many records are committed."""
    async with asyncio.timeout(5):
        while sum(stream.records for stream in started.health().streams) < count:
            await asyncio.sleep(0.005)


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    return SqlStore(f"sqlite:///{tmp_path}/store.db")
