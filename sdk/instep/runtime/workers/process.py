"""One worker process, as the consumer that started it sees it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from instep.runtime.workers.messages import Assignment, WorkerReport, as_frame, read_frame

__all__ = ["WorkerProcess"]

_STOP_WITHIN_S: Final = 3.0
"""A worker that has not ended so long after it was told to is killed: its commit is rolled back."""
_SILENT_S: float = 120.0
"""A worker reports every second. One that is silent for so long hangs."""
_decode: Final = msgspec.msgpack.Decoder(WorkerReport).decode


class WorkerProcess:
    """Starts a program (`instep.runtime.workers.program`) with a request, and stops it.

    It ends when its standard input is closed: with us, too, however we end.
    """

    def __init__(self, program: Sequence[str], request: bytes) -> None:
        self._program = [sys.executable, *program]
        self._request = request
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None else None

    async def run(
        self, assignment: Callable[[], Assignment], report: Callable[[WorkerReport], None]
    ) -> int:
        """Run it until it ends by itself, and return its exit status: negative is a signal.

        `assignment` is asked for when it has started: until then, `assign` tells nobody.
        Cancelling stops it: it completes its commit, and is killed where that takes too long.
        """
        path = os.pathsep.join(entry for entry in sys.path if entry)
        # A session of its own: an interrupt at the terminal is for us, and we stop the worker.
        process = await asyncio.create_subprocess_exec(
            *self._program,
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self._process = process
        try:
            self._write(self._request)
            self.assign(assignment())
            while (frame := await _next(process)) is not None:
                report(_decode(frame))
            # Who closes its output without ending does not follow its streams any more.
            return await _ended(process)
        finally:
            self._process = None
            await _ended(process)

    def assign(self, assignment: Assignment) -> None:
        """Tell it what it follows from now on, while it runs."""
        self._write(msgspec.msgpack.encode(assignment))

    def _write(self, content: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(as_frame(content))


async def _next(process: Process) -> bytes | None:
    """Its next report; None where it has ended, or says nothing any more and is killed."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_SILENT_S):
            return await read_frame(process.stdout)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        return None


async def _ended(process: Process) -> int:
    """Let the process end, or end it. Returns its exit status."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_WITHIN_S):
            # What it still reports is read: else it waits for us with a full pipe.
            while process.stdout is not None and await process.stdout.read(1 << 16):
                pass
            return await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
