"""Runs a command until SIGTERM or SIGINT stops it, and bounds the time that stopping takes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final

__all__ = ["STOP_WITHIN_S", "until_signalled"]

STOP_WITHIN_S: Final = 4.0
"""Seconds for stopping: less than the five that are promised before a supervisor sends SIGKILL."""


def until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Run until it is done or a signal comes; then it is cancelled and this returns normally.

    What has not stopped after `STOP_WITHIN_S` is abandoned: a transaction that was not committed is
    rolled back, and its records are read again.
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

        # Not through the loop: it may be blocked on output that nobody reads.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        try:
            await work
        except asyncio.CancelledError:
            if not signalled:
                raise

    asyncio.run(main())
