"""Runs a command until SIGTERM or SIGINT stops it, and bounds the time that stopping takes. SIGHUP
ends no service.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from instep.cli.log_lines import line_of

__all__ = ["STOP_WITHIN_S", "on_hangup", "outlive_hangup", "until_signalled"]

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


def on_hangup(call: Callable[[], None]) -> None:
    """From now on, SIGHUP calls this, in the running event loop. A terminal that is gone is written
    to no more.
    """
    loop = asyncio.get_running_loop()

    def hung_up(_number: int, _frame: object) -> None:
        _leave_terminal()
        # A loop that is closed needs nothing any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(call)

    signal.signal(signal.SIGHUP, hung_up)


def outlive_hangup() -> None:
    """From now on, SIGHUP is told on stderr and ends nothing: `systemctl reload` and log rotation
    send it, and a terminal that is closed. A terminal that is gone is written to no more.
    """
    signal.signal(signal.SIGHUP, _hung_up)


def _leave_terminal() -> None:
    for output in (1, 2):
        try:
            os.tcgetpgrp(output)
        except OSError as error:
            # Whatever else is wrong with it, a terminal that is gone says EIO.
            if error.errno == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def _hung_up(_number: int, _frame: object) -> None:
    _leave_terminal()
    text = (
        "SIGHUP is ignored: a configuration is not read again while it is used;"
        " restart to apply a changed one"
    )
    # Not through a stream of Python, which the signal may have interrupted.
    with suppress(OSError):
        os.write(2, f"{line_of(text, logger='instep.cli')}\n".encode())
