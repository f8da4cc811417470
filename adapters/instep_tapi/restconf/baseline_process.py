"""States large answers in a process of their own, so that the event loop goes on.

While JSON is decoded, no other thread of a process runs, and each garbage collection looks through
all that is made of 100 MB. The child (`main`) reads what is wanted and the answer from its input,
and writes pages of records. Requests and pages are msgpack after their length. The child ends with
its parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from instep.model.records import Record
from instep_tapi.restconf.baseline_rows import BaselineScope, UnreadableAnswer, pages_of

__all__ = ["main", "stated_pages"]

_INLINE_BYTES: Final = 1 << 20
"""Largest answer that is stated in the process itself: that takes some tens of milliseconds."""
_WRITE_BYTES: Final = 1 << 18
_READ_BYTES: Final = 1 << 20
_LONGEST_PAGE_S: Final = 600.0
"""Longest wait for a page: the first one comes after the whole answer was decoded."""
_LENGTH_BYTES: Final = 4


class _Request(msgspec.Struct, frozen=True):
    wanted: BaselineScope
    seen: set[tuple[str, str]]


class _Failure(msgspec.Struct, frozen=True):
    text: str
    retriable: bool


_encode: Final = msgspec.msgpack.Encoder().encode
_request: Final = msgspec.msgpack.Decoder(_Request)
_answer: Final = msgspec.msgpack.Decoder(list[Record] | _Failure)


async def stated_pages(
    body: bytes, wanted: BaselineScope, seen: set[tuple[str, str]]
) -> AsyncGenerator[list[Record], None]:
    """Pages of records of an answer; what they state is added to `seen`.

    Raises `UnreadableAnswer`.
    """
    if len(body) <= _INLINE_BYTES:
        for page in pages_of(body, wanted, seen):
            yield page
    elif (command := _command()) is None:
        for page in await asyncio.to_thread(lambda: list(pages_of(body, wanted, seen))):
            yield page
    else:
        async with _child(command) as process:
            feeding = asyncio.create_task(_feed(process, body, wanted, seen))
            try:
                async for page in _pages(process):
                    seen.update((record.entity_class, record.uuid) for record in page)
                    yield page
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)


def _command() -> list[str] | None:
    """How the child is started; None where there is no interpreter to start."""
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    # Without -P the working directory could stand in for any module.
    return [sys.executable, "-P", "-c", f"from {__name__} import main; main()"]


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


async def _feed(
    process: Process, body: bytes, wanted: BaselineScope, seen: set[tuple[str, str]]
) -> None:
    assert process.stdin is not None
    process.stdin.write(_message(_encode(_Request(wanted, seen))))
    view = memoryview(body)
    for at in range(0, len(view), _WRITE_BYTES):
        process.stdin.write(view[at : at + _WRITE_BYTES])
        await process.stdin.drain()
    process.stdin.close()


async def _pages(process: Process) -> AsyncIterator[list[Record]]:
    assert process.stdout is not None
    while True:
        try:
            async with asyncio.timeout(_LONGEST_PAGE_S):
                size = int.from_bytes(await process.stdout.readexactly(_LENGTH_BYTES))
                page = _answer.decode(await process.stdout.readexactly(size))
        except (asyncio.IncompleteReadError, TimeoutError) as error:
            text = "the process that reads the answer has ended or hangs: is memory short?"
            raise UnreadableAnswer(text, retriable=True) from error
        if isinstance(page, _Failure):
            raise UnreadableAnswer(page.text, retriable=page.retriable)
        if not page:
            return
        yield page


def _message(content: bytes) -> bytes:
    return len(content).to_bytes(_LENGTH_BYTES) + content


def main() -> None:
    """The child: state one answer. An empty page is the end."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    size = int.from_bytes(requests.read(_LENGTH_BYTES))
    request = _request.decode(requests.read(size))
    with suppress(BrokenPipeError):
        try:
            pages = pages_of(requests.read(), request.wanted, request.seen)
            answers.writelines(_message(_encode(page)) for page in pages)
            answers.write(_message(_encode([])))
        except UnreadableAnswer as error:
            answers.write(_message(_encode(_Failure(str(error), error.retriable))))
        answers.flush()
