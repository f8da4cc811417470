"""Has a library that reads as much as the kernel holds read in pieces.

While it processes what it has read, no other thread and no other task runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

__all__ = ["MAX_READ_BYTES", "MAX_STORM_READ_BYTES", "limit_reads"]

MAX_READ_BYTES: Final = 1 << 17
"""Most bytes that are read from a socket at once …"""
MAX_STORM_READ_BYTES: Final = 1 << 19
"""… and in a storm, whose bodies stay undecoded. More at once cost less: 128 KiB hold two
frames of 50 records, and the beginning of a third, which is moved. The library buffers about
twice the largest read, so streams without a storm need less memory.
"""


def limit_reads(transport: asyncio.Transport, most_bytes: Callable[[], int]) -> None:
    """Limit the reads of this transport from now on. Its protocol must be a `BufferedProtocol`.
    `most_bytes` is called before each read.
    """
    inner = cast("asyncio.BufferedProtocol", transport.get_protocol())
    transport.set_protocol(_LimitedReads(inner, most_bytes))


class _LimitedReads(asyncio.BufferedProtocol):
    """Wraps the library's own protocol, and offers a smaller buffer than that."""

    def __init__(self, inner: asyncio.BufferedProtocol, most_bytes: Callable[[], int]) -> None:
        self._inner = inner
        self._most_bytes = most_bytes

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._inner.get_buffer(sizehint))[: self._most_bytes()]

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
