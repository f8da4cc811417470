"""Work that ends although nothing stopped it is an error; cancelling is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from instep.errors import SinkError
from instep.runtime.supervision import TaskEndedError, until_cancelled

pytestmark = pytest.mark.asyncio


async def returns() -> None:
    pass


async def is_cancelled_from_inside() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


async def makes_a_mistake() -> None:
    raise ExceptionGroup("tasks", [TypeError("odd")])


@pytest.mark.parametrize("work", [returns, is_cancelled_from_inside, makes_a_mistake])
async def test_any_other_end_than_being_cancelled_is_an_error(
    work: Callable[[], Awaitable[None]],
) -> None:
    with pytest.raises(TaskEndedError, match="the work"):
        await until_cancelled("the work", work)


async def test_errors_of_instep_pass() -> None:
    async def fails() -> None:
        raise ExceptionGroup("tasks", [SinkError("no room")])

    with pytest.raises(SinkError, match="no room"):
        await until_cancelled("the work", fails)


async def test_cancelling_the_caller_is_no_error() -> None:
    task = asyncio.create_task(until_cancelled("the work", partial(asyncio.sleep, 60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
