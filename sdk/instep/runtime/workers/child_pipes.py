"""The side of a child process: its pipes to the one that started it, and its end with that one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from typing import BinaryIO, Final

from instep.runtime.workers.messages import ConsumersReport, WorkerReport, as_frame

__all__ = ["pipes_to_parent", "write_report"]

_LOOK_EVERY_S: Final = 0.5
_STOP_WITHIN_S: Final = 4.0
"""So long after its parent a child may live: it completes its commit."""


async def pipes_to_parent() -> tuple[asyncio.StreamReader, BinaryIO]:
    """Standard input, and what was standard output: what others print there goes to stderr.

    From now on this process ends with its parent, whatever it is doing.
    """
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    frames = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(frames), sys.stdin
    )
    return frames, reports


async def write_report(reports: BinaryIO, report: WorkerReport | ConsumersReport) -> None:
    """Send a report to the one that started us."""

    def write() -> None:
        # Whoever started us may have ended: then so do we, since our input has.
        with contextlib.suppress(BrokenPipeError):
            reports.write(as_frame(report))
            reports.flush()

    await asyncio.to_thread(write)


def _end_with(parent: int) -> None:
    """End when the parent has ended. Its pipe that ends, too, is seen by the event loop alone,
    which may hang.
    """
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    time.sleep(_STOP_WITHIN_S)
    os._exit(1)
