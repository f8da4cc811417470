"""Which tasks a plug-in has left running, among those of its test.

A test often has the plug-in's peer in the same event loop, and the peer has tasks of its own. What
tells them apart is the context: what runs because the plug-in was called runs in a copy of the
caller's context, also in callbacks and in transports, and what the peer was started with does not.
Threads get an empty context; what they send to the loop is marked here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

__all__ = ["TaskWatch", "described", "watched_tasks"]

_watch: ContextVar[TaskWatch | None] = ContextVar("instep_testing_watch", default=None)


class TaskWatch:
    """The tasks that were made while a plug-in was called, and by it."""

    def __init__(self) -> None:
        self._before = asyncio.all_tasks()
        self._of_others: WeakSet[asyncio.Future[Any]] = WeakSet()

    def left(self) -> list[asyncio.Task[Any]]:
        """Those that still run. One that was made without the loop's factory counts, too: nothing
        shows that it is not the plug-in's.
        """
        made = asyncio.all_tasks() - self._before
        return [task for task in made if task not in self._of_others and not task.done()]

    def leave_out(self, task: asyncio.Future[Any]) -> None:
        """Do not count this task: it was made by what runs beside the plug-in."""
        self._of_others.add(task)


@contextmanager
def watched_tasks() -> Iterator[TaskWatch]:
    """Watch the tasks that are made by what is called in this context, and by what that starts:
    callbacks, transports, and threads that did not live before.
    """
    loop = asyncio.get_running_loop()
    watch = TaskWatch()
    threads = set(threading.enumerate())
    given = loop.get_task_factory()
    send, run = loop.call_soon_threadsafe, loop.run_in_executor

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]:
        context = options.get("context")
        here = _watch.get() is watch or (context is not None and context.get(_watch) is watch)
        task = given(loop, coro, **options) if given else asyncio.Task(coro, loop=loop, **options)
        if not here:
            watch.leave_out(task)
        return task

    def send_marked(callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        if context is None and threading.current_thread() not in threads:
            context = copy_context()
            context.run(_watch.set, watch)
        return send(callback, *args, context=context)

    def run_marked(executor: Executor | None, function: Callable[..., Any], *args: Any) -> Any:
        # The thread may have lived before. Another process is given nothing: it has its own loop.
        if _watch.get() is watch and not isinstance(executor, ProcessPoolExecutor):
            return run(executor, copy_context().run, function, *args)
        return run(executor, function, *args)

    loop.set_task_factory(make)
    token = _watch.set(watch)
    try:
        with (
            patch.object(loop, "call_soon_threadsafe", send_marked),
            patch.object(loop, "run_in_executor", run_marked),
        ):
            yield watch
    finally:
        _watch.reset(token)
        loop.set_task_factory(given)


def described(task: asyncio.Task[Any]) -> str:
    """A task by its coroutine, and where that waits."""
    coro = task.get_coro()
    name = getattr(coro, "__qualname__", repr(coro))
    frame = getattr(coro, "cr_frame", None)
    code = getattr(coro, "cr_code", None)
    if code is None:
        return f"{name} ({task.get_name()})"
    line = frame.f_lineno if frame is not None else code.co_firstlineno
    return f"{name} at {code.co_filename}:{line} ({task.get_name()})"
