"""The thread of a database: it does one piece of work after another.

`ThreadPoolExecutor` makes a future with a lock for each piece of work, and chains it to one of the
loop. Without that, a small transaction takes 8 µs less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any
from weakref import finalize

__all__ = ["WorkerThread"]

_Queue = SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None]


class WorkerThread(Executor):
    """One thread, for `loop.run_in_executor` alone: `submit` returns a future of the running loop.

    Work that is cancelled before it has begun is not done. The thread ends after `shutdown`, or
    when nobody refers to this any more. What has begun is done before the program ends.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: _Queue = SimpleQueue()
        self._thread: Thread | None = None
        self._over = False

    def submit(  # type: ignore[override]
        self, work: Callable[..., Any], /, *args: Any, **named: Any
    ) -> asyncio.Future[Any]:
        """Raises `RuntimeError` after `shutdown`."""
        if self._over:
            raise RuntimeError("the thread has been shut down")
        if self._thread is None:
            # A daemon, because Python waits for other threads before it calls what is to end them.
            self._thread = Thread(target=_work, args=(self._queue,), name=self._name, daemon=True)
            finalize(self, _end, self._queue, self._thread)
            self._thread.start()
        future = asyncio.get_running_loop().create_future()
        self._queue.put((future, partial(work, *args, **named) if args or named else work))
        return future

    def shutdown(
        self,
        wait: bool = True,  # noqa: FBT001, FBT002 - as `Executor` has it
        *,
        cancel_futures: bool = False,
    ) -> None:
        """End the thread after what was submitted; nothing is cancelled."""
        assert not cancel_futures
        self._over = True
        self._queue.put(None)
        if wait and self._thread is not None:
            self._thread.join()


def _end(queue: _Queue, thread: Thread) -> None:
    queue.put(None)
    if thread is not current_thread():
        thread.join()


def _work(queue: _Queue) -> None:
    while (submitted := queue.get()) is not None:
        future, work = submitted
        result, error = None, None
        try:
            if not future.cancelled():
                result = work()
        except BaseException as raised:  # noqa: BLE001 - it is raised where the future is awaited
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            future.get_loop().call_soon_threadsafe(_settle, future, result, error)
        # Nothing is kept while the thread waits.
        del submitted, future, work, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
