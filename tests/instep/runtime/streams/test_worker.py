"""A feed learns of commits from the worker of its stream, and asks it for realignments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from instep import Consumer, Phase, Position, StreamInfo
from instep.errors import StoreUnavailableError
from instep.model import Batch, CommitResult, RecordChunk, Start
from instep_sql import SqlStore
from tests.instep.runtime.consumer_kit import LATER, QUICK, consumer, drained, keys, store
from tests.instep.scripted_source_kit import (
    SILENT,
    ScriptedFeed,
    ScriptedSource,
    Step,
    records,
)

pytestmark = pytest.mark.asyncio

__all__ = ["store"]


def realigning(reason: str, *offsets: int) -> RecordChunk:
    return msgspec.structs.replace(records(*offsets), realign=reason)


class Events:
    """All notices and events that a consumer emits."""

    def __init__(self, of: Consumer) -> None:
        self.seen: list[tuple[str, str]] = []
        self._task = asyncio.create_task(self._listen(of))

    async def _listen(self, of: Consumer) -> None:
        async for event in of.events():
            self.seen.append((event.kind, event.text))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.seen]


async def attempts(started: Consumer, count: int) -> None:
    """Wait until this attempt is aligned."""
    async with asyncio.timeout(5):
        while not (health := started.health()).aligned or health.streams[0].attempt < count:
            await asyncio.sleep(0.005)


async def test_a_feed_asks_for_a_realignment_and_no_connection_is_lost(store: SqlStore) -> None:
    source = ScriptedSource(
        [records(0, 1), realigning("a message was lost", 2), SILENT], [records(0, 2, 3), SILENT]
    )
    started = consumer(source, store)
    events = Events(started)
    await asyncio.sleep(0)
    async with started:
        await drained(started, 6)
        await attempts(started, 2)
    assert source.starts == [Start.OLDEST, Start.OLDEST]
    assert await keys(store) == ["key-0", "key-2", "key-3"]
    assert ("attempt", "attempt 2: a message was lost") in events.seen
    assert "disconnected" not in events.kinds
    assert "no-progress" not in events.kinds


async def test_what_was_read_before_the_request_is_committed_first(store: SqlStore) -> None:
    steps: list[Step] = [records(0), records(1), realigning("lost", 2), SILENT]
    source = ScriptedSource(steps, [SILENT])
    async with consumer(source, store) as started:
        async with asyncio.timeout(5):
            while len(source.starts) < 2:
                await asyncio.sleep(0.005)
        assert await keys(store) == ["key-0", "key-1", "key-2"]
        assert started.health().streams[0].records == 3


async def test_realignments_that_come_to_nothing_are_spaced_and_reported(store: SqlStore) -> None:
    source = ScriptedSource([realigning("it never fits"), SILENT])
    settings = msgspec.structs.replace(QUICK, reconnect_initial_s=30.0, reconnect_max_s=30.0)
    started = Consumer("test", source, store, settings, environment=LATER)
    events = Events(started)
    await asyncio.sleep(0)
    async with started:
        async with asyncio.timeout(5):
            while "no-progress" not in events.kinds:
                await asyncio.sleep(0.005)
        # The first costs nothing, the second waits.
        assert len(source.starts) == 2
        assert started.health().streams[0].last_error == "it never fits"
        assert not started.health().streams[0].connected
    assert "disconnected" not in events.kinds


async def test_a_request_outlives_a_commit_that_fails(store: SqlStore) -> None:
    source = ScriptedSource([records(0), realigning("lost", 1), SILENT], [records(0, 1), SILENT])
    commit, failures = store.commit, [1]

    async def failing(batch: Batch) -> CommitResult:
        if failures and any(one.offset == 1 for one in batch.records):
            failures.pop()
            raise StoreUnavailableError("locked")
        return await commit(batch)

    store.commit = failing  # type: ignore[method-assign]
    started = consumer(source, store)
    events = Events(started)
    await asyncio.sleep(0)
    async with started:
        await drained(started, 2)
        await started.aligned(5)
    assert source.starts == [Start.OLDEST, Start.OLDEST]
    assert await keys(store) == ["key-0", "key-1"]
    assert any(kind == "attempt" and text.endswith(": lost") for kind, text in events.seen)


class AnsweringFeed(ScriptedFeed):
    """Keeps the commits that are reported to it."""

    def __init__(self, steps: Sequence[Step], positions: list[Position]) -> None:
        super().__init__(steps)
        self._positions = positions

    def committed(self, position: Position) -> None:
        self._positions.append(position)


class AnsweringSource(ScriptedSource):
    def __init__(self, *connections: Sequence[Step]) -> None:
        super().__init__(*connections)
        self.positions: list[Position] = []

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[ScriptedFeed]:
        async with super().feed(stream, start) as feed:
            yield AnsweringFeed(feed._steps, self.positions)


async def test_a_feed_learns_of_each_commit_after_it(store: SqlStore) -> None:
    source = AnsweringSource([records(0, 1), records(2), SILENT])
    async with consumer(source, store) as started:
        await drained(started, 3)
        await started.aligned(5)
        stored = await store.position(source.stream)
    assert [one.ordinal for one in source.positions] == list(range(1, stored.ordinal + 1))
    assert source.positions[-1] == stored
    assert stored.offsets == {"0": 2}
    assert stored.phase is Phase.ALIGNED


async def test_a_feed_learns_nothing_of_a_commit_that_failed(store: SqlStore) -> None:
    source = AnsweringSource([records(0), SILENT], [SILENT])
    commit = store.commit
    known: list[list[Position]] = []

    async def failing(batch: Batch) -> CommitResult:
        if not known and batch.records:
            known.append(list(source.positions))
            raise StoreUnavailableError("locked")
        return await commit(batch)

    store.commit = failing  # type: ignore[method-assign]
    async with consumer(source, store) as started:
        await started.aligned(5)
    (before,) = known
    assert source.positions[: len(before)] == before
    assert all(not one.offsets for one in source.positions)
