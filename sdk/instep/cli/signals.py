"""Runs a command that goes on until it is told to stop: by SIGTERM or SIGINT, and in time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final

__all__ = ["until_signalled"]

STOP_WITHIN_S: Final = 4.0
"""A supervisor that was promised five seconds must not come to its SIGKILL."""


def until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Run until it is done or a signal comes; then it is cancelled and returns normally.

    What has not stopped after `STOP_WITHIN_S` is left where it is: a transaction that was not
    committed is not there, and its records are read again.
    """

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        signalled = False

        def stop() -> None:
            nonlocal signalled
            if signalled:
                return
            signalled = True
            # A thread, since it is a loop or a commit that is stuck which makes it necessary.
            timer = threading.Timer(STOP_WITHIN_S, os._exit, (0,))
            timer.daemon = True
            timer.start()
            task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        try:
            await work
        except asyncio.CancelledError:
            if not signalled:
                raise

    asyncio.run(main())
