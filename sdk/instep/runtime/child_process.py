"""Reads large content in a process of its own, so that the event loop goes on.

While Python decodes, no other thread of a process runs, and each garbage collection looks through
all that is made of 100 MB. The child reads a request and the content from its input, and writes
messages; an empty one is the end. Requests and messages come after their length. The child ends
with its parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final

__all__ = [
    "OUTLIVE_HANGUP",
    "ChildLostError",
    "can_start_child",
    "messages_of_child",
    "serve_as_child",
]

OUTLIVE_HANGUP: Final = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
"""The first statement of a child: whoever started it answers the signal."""
_WRITE_BYTES: Final = 1 << 18
_READ_BYTES: Final = 1 << 20
_LONGEST_WAIT_S: Final = 600.0
"""Longest wait for a message: the first one comes after the whole content was decoded."""
_LENGTH_BYTES: Final = 4


class ChildLostError(Exception):
    """The child has ended before its last message, or hangs."""

    def __init__(self) -> None:
        super().__init__("the process that reads the answer has ended or hangs: is memory short?")


def can_start_child() -> bool:
    """Whether there is an interpreter to start."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


async def messages_of_child(
    module: str, request: bytes, content: bytes
) -> AsyncGenerator[bytes, None]:
    """The messages of `main()` in `module`, which calls `serve_as_child`. Raises `ChildLostError`.

    Whoever does not read all of them closes the generator: that ends the child.
    """
    # Without -P the working directory could stand in for any module.
    command = [sys.executable, "-P", "-c", f"{OUTLIVE_HANGUP}; from {module} import main; main()"]
    async with _child(command) as process:
        feeding = asyncio.create_task(_feed(process, request, content))
        try:
            while message := await _next(process):
                yield message
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


def serve_as_child(answer: Callable[[bytes, bytes], Iterable[bytes]]) -> None:
    """The child: write the messages that `answer` makes of the request and the content."""
    asked, told = sys.stdin.buffer, sys.stdout.buffer
    request = asked.read(int.from_bytes(asked.read(_LENGTH_BYTES)))
    with suppress(BrokenPipeError):
        told.writelines(_after_length(one) for one in answer(request, asked.read()))
        told.write(_after_length(b""))
        told.flush()


@asynccontextmanager
async def _child(command: list[str]) -> AsyncIterator[Process]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    # A session of its own: an interrupt at the terminal is for us, and we end the child.
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        limit=_READ_BYTES,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _feed(process: Process, request: bytes, content: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(_after_length(request))
    view = memoryview(content)
    for at in range(0, len(view), _WRITE_BYTES):
        process.stdin.write(view[at : at + _WRITE_BYTES])
        await process.stdin.drain()
    process.stdin.close()


async def _next(process: Process) -> bytes:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_LONGEST_WAIT_S):
            size = int.from_bytes(await process.stdout.readexactly(_LENGTH_BYTES))
            return await process.stdout.readexactly(size)
    except (asyncio.IncompleteReadError, TimeoutError) as error:
        raise ChildLostError from error


def _after_length(content: bytes) -> bytes:
    return len(content).to_bytes(_LENGTH_BYTES) + content
