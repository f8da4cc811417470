"""Has a library that reads as much as the kernel holds read in pieces.

While it processes what it has read, no other thread and no other task runs.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

__all__ = ["MAX_READ_BYTES", "limit_reads"]

MAX_READ_BYTES: Final = 1 << 17
"""Most bytes that are read from a socket at once."""


def limit_reads(transport: asyncio.Transport) -> None:
    """Limit the reads of this transport from now on. Its protocol must be a `BufferedProtocol`."""
    transport.set_protocol(
        _LimitedReads(cast("asyncio.BufferedProtocol", transport.get_protocol()))
    )


class _LimitedReads(asyncio.BufferedProtocol):
    """Wraps the library's own protocol, and offers a smaller buffer than that."""

    def __init__(self, inner: asyncio.BufferedProtocol) -> None:
        self._inner = inner

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._inner.get_buffer(sizehint))[:MAX_READ_BYTES]

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
