"""The inbox: bounded, cancel-safe, and an error comes after what was read before it."""

from __future__ import annotations

import asyncio

import pytest

from instep.errors import UnreachableError
from instep.model import RecordChunk, Unreadable
from instep.runtime.streams.buffer import ChunkBuffer
from tests.instep.scripted_source_kit import records

pytestmark = pytest.mark.asyncio


async def test_what_was_put_is_taken_as_one_delivery_in_order() -> None:
    buffer = ChunkBuffer(100, 1_000)
    bad = Unreadable("s", b"x", "no JSON")
    await buffer.put(records(1, 2))
    await buffer.put(RecordChunk([], [bad], {"short-identity": 2}))
    await buffer.put(RecordChunk(records(3).records, [], {"short-identity": 1}))
    taken = await buffer.take(0)
    assert taken is not None
    assert [record.offset for record in taken.records] == [1, 2, 3]
    assert taken.unreadable == [bad]
    assert taken.deviations == {"short-identity": 3}


async def test_nothing_in_time_is_none() -> None:
    assert await ChunkBuffer(1, 1).take(0.001) is None


async def test_a_full_inbox_keeps_the_reader_waiting_and_drops_nothing() -> None:
    buffer = ChunkBuffer(2, 1_000)
    await buffer.put(records(1, 2))
    waiting = asyncio.create_task(buffer.put(records(3)))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    first = await buffer.take(1)
    await waiting
    second = await buffer.take(1)
    assert first is not None
    assert second is not None
    assert [r.offset for r in [*first.records, *second.records]] == [1, 2, 3]


async def test_bytes_bound_it_too() -> None:
    buffer = ChunkBuffer(1_000, 10)
    await buffer.put(RecordChunk(records(1).records, size_bytes=10))
    waiting = asyncio.create_task(buffer.put(records(2)))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()


async def test_an_error_is_raised_after_what_came_before_it() -> None:
    buffer = ChunkBuffer(10, 1_000)
    await buffer.put(records(1))
    buffer.fail(UnreachableError("gone"))
    taken = await buffer.take(1)
    assert taken is not None
    assert [r.offset for r in taken.records] == [1]
    with pytest.raises(UnreachableError, match="gone"):
        await buffer.take(1)


async def test_cancelling_take_and_put_loses_nothing() -> None:
    buffer = ChunkBuffer(1, 1_000)
    take = asyncio.create_task(buffer.take(10))
    await asyncio.sleep(0)
    take.cancel()
    await asyncio.gather(take, return_exceptions=True)
    await buffer.put(records(1))
    put = asyncio.create_task(buffer.put(records(2)))
    await asyncio.sleep(0)
    put.cancel()
    await asyncio.gather(put, return_exceptions=True)
    taken = await buffer.take(1)
    assert taken is not None
    assert [r.offset for r in taken.records] == [1]
    assert "0/1 records" in repr(buffer)
