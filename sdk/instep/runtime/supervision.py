"""Work that runs until it is cancelled, or until the first of several ends. Work that is never to
end and does so in any other way than by being cancelled is an error.

`asyncio.TaskGroup` takes a task that was cancelled for one that has ended well. A callback that
raises `CancelledError`, for example because it awaited a task of its own that was cancelled, would
end its caller's task silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from instep.errors import InstepError
from instep.runtime.lifecycle import first_error

__all__ = ["TaskEndedError", "is_cancelled", "until_cancelled", "until_first_ended"]


class TaskEndedError(InstepError):
    """A part of a consumer ended although nothing had stopped it: a mistake in instep, or in code
    that it calls. The consumer starts the part again.
    """

    code = "task-ended"
    retriable = True


def is_cancelled() -> bool:
    """Whether the current task itself was cancelled, and not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def until_cancelled(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do work that never ends by itself.

    Raises `TaskEndedError` when it returns, is cancelled from inside, or fails with an error that
    is no `InstepError`; other errors pass. Cancelling the caller cancels the work.
    """
    try:
        await work()
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise TaskEndedError("it was cancelled from inside", where=name) from None
    except Exception as error:  # noqa: BLE001 - any mistake ends the work
        first = first_error(error)
        if isinstance(first, InstepError):
            raise first from None
        raise TaskEndedError(f"{type(first).__name__}: {first}"[:500], where=name) from first
    raise TaskEndedError("it returned", where=name)


async def until_first_ended(*works: Coroutine[Any, Any, object]) -> None:
    """Do all of this work until one part of it ends, then cancel the others. Raises the error of
    what has ended. Cancelling the caller cancels all.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
