"""The border to the worker thread: cancelling, closing."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import Connection, text

from instep.errors import SinkError
from tests.instep_sql.store_kit import Stages, create_update, stream_info

pytestmark = pytest.mark.asyncio


async def test_a_cancelled_commit_is_whole_or_not_there(stage: Stages) -> None:
    async with stage() as at:
        for n in range(20):
            task = asyncio.create_task(
                at.store.commit(
                    at.batch(*[create_update(f"k{m}", n, b"x" * 100) for m in range(200)])
                )
            )
            await asyncio.sleep(0.0003 * n)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            at.position = await at.store.position(stream_info())
            times = {entity.appended_at_us for entity in (await at.entities()).values()}
            token = at.position.token
            assert times == (set() if token is None else {int(token[1:])})


async def test_what_comes_after_a_cancelled_transaction_sees_its_outcome(stage: Stages) -> None:
    async with stage() as at:
        entered, go_on = threading.Event(), threading.Event()

        def slow(connection: Connection) -> None:
            entered.set()
            go_on.wait(10)
            connection.execute(text("UPDATE instep_stream SET ordinal = 7"))

        task = asyncio.create_task(at.store._database.run(slow))
        await asyncio.to_thread(entered.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        closing = asyncio.create_task(at.store.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        go_on.set()
        await closing


async def test_an_error_after_cancelling_is_not_reported_as_forgotten(stage: Stages) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with stage() as at:
        task = asyncio.create_task(
            at.store._database.run(lambda connection: connection.execute(text("SELECT nothing")))
        )
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, SinkError)):
            await task
    assert reported == []


async def test_a_closed_store_raises(stage: Stages) -> None:
    async with stage() as at:
        await at.store.close()
        await at.store.close()
        with pytest.raises(SinkError, match="the store is closed"):
            await at.commit(create_update("a", 1))


async def test_a_store_not_opened_raises(stage: Stages) -> None:
    async with stage() as at:
        at.store._consumer = None
        with pytest.raises(SinkError, match=r"call open\(consumer\) first"):
            await at.store.position(stream_info())
