"""One end of a connection, and the clock of a relay."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Awaitable, Callable

__all__ = ["Clock", "Cut", "Dial", "Stream"]

_PIECE_BYTES = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER, on, for 0 s: closing sends RST


class Cut(Exception):
    """Raised by a rule: both ends of the connection are closed; with `reset`, by an RST."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__("the relay cut the connection")
        self.reset = reset


class Clock:
    """The time of a relay, in seconds. A test may pass one of its own."""

    def now(self) -> float:
        """Seconds that never go back; only differences mean something."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        await asyncio.sleep(seconds)


class Stream:
    """One end of a connection: bytes that arrive, and bytes that are sent.

    An end that is gone reads as ended; writing to it raises `ConnectionError`.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def ended(self) -> bool:
        """Whether the peer has closed it, and everything was read."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def read(self, most: int = _PIECE_BYTES) -> bytes:
        """What has arrived, at least a byte; empty at the end."""
        with contextlib.suppress(ConnectionError):
            return await self._reader.read(most)
        return b""

    async def read_exactly(self, count: int) -> bytes:
        """So many bytes. Raises `ConnectionError` where it ends before."""
        try:
            return await self._reader.readexactly(count)
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("ended within a message") from error

    async def read_until(self, end: bytes) -> bytes:
        """What comes up to and with `end`; empty where nothing comes any more. Raises
        `ConnectionError` where it ends within, or is longer than 64 KiB.
        """
        try:
            return await self._reader.readuntil(end)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise ConnectionResetError("ended within a head") from error
            return b""
        except asyncio.LimitOverrunError as error:
            raise ConnectionResetError("a head is too long") from error

    async def write(self, data: bytes) -> None:
        """Send, and wait while the peer reads too slowly."""
        if self._writer.is_closing():
            raise ConnectionResetError("the peer is gone")
        self._writer.write(data)
        await self._writer.drain()

    def end_writing(self) -> None:
        """Say that nothing more comes (FIN); the peer may still send."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write_eof()

    async def close(self) -> None:
        """Close it; what was written is sent first. Safe to call again."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
        self._writer.transport.abort()

    def reset(self) -> None:
        """End it by an RST; what was written may be lost."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()


Dial = Callable[[], Awaitable[Stream]]
"""Connects to the server; each call is another connection. Raises `OSError`."""
