"""Runs a command that goes on until it is told to stop: by SIGTERM or SIGINT, and in time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final

__all__ = ["STOP_WITHIN_S", "until_signalled"]

STOP_WITHIN_S: Final = 4.0
"""A supervisor that was promised five seconds must not come to its SIGKILL."""


def until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Run until it is done or a signal comes; then it is cancelled and this returns normally.

    What has not stopped after `STOP_WITHIN_S` is left where it is: a transaction that was not
    committed is not there, and its records are read again.
    """

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        signalled = False

        def stop(_number: int, _frame: object) -> None:
            nonlocal signalled
            if not signalled:
                signalled = True
                last = threading.Timer(STOP_WITHIN_S, os._exit, (0,))
                last.daemon = True
                last.start()
                loop.call_soon_threadsafe(task.cancel)

        # Not through the loop: it may be stuck where nobody reads what it prints.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        try:
            await work
        except asyncio.CancelledError:
            if not signalled:
                raise

    asyncio.run(main())
