"""A process that reports to the one that started it, as that one sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

import msgspec

from instep.errors import InstepError
from instep.runtime.settings import ConsumerSettings
from instep.runtime.workers.messages import ToProcess, as_frame, read_frame

__all__ = ["WorkerLostError", "WorkerProcess", "how_ended"]

Report = TypeVar("Report")

_DEFAULTS: Final = ConsumerSettings()
_STOP_WITHIN_S: Final = 3.0
"""A worker that has not ended so long after it was told to is killed: its commit is rolled back."""


class WorkerLostError(InstepError):
    """A process has ended again and again, as often as `reconnect_attempts` allows."""

    code = "worker-lost"


class WorkerProcess(Generic[Report]):
    """Starts a program (`instep.runtime.workers.program`) with a request, and stops it.

    It ends when its standard input is closed: with us, too, however we end.
    """

    def __init__(
        self,
        program: Sequence[str],
        request: bytes,
        decode: Callable[[bytes], Report],
        *,
        kill_silent_after_s: float = _DEFAULTS.kill_silent_after_s,
    ) -> None:
        """`decode` reads what it reports. One that reports nothing for so long is killed."""
        self._kill_silent_after_s = kill_silent_after_s
        self._decode = decode
        self._program = [sys.executable, *program]
        self._request = request
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None else None

    async def run(
        self,
        report: Callable[[Report], None],
        first: Callable[[], ToProcess | None] = lambda: None,
    ) -> int:
        """Run it until it ends by itself, and return its exit status: negative is a signal.

        `first` is what it is told when it has started: until then, `tell` tells nobody.
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
        # A task: cancelling us cuts no frame, and what it reports while it stops is told, too.
        reading = asyncio.create_task(self._read(process, report))
        try:
            self._write(self._request)
            if (told := first()) is not None:
                self.tell(told)
            await asyncio.wait({reading})
            reading.result()
            # Who closes its output without ending does not do its work any more.
            return await _ended(process, reading)
        finally:
            self._process = None
            await _ended(process, reading)

    def kill(self) -> None:
        """Kill it where it runs; `run` returns then."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def tell(self, message: ToProcess) -> None:
        """Tell it what it follows from now on, or how it is configured, while it runs."""
        self._write(msgspec.msgpack.encode(message))

    async def _read(self, process: Process, report: Callable[[Report], None]) -> None:
        while (frame := await self._next(process)) is not None:
            report(self._decode(frame))

    async def _next(self, process: Process) -> bytes | None:
        """Its next report; None where it has ended, or says nothing any more and is killed."""
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self._kill_silent_after_s):
                return await read_frame(process.stdout)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            return None

    def _write(self, content: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(as_frame(content))


def how_ended(status: int) -> str:
    """How a process has ended, by its exit status: "by SIGSEGV", "with status 3"."""
    if status >= 0:
        return f"with status {status}"
    with suppress(ValueError):
        return f"by {signal.Signals(-status).name}"
    return f"by signal {-status}"


async def _ended(process: Process, reading: asyncio.Task[None]) -> int:
    """Let the process end, or end it. Returns its exit status."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_WITHIN_S):
            # What it still reports is read: else it waits for us with a full pipe.
            await asyncio.wait({reading})
            return await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
